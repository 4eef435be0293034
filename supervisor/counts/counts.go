package supervisor

import (
	"math"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// countReader counts memory mappings and descriptors of processes on the side:
// /proc/PID/maps waits for the process's mmap_lock and may hang. What is
// counted, and how often, is told by counting. It is asked in a look and its
// answer is taken in the next, so that it wakes nobody, but where a limit is
// near in time.
type countReader struct {
	*probe.Reader[[]countAsk, []countRead]
	counting counting
}

// countAsk is one count that is due.
type countAsk struct {
	id   rss.ProcID
	kind countKind
	// limit says that the limit is to be read too.
	limit bool
}

type countRead struct {
	ask   countAsk
	count proctree.Count
	limit uint64 // 0 where it was not asked for, or could not be read
	err   error
	// limits come with descriptors, where they were asked for; locks says that
	// RLIMIT_MEMLOCK does not hold.
	limits *proctree.ResourceLimits
	locks  bool
}

func newCountReader(set *probe.Set, proc string) *countReader {
	c := proctree.NewCounter(proc)
	return &countReader{Reader: probe.New(set, func(asks []countAsk) []countRead {
		fault.Point("counts")
		reads := make([]countRead, 0, len(asks))
		for _, ask := range asks {
			reads = append(reads, ask.read(c, proc))
		}
		return reads
	})}
}

// read counts for one ask. A process whose limit cannot be read is counted all
// the same.
func (a countAsk) read(c *proctree.Counter, proc string) countRead {
	r := countRead{ask: a}
	switch a.kind {
	case countMaps:
		r.count, r.err = c.Maps(a.id)
		if a.limit {
			r.limit, _ = proctree.MapLimit(proc)
		}
	case countFDs:
		r.count, r.err = c.Descriptors(a.id)
		if a.limit {
			if l, err := proctree.Limits(proc, a.id.PID); err == nil {
				r.limit, r.limits = l.Descriptors, &l
			}
			r.locks, _ = proctree.Capable(proc, a.id.PID, proctree.CapIPCLock)
		}
	}
	return r
}

// update takes in what was counted and asks for what is due. procs have their
// roles.
func (r *countReader) update(now time.Duration, procs []rss.Proc) {
	if r == nil {
		return
	}
	r.taken()
	r.counting.update(now, procs)
	r.ask(now)
}

// ask asks for what is due.
func (r *countReader) ask(now time.Duration) {
	if r == nil || r.Busy() {
		return
	}
	_, wake := r.counting.hot(now)
	if asks := r.counting.due(now); len(asks) > 0 {
		r.Ask(asks, wake)
	}
}

// taken takes in what was counted, and says whether anything was since.
func (r *countReader) taken() bool {
	reads, ok := r.Take()
	for _, got := range reads {
		r.counting.done(got)
	}
	return ok
}

// next is how long after now the loop is to wake for a count; false where it
// need not.
func (r *countReader) next(now time.Duration) (pause time.Duration, ok bool) {
	if r == nil {
		return 0, false
	}
	pause, ok = r.counting.hot(now)
	return pause, ok && !r.Busy()
}

// hurry has a process counted often for a while.
func (r *countReader) hurry(pid int, until time.Duration) {
	if r != nil {
		r.counting.hurry(pid, until)
	}
}

// of returns the last counts of a process, 0 for what was not read.
func (r *countReader) of(id rss.ProcID) (maps, fds int) {
	if r == nil {
		return 0, 0
	}
	if e := r.counting.entries[id]; e != nil {
		return e.tallies[countMaps].n, e.tallies[countFDs].n
	}
	return 0, 0
}

// A warning must not wait for a count that may come too late: a process that takes
// mappings by the ten thousand holds the lock that counting needs.
const (
	aheadFor  = 2 * time.Second
	aheadFrom = quickShare // of the limit, below which a burst is no news
	// aheadFull is within what time the limit must be full at that pace: else
	// there is time for another count.
	aheadFull = 4 * time.Second
)

// ahead is how much a limit on numbers grows by until it is counted again, at the
// pace of the process that is nearest; 0 for other limits, and where that is slow.
func (r *countReader) ahead(l *event.Limit) rss.Bytes {
	if l.Ratio() < aheadFrom || l.Ratio() >= event.NearShare {
		return 0
	}
	t, pace := r.paceOf(l)
	if t == nil || t.filled(float64(t.limit), pace) > aheadFull {
		return 0
	}
	// To the first warning and no further: after it is counted often.
	return min(rss.Bytes(pace*aheadFor.Seconds()), l.Limit.Scale(event.NearShare).Sub(l.Used)+1)
}

// paceOf is how many come a second in the process that is nearest to a limit on
// mappings or descriptors; nil for other limits.
func (r *countReader) paceOf(l *event.Limit) (t *tally, pace float64) {
	kind := countMaps
	switch {
	case r == nil:
		return nil, 0
	case l.Name == event.LimitFDs:
		kind = countFDs
	case l.Name != event.LimitMaps:
		return nil, 0
	}
	for _, e := range r.counting.entries {
		if e.proc.ID.PID == l.PID {
			t = &e.tallies[kind]
			return t, t.pace(kind, e)
		}
	}
	return nil, 0
}

// all returns the counts of each process, for a diagnosis.
func (r *countReader) all() []diagnosis.Count {
	if r == nil {
		return nil
	}
	all := make([]diagnosis.Count, 0, len(r.counting.entries))
	for _, e := range r.counting.entries {
		maps, fds := &e.tallies[countMaps], &e.tallies[countFDs]
		all = append(all, diagnosis.Count{ID: e.proc.ID, Maps: maps.n, FDs: fds.n, MaxMaps: int(maps.limit), MaxFDs: int(min(fds.limit, math.MaxInt32))})
	}
	return all
}

// readings returns each limit on one process as it stands in the process that is
// nearest to it. A limit against which nothing was counted yet is not among them.
func (r *countReader) readings(now time.Duration) []event.Limit {
	if r == nil {
		return nil
	}
	var all limit.Fullest
	for _, e := range r.counting.entries {
		for kind := range countKind(countKinds) {
			t := &e.tallies[kind]
			if !t.known || t.limit == 0 {
				continue
			}
			l := countLimits[kind](&e.proc, uint64(t.n), t.limit)
			if age := (now - t.at).Seconds(); age >= 1 {
				l.Age = age
			}
			all.Offer(l)
		}
		if e.limits != nil {
			all.OfferResources(&e.proc, e.limits, e.locks)
		}
	}
	return all.Limits()
}

var countLimits = [countKinds]func(p *rss.Proc, n, most uint64) event.Limit{limit.Maps, limit.Descriptors}
