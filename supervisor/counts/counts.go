// Package counts reads the limits that are not on summed memory: mappings, descriptors,
// address space and locked memory of one process; /dev/shm, tasks and committed memory
// that processes share. Each is read as often as it may matter, on the side, because
// /proc/PID/maps waits for the process's mmap_lock and a /dev/shm may hang: the caller asks
// in one read and has the answer in a later one.
package counts

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// Tolerance is by how much a read may come early where the loop is awake anyway.
const Tolerance = 50 * time.Millisecond

// Counts holds the last reading of each limit. The zero value reads nothing.
type Counts struct {
	processes *probe.Reader[[]countQuestion, []countAnswer]
	schedule  schedule
	shared    sharedReader
}

// New reads below proc and sys. Tasks are those of the cgroup and the user of pid, the
// command.
func New(set *probe.Set, proc, sys string, pid int) *Counts {
	return &Counts{processes: newProcessReader(set, proc), shared: newSharedReader(set, proc, sys, pid)}
}

type countQuestion struct {
	id   rss.ProcID
	kind Kind
	// limit asks for the limit, too.
	limit bool
}

type countAnswer struct {
	ask   countQuestion
	count proctree.Count
	limit uint64 // 0 where it was not asked for, or could not be read
	err   error
	// limits come with descriptors, where they were asked for; locks says that
	// RLIMIT_MEMLOCK does not hold, or that it is not known to.
	limits *rss.ResourceLimits
	locks  bool
}

func newProcessReader(set *probe.Set, proc string) *probe.Reader[[]countQuestion, []countAnswer] {
	c := proctree.NewCounter(proc)
	return probe.New(set, func(asks []countQuestion) []countAnswer {
		fault.Point("counts")
		answers := make([]countAnswer, 0, len(asks))
		for _, ask := range asks {
			answers = append(answers, ask.read(c, proc))
		}
		return answers
	})
}

// read counts. A process whose limit cannot be read is counted all the same.
func (q countQuestion) read(c *proctree.Counter, proc string) countAnswer {
	a := countAnswer{ask: q}
	switch q.kind {
	case kindMaps:
		a.count, a.err = c.Maps(q.id)
		if q.limit {
			a.limit, _ = proctree.MapLimit(proc)
		}
	case kindFDs:
		a.count, a.err = c.Descriptors(q.id)
		if q.limit {
			if l, err := proctree.Limits(proc, q.id.PID); err == nil {
				a.limit, a.limits = l.Descriptors, &l
			}
			free, err := proctree.Capable(proc, q.id.PID, proctree.CapIPCLock)
			a.locks = free || err != nil
		}
	}
	return a
}

// Read takes in the processes of a full read, which have their roles, asks for what is due
// and returns the limits as they were read last. Where there is no trainer, the /dev/shm of
// command is read; loads says that the loader hook runs in one.
func (c *Counts) Read(now time.Duration, procs []rss.Proc, command int, loads bool) []event.Limit {
	c.takeCounts()
	c.schedule.update(now, procs)
	c.askCounts(now)
	return append(c.ofProcesses(now), c.shared.update(now, Sharers(procs, command), loads)...)
}

func (c *Counts) Ask(now time.Duration) {
	c.askCounts(now)
	c.shared.ask(now)
}

func (c *Counts) askCounts(now time.Duration) {
	if c.processes == nil || c.processes.Busy() {
		return
	}
	_, wake := c.schedule.hot(now)
	if asks := c.schedule.due(now); len(asks) > 0 {
		c.processes.Ask(asks, wake)
	}
}

// takeCounts takes in what was counted, and says whether anything was.
func (c *Counts) takeCounts() bool {
	answers, ok := c.processes.Take()
	for _, a := range answers {
		c.schedule.done(a)
	}
	return ok
}

// Take takes in what was read since the last call and asks for what is due next. It returns
// the limits that were read; ok is false where there was no answer.
func (c *Counts) Take(clock func() time.Duration) (fresh []event.Limit, ok bool) {
	if c.shared.taken() {
		c.shared.ask(clock())
		fresh, ok = append(fresh, c.shared.limits...), true
	}
	if c.takeCounts() {
		now := clock()
		c.askCounts(now)
		fresh, ok = append(fresh, c.ofProcesses(now)...), true
	}
	return fresh, ok
}

// Busy says that an answer was not taken yet: it may still be on its way.
func (c *Counts) Busy() bool { return c.processes.Busy() || c.shared.Busy() }

// Next is how long after now the caller is to ask again; false where that can wait for the
// next full read.
func (c *Counts) Next(now time.Duration) (pause time.Duration, ok bool) {
	if c.processes != nil && !c.processes.Busy() {
		pause, ok = c.schedule.hot(now)
	}
	if shared, due := c.shared.next(now); due && (!ok || shared < pause) {
		pause, ok = shared, true
	}
	return pause, ok
}

// Hurry has a process counted often until a time: its hook said that it is about to map or open
// many at once.
func (c *Counts) Hurry(pid int, until time.Duration) {
	if c.schedule.hurries == nil {
		c.schedule.hurries = map[int]time.Duration{}
	}
	c.schedule.hurries[pid] = until
}

// Of returns the last counts of a process, 0 for what was not read.
func (c *Counts) Of(id rss.ProcID) (maps, fds int) {
	if e := c.schedule.entries[id]; e != nil {
		return e.tallies[kindMaps].n, e.tallies[kindFDs].n
	}
	return 0, 0
}

// A warning must not wait for a count that may come too late: a process that takes
// mappings by the ten thousand holds the lock that counting needs.
const (
	aheadFor  = 2 * time.Second
	aheadFrom = quickShare // of the limit, below which a burst is no news
	// FullSoon is how soon the limit must be reached at that pace: else there is time
	// for another count.
	FullSoon = 4 * time.Second
)

// Ahead is how much a limit on numbers grows by until the next count, at the pace of the
// process that is nearest to it; 0 for other limits, and where it grows slowly.
func (c *Counts) Ahead(l *event.Limit) rss.Bytes {
	if l.Ratio() < aheadFrom || l.Ratio() >= event.NearShare {
		return 0
	}
	t, pace := c.paceOf(l)
	if t == nil || t.filled(float64(t.limit), pace) > FullSoon {
		return 0
	}
	// To the first warning and no further: from there on it is counted often.
	return min(rss.Bytes(pace*aheadFor.Seconds()), l.Limit.Scale(event.NearShare).Sub(l.Used)+1)
}

// Pace is how many come a second in the process that is nearest to a limit on mappings or
// descriptors; 0 for other limits.
func (c *Counts) Pace(l *event.Limit) float64 {
	_, pace := c.paceOf(l)
	return pace
}

func (c *Counts) paceOf(l *event.Limit) (t *tally, pace float64) {
	kind := kindMaps
	switch l.Name {
	case event.LimitMaps:
	case event.LimitFDs:
		kind = kindFDs
	default:
		return nil, 0
	}
	for _, e := range c.schedule.entries {
		if e.proc.ID.PID == l.PID {
			t = &e.tallies[kind]
			return t, t.pace(kind, e)
		}
	}
	return nil, 0
}

// Count is what one process has, and may have; 0 for what is not known.
type Count struct {
	ID                         rss.ProcID
	Maps, FDs, MaxMaps, MaxFDs int
}

func (c *Counts) All() []Count {
	all := make([]Count, 0, len(c.schedule.entries))
	for _, e := range c.schedule.entries {
		maps, fds := &e.tallies[kindMaps], &e.tallies[kindFDs]
		all = append(all, Count{e.proc.ID, maps.n, fds.n, int(maps.limit), int(min(fds.limit, math.MaxInt32))})
	}
	return all
}

// ofProcesses returns each limit on one process as read in the process that is nearest to
// it. A limit that was not counted yet is not among them.
func (c *Counts) ofProcesses(now time.Duration) []event.Limit {
	var all fullestLimits
	for _, e := range c.schedule.entries {
		for kind := range Kind(kinds) {
			t := &e.tallies[kind]
			if !t.known || t.limit == 0 {
				continue
			}
			l := limitOf[kind](&e.proc, uint64(t.n), t.limit)
			if age := (now - t.at).Seconds(); age >= 1 {
				l.Age = age
			}
			all.offer(l)
		}
		if e.limits != nil {
			r := *e.limits
			if age := (now - e.tallies[kindFDs].limitAt).Seconds(); age >= 1 {
				r.Age = age
			}
			all.offerResources(&e.proc, r, e.locks)
		}
	}
	return all.limits()
}

var limitOf = [kinds]func(p *rss.Proc, n, most uint64) event.Limit{maps, descriptors}

// maps is how many memory mappings a process has, and may have by vm.max_map_count. Memory of
// Python's and PyTorch's own takes few; files, threads and tensors that were sent to another
// process take one each, or more.
func maps(p *rss.Proc, n, most uint64) event.Limit {
	return event.OfProcess(event.LimitMaps, p, n, most, "kernel, by ENOMEM of mmap", "lines of /proc/PID/maps", "vm.max_map_count")
}

// descriptors is how many descriptors a process has open, and may have by its
// soft RLIMIT_NOFILE.
func descriptors(p *rss.Proc, n, most uint64) event.Limit {
	return event.OfProcess(event.LimitFDs, p, n, most, "kernel, by EMFILE of open", "/proc/PID/fd", "soft RLIMIT_NOFILE of /proc/PID/limits")
}

// fullestLimits keeps each limit on one process as read in the process that is nearest to it.
type fullestLimits struct{ list []event.Limit }

func (f *fullestLimits) offer(l event.Limit) {
	i := slices.IndexFunc(f.list, func(o event.Limit) bool { return o.Name == l.Name })
	if i < 0 {
		f.list = append(f.list, l)
	} else if s, best := l.Ratio(), f.list[i].Ratio(); s > best || s == best && l.PID < f.list[i].PID {
		f.list[i] = l // of two that are as full the one with the lower PID, at every look
	}
}

// offerResources takes in the limits on numbers that p has already, by its rlimits.
// locks says that it is exempt from that on locked memory, or may be.
func (f *fullestLimits) offerResources(p *rss.Proc, r rss.ResourceLimits, locks bool) {
	if locks {
		r.LockedMemory = rss.Unlimited
	}
	for l := range event.LimitsOf(p, &r) {
		f.offer(l)
	}
}

func (f *fullestLimits) limits() []event.Limit {
	slices.SortFunc(f.list, func(a, b event.Limit) int {
		return cmp.Compare(slices.Index(event.Limits, a.Name), slices.Index(event.Limits, b.Name))
	})
	return f.list
}

// OfProcesses counts in all of these processes, whatever it costs, and returns the
// fullest reading of each limit on one process. It waits for mmap_lock of each.
func OfProcesses(proc string, procs []rss.Proc) []event.Limit {
	c := proctree.NewCounter(proc)
	defer c.Close()
	var f fullestLimits
	for i := range procs {
		p := &procs[i]
		for kind := range Kind(kinds) {
			a := countQuestion{id: p.ID, kind: kind, limit: true}.read(c, proc)
			if a.err == nil && a.limit > 0 {
				f.offer(limitOf[kind](p, uint64(a.count.N), a.limit))
			}
			if a.limits != nil {
				f.offerResources(p, *a.limits, a.locks)
			}
		}
	}
	return f.limits()
}
