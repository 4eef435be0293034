package counts

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

type Kind int

const (
	kindMaps Kind = iota // against vm.max_map_count
	kindFDs              // against RLIMIT_NOFILE
	kinds    = iota
)

// schedule decides whose maps and descriptors are counted next. It reads nothing and has
// no clock. Trainers, workers and the few processes with the most RSS are counted when they
// are first seen, then as often as [tally.pause] says, as far as the budget of the kind
// reaches.
type schedule struct {
	entries map[rss.ProcID]*entry
	at      time.Duration         // of the last look
	hurries map[int]time.Duration // by PID: counted often until then
	buckets [kinds]probe.Bucket
	calls   []dueCount // of the last look; its room is kept
}

// dueCount is a count that is due, and how urgently: 1 is when its pause ends.
type dueCount struct {
	e      *entry
	kind   Kind
	urgent float64
}

// entry is one process that is counted, or was lately.
type entry struct {
	proc    rss.Proc      // as it was in the last look
	rising  float64       // of VmSize between the last two looks, in bytes a second
	hurried bool          // the hook said that its number is about to grow
	first   time.Duration // when it was first among those to be counted
	wanted  time.Duration // … and when last
	seen    bool
	tallies [kinds]tally
	limits  *rss.ResourceLimits // nil where they were not read
	nearest float64             // how near the process was to one of them
	locks   bool                // it has CAP_IPC_LOCK: RLIMIT_MEMLOCK does not hold
}

// hangs says that counting its mappings may take for ever: a process in state D may hold
// mmap_lock for long. One that maps more from look to look does not.
func (e *entry) hangs() bool { return e.proc.State == 'D' && e.rising == 0 }

const (
	// fullest is how many processes are counted for their RSS alone, whatever
	// their role.
	fullest = 8
	// keptFor is how long the counts of a process are kept that is none of
	// these any more.
	keptFor = time.Minute
	// leastPages is the least growth of VmSize from which mappings a page are worked out.
	leastPages = 256
	// hurriedPause is the pause for a process whose number is about to grow.
	hurriedPause = 100 * time.Millisecond
	// limitHolds is how long a limit that is far is not read again.
	limitHolds = time.Minute
)

func (c *schedule) update(now time.Duration, procs []rss.Proc) {
	if c.entries == nil {
		c.entries = map[rss.ProcID]*entry{}
	}
	for _, e := range c.entries {
		e.seen = false
	}
	least, alike := nthRSS(procs)
	since := (now - c.at).Seconds()
	c.at = now
	for i := range procs {
		p := &procs[i]
		e := c.entries[p.ID]
		large := p.RSS > least
		if p.RSS == least && alike > 0 {
			large, alike = p.RSS > 0, alike-1
		}
		hurried := c.hurries[p.ID.PID] > now
		wanted := large || hurried || p.Role == rss.RoleTrainer || p.Role.IsWorker()
		if e == nil && !wanted {
			continue
		}
		if e == nil {
			e = &entry{first: now}
			c.entries[p.ID] = e
		}
		if wanted {
			e.wanted = now
		}
		if execed(&e.proc, p) {
			*e = entry{first: now, wanted: e.wanted}
		}
		e.rising = 0
		if since > 0 && e.proc.Virtual > 0 {
			e.rising = float64(p.Virtual.Sub(e.proc.Virtual)) / since
		}
		e.seen, e.hurried, e.proc = true, hurried, *p
	}
	for id, e := range c.entries {
		if !e.seen || now-e.wanted > keptFor {
			delete(c.entries, id)
		}
	}
	for pid, until := range c.hurries {
		if until <= now {
			delete(c.hurries, pid)
		}
	}
}

// execed says that a process seems to have called execve(2) between two looks: it has another
// name, or less than half of its address space. A shell sets limits right before.
func execed(was, is *rss.Proc) bool {
	return was.Comm != "" && (is.Comm != was.Comm || is.Virtual < was.Virtual/2)
}

// fill adds to the buckets, at the share of a core that what is nearest to its limit allows.
func (c *schedule) fill(now time.Duration) {
	for kind := range c.buckets {
		shares := bucketShares[kind]
		share := shares.rest
		for _, e := range c.entries {
			if t := &e.tallies[kind]; e.hurried || t.presses(Kind(kind), e) {
				share = shares.rush
				break
			} else if t.near() {
				share = shares.near
			}
		}
		b := &c.buckets[kind]
		b.Most, b.Share = min(bucketHolds, time.Duration(share*float64(bucketSpan))), share
		b.Fill(now)
	}
}

// hot is how long after now the next count is due that must not wait for the next
// read; false where there is none.
func (c *schedule) hot(now time.Duration) (pause time.Duration, ok bool) {
	for _, e := range c.entries {
		if e.wanted != c.at || e.proc.State == 'Z' || e.proc.State == 'X' {
			continue
		}
		for kind := range Kind(kinds) {
			t := &e.tallies[kind]
			p := t.pause(kind, e)
			if t.busy || !t.known && !e.hurried || p >= quickPause || kind == kindMaps && e.hangs() {
				continue
			}
			if due := max(t.asked+p-now, c.buckets[kind].Dry(), 0); !ok || due < pause {
				pause, ok = due, true
			}
		}
	}
	return pause, ok
}

// nthRSS is the RSS above which a process is one of the fullest, and how many
// that have just as much are: a thousand may be alike.
func nthRSS(procs []rss.Proc) (least rss.Bytes, alike int) {
	var top [fullest]rss.Bytes // descending
	for i := range procs {
		r := procs[i].RSS
		for j := range top {
			if r > top[j] {
				r, top[j] = top[j], r
			}
		}
	}
	least = top[fullest-1]
	for _, r := range top {
		if r == least {
			alike++
		}
	}
	return least, alike
}

// due returns what to count now: all that is due, the longest overdue for its pause
// first, as far as the buckets reach by what each count took last.
func (c *schedule) due(now time.Duration) []countQuestion {
	c.fill(now)
	calls := c.calls[:0]
	for _, e := range c.entries {
		if e.wanted != c.at || e.proc.State == 'Z' || e.proc.State == 'X' {
			continue
		}
		for kind := range Kind(kinds) {
			if kind == kindMaps && e.hangs() || c.buckets[kind].Fill(now) <= 0 {
				continue
			}
			t := &e.tallies[kind]
			urgent := 1 + (now - e.first).Seconds()
			if t.known || t.failed {
				pause := t.pause(kind, e)
				urgent = float64(now-t.asked+min(Tolerance, pause/4)) / float64(pause)
			}
			if !t.busy && urgent >= 1 {
				calls = append(calls, dueCount{e, kind, urgent})
			}
		}
	}
	c.calls = calls
	slices.SortFunc(calls, func(a, b dueCount) int {
		return cmp.Or(cmp.Compare(b.urgent, a.urgent), cmp.Compare(b.e.proc.RSS, a.e.proc.RSS), cmp.Compare(a.e.proc.ID.PID, b.e.proc.ID.PID), cmp.Compare(a.kind, b.kind))
	})
	var asks []countQuestion
	var spent [kinds]time.Duration
	for _, k := range calls {
		if spent[k.kind] >= c.buckets[k.kind].Fill(now) {
			continue
		}
		t := &k.e.tallies[k.kind]
		spent[k.kind] += t.likely(k.kind)
		stale := t.limit == 0 || now-t.limitAt >= limitHolds || t.share() >= event.NearShare || k.kind == kindFDs && k.e.nearest >= event.NearShare
		if stale {
			t.limitAt = now
		}
		asks = append(asks, countQuestion{id: k.e.proc.ID, kind: k.kind, limit: stale})
		t.busy, t.asked, t.askedVirtual = true, now, k.e.proc.Virtual
	}
	return asks
}

func (c *schedule) done(r countAnswer) {
	c.buckets[r.ask.kind].Spend(r.count.Cost)
	e := c.entries[r.ask.id]
	if e == nil || !e.tallies[r.ask.kind].busy { // its process is gone
		return
	}
	t := &e.tallies[r.ask.kind]
	t.busy, t.failed = false, r.err != nil
	if r.limit > 0 {
		t.limit = r.limit
	}
	if r.limits != nil {
		e.limits, e.locks, e.nearest = r.limits, r.locks, 0
		for l := range event.LimitsOf(&e.proc, r.limits) {
			e.nearest = max(e.nearest, l.Ratio())
		}
	}
	if r.err != nil {
		return
	}
	t.rate = 0
	if passed := (t.asked - t.at).Seconds(); t.known && passed > 0 {
		t.rate = max(float64(r.count.N-t.n)/passed, 0)
	}
	if pages := float64(t.askedVirtual.Sub(t.virtual) / leastMap); t.known && pages >= leastPages {
		t.perPage = min(max(float64(r.count.N-t.n)/pages, 0), 1)
	}
	t.n, t.at, t.virtual, t.cost, t.known = r.count.N, t.asked, t.askedVirtual, r.count.Cost, true
}

// tally is the last count of one kind in one process.
type tally struct {
	n       int
	at      time.Duration // when that was
	virtual rss.Bytes     // VmSize of /proc/PID/status then
	rate    float64       // growth a second since the count before; 0 for fewer
	perPage float64       // growth for each page that VmSize grew by, at most 1
	cost    time.Duration
	known   bool
	failed  bool // the last one did

	busy         bool          // one is under way
	asked        time.Duration // when the last one was asked for
	askedVirtual rss.Bytes

	limit   uint64 // 0 where it is not known
	limitAt time.Duration
}

func (t *tally) share() float64 {
	if t.limit == 0 {
		return 0
	}
	return float64(t.n) / float64(t.limit)
}

const (
	mapsRest = 30 * time.Second
	// mapsStill is the pause for mappings below stillShare of the limit in a process
	// whose VmSize has not changed since the last count: only mprotect and the like
	// can have split them.
	mapsStill  = 2 * time.Minute
	stillShare = 0.1
	quickPause = time.Second
	nearPause  = 250 * time.Millisecond
	// fullPause is the pause near the limit where nothing says that there may be
	// more: counting 60,000 mappings takes 10 ms.
	fullPause = 2 * time.Second
	// fdRest is the pause for descriptors where they are cheap: a table of 1,024
	// is full sooner than one of 65,530. Of processes without a role, which a
	// training job's descriptors seldom run out in, it is fdOther.
	fdRest  = time.Second
	fdOther = 10 * time.Second
	fdCheap = 50 * time.Microsecond
	// retryPause is how long a process that could not be counted is left alone.
	retryPause = time.Minute
	quickShare = 0.5
	// soonFull is within what time a limit that would be reached at the rate seen
	// counts as near, rushFull within what time it must be counted whatever that
	// costs: 60,000 mappings may come within 6 s.
	soonFull = 2 * time.Minute
	rushFull = 15 * time.Second
	// leastPause is the least pause, and pauseShare the part of the time that is
	// left before event.NearShare, or before the limit, after which is counted again.
	leastPause = 50 * time.Millisecond
	pauseShare = 4
	// leastMap is the least that a mapping adds to VmSize. Mappings can grow in
	// number without it (mprotect splits them): then mapsStill finds them.
	leastMap = 4 * rss.KiB
)

// mayHaveMore says that the number may have grown: VmSize has, see [leastMap]. For
// descriptors the last growth is the only sign.
func (t *tally) mayHaveMore(kind Kind, e *entry) bool {
	if kind == kindMaps {
		return e.proc.Virtual > t.virtual
	}
	return t.rate > 0
}

// presses says that it must be counted whatever that costs: much is used, and more comes.
func (t *tally) presses(kind Kind, e *entry) bool {
	return t.rushes(kind, e) || t.share() >= quickShare && kind == kindMaps && e.rising > 0
}

// near says that the limit is near, or may be soon.
func (t *tally) near() bool {
	left := float64(t.limit) - float64(t.n)
	return t.known && t.limit > 0 && (t.share() >= event.NearShare || t.rate*soonFull.Seconds() >= left)
}

// filled is how long it takes to reach n at a rate, [never] without one.
func (t *tally) filled(n, rate float64) time.Duration {
	left := n - float64(t.n)
	if !t.known || t.limit == 0 || rate <= 0 || left > rate*soonFull.Seconds() {
		return never
	}
	return time.Duration(max(left, 0) / rate * float64(time.Second))
}

const never = time.Duration(math.MaxInt64)

// pace is how many come a second: as counted, or more where VmSize grows faster
// since, as far as its growth was mappings before. A large allocation is one.
func (t *tally) pace(kind Kind, e *entry) float64 {
	if kind != kindMaps {
		return t.rate
	}
	return max(t.rate, e.rising/float64(leastMap)*t.perPage)
}

// rushes says that the limit may be reached so soon that only a count now warns in time.
func (t *tally) rushes(kind Kind, e *entry) bool {
	return t.filled(float64(t.limit), t.pace(kind, e)) <= rushFull
}

// pause is how long after one count the next is due.
func (t *tally) pause(kind Kind, e *entry) time.Duration {
	if t.failed {
		return retryPause
	}
	rate := t.pace(kind, e)
	next := float64(t.limit)
	if t.share() < event.NearShare {
		next *= event.NearShare
	}
	pause := min(t.usual(kind, e), max(t.filled(next, rate)/pauseShare, leastPause))
	if e.hurried && rate == 0 {
		pause = min(pause, hurriedPause)
	}
	return pause
}

// usual is the pause while the limit is not about to be reached.
func (t *tally) usual(kind Kind, e *entry) time.Duration {
	switch {
	case t.share() >= event.NearShare && t.mayHaveMore(kind, e):
		return nearPause
	case t.near(), t.share() >= quickShare && t.mayHaveMore(kind, e):
		return quickPause
	case t.share() >= event.NearShare:
		return fullPause
	case kind == kindFDs && t.cost <= fdCheap:
		if e.proc.Role == rss.RoleTrainer || e.proc.Role.IsWorker() {
			return fdRest
		}
		return fdOther
	case kind == kindMaps && t.limit > 0 && e.proc.Virtual == t.virtual && t.share() < stillShare:
		return mapsStill
	case kind == kindMaps && t.limit > 0:
		// By as many as make a tenth of what is left, at least.
		left := rss.Bytes(t.limit).Sub(rss.Bytes(t.n))
		if e.proc.Virtual.Sub(t.virtual)/leastMap > left/10 {
			return quickPause
		}
	}
	return mapsRest
}

// likely is what a count takes, by the last one.
func (t *tally) likely(kind Kind) time.Duration {
	switch {
	case t.cost > 0:
		return t.cost
	case kind == kindMaps:
		return time.Millisecond // 3,000 mappings, as Python with torch has
	}
	return 10 * time.Microsecond
}

// bucketShares are shares of a core: where nothing is near its limit, where something
// is, and where it is about to be reached.
var bucketShares = [kinds]struct{ rest, near, rush float64 }{
	kindMaps: {0.001, 0.01, 0.5},
	kindFDs:  {0.0001, 0.005, 0.05},
}

// bucketHolds is the most that a bucket holds: what counting takes at a job's start. It
// holds no more than its share of bucketSpan, or that of descriptors would last minutes.
const (
	bucketHolds = 30 * time.Millisecond
	bucketSpan  = 30 * time.Second
)
