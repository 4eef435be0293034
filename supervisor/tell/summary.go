package tell

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Summary is what is remembered of a whole run, for its last lines and the exit event.
type Summary struct {
	Watched bool         // by this watcher, from the start
	Led     bool         // another led at first
	Stopped bool         // our stop ended the command
	Ranks   int          // the most that were watched together
	Saved   event.Ledger // what was done
	treeSeen
	limitsSeen
	sharing sharing
	endedBy string // the rule that stopped or requeued the job
	grown   map[event.LimitID]growthAtPeak
	asked   string // the last signal from outside that asks for an end, and when it came
	askedAt time.Duration
	whole   event.Mapped
	told    rss.Bytes // … the sum of its sizes as noted last
	replaced
}

// See takes in each full read for the summary and the status.
func (f *Fan) See(v *view.View) {
	f.Status.growth.add(v)
	f.Sum.Peak(&v.Sample, v.Limits, f.Readers.Pace)
	f.Sum.Grew(v, &f.Status.growth)
	f.Sum.Apart(&v.Sample, v.Limits, f.Readers.Outside)
}

// growthAtPeak is how fast a limit grew as it reached its highest use.
type growthAtPeak struct {
	used rss.Bytes
	rate float64 // bytes a second
	at   time.Duration
}

// Grew takes in how fast the limits grow that are at their highest use.
func (s *Summary) Grew(v *view.View, measured *growth) {
	if s.grown == nil {
		s.grown = map[event.LimitID]growthAtPeak{}
	}
	for i := range v.Limits {
		l := &v.Limits[i]
		if rate := measured.ofLimit(l.ID()); rate != nil && l.Used > s.grown[l.ID()].used {
			s.grown[l.ID()] = growthAtPeak{l.Used, *rate, v.Now}
		}
	}
}

// treeSeen is what was seen of the processes.
type treeSeen struct {
	peaks event.Peaks
	// elsewhere is the most memory of the tree that a cgroup did not count, by its
	// directory.
	elsewhere map[string]rss.Bytes
	uncounted map[string]rss.Bytes // … in the last sample
	unread    int                  // the most processes at a time that could not be read
	looks     int                  // samples that had the tree
	// members are those of the last look. left says that a process of the tree ended
	// while the command ran on, seen before or not.
	members []rss.ProcID
	left    bool
}

// limitsSeen is how near the limits came.
type limitsSeen struct {
	// nearest is the reading that came nearest to its limit.
	nearest *event.Limit
	// ends is that of the limits by which Slurm or the kernel ends the job.
	ends *event.Limit
	// jobSum is the fullest reading of slurmd's limit on all steps of the job, and overAt
	// when they last had more than that. cancelled says that slurmstepd's SIGTERM came
	// shortly after, and not at the job's end.
	jobSum    *event.Limit
	overAt    time.Duration
	cancelled bool
	// node is the fullest reading of the node's memory, where that is a limit.
	node *event.Limit
	// tails holds how each limit stood lately that is none on memory that is summed.
	tails map[event.LimitName]*sideTail
}

// peak is the reading that came nearest to its limit so far, without one that of the node.
func (s *limitsSeen) peak() *event.Limit { return cmp.Or(s.nearest, s.node) }

// sharing is what a DataLoader was about to send to its workers, the last.
type sharing struct {
	what *event.Sharing
	pid  int
	at   time.Duration
}

// Loader takes in what a loader said: that it is about to send something, or has.
func (s *Summary) Loader(now time.Duration, r *loader.Said) {
	switch {
	case r.What == event.LoaderIter && s.sharing.pid == r.PID:
		s.sharing.what = nil
	case r.What == event.LoaderPickling && r.Sharing != nil:
		s.sharing = sharing{r.Sharing, r.PID, now}
	}
}

// Takes implements [Sink]: the ledger is fed by the events that a record has.
func (s *Summary) Takes(name event.Name) bool { return name != event.NameSample }

// Event implements [Sink].
func (s *Summary) Event(_ event.Name, v any) {
	switch v := v.(type) {
	case event.Decision:
		s.Saved.Decided(v.Time, &v)
		if v.Action.Row().Ends {
			s.endedBy = v.Rule
		}
	case event.Outcome:
		s.Saved.Finished(v.Time, &v)
	case countOutcome:
		s.Saved.Finished(v.Time, &v.Outcome)
	case event.LoaderSaid:
		s.Saved.Said(&v)
		if v.What == event.LoaderRecycled {
			s.recycled(v.Worker)
		}
	}
}

// replaced is what recycled workers had that fresh ones do not.
type replaced struct {
	workers map[int]*workerAnon // by PID
	n       int                 // how many were recycled
	own     rss.Bytes           // RssAnon beyond what they began with
}

type workerAnon struct {
	began, most rss.Bytes
	look        int // the last that had it
}

// looksKept is for how many looks a worker is remembered that has ended: the report that it
// was recycled may come later.
const looksKept = 100

func (r *replaced) see(sample *rss.Sample, look int) {
	for i := range sample.Procs {
		p := &sample.Procs[i]
		if !p.Role.IsWorker() {
			continue
		}
		w := r.workers[p.ID.PID]
		if w == nil {
			if r.workers == nil {
				r.workers = map[int]*workerAnon{}
			}
			w = &workerAnon{began: p.Anon}
			r.workers[p.ID.PID] = w
		}
		w.most, w.look = max(w.most, p.Anon), look // a zombie has none
	}
	if look%looksKept == 0 {
		maps.DeleteFunc(r.workers, func(_ int, w *workerAnon) bool { return look-w.look > looksKept })
	}
}

func (r *replaced) recycled(pid int) {
	if w := r.workers[pid]; w != nil {
		r.n++
		r.own += w.most.Sub(w.began)
	}
}

// mapped takes in what a limit on summed pages would count if workers had all in memory that
// they have mapped of files: that is what trims keep away. UsedMax has what it would be with
// all pages copied too that a fork shares: that is what recycles keep away.
func (s *Summary) mapped(sample *rss.Sample, l *event.Limit) {
	var all, most, private, file rss.Bytes
	workers := 0
	for i := range sample.Procs {
		p := &sample.Procs[i]
		private, file = private+p.Anon, max(file, p.File+p.Shmem, p.FileMost+p.Shmem)
		if p.Role.IsWorker() && p.FileMost > 0 {
			left := p.FileMost.Sub(p.File)
			all, most = all+left, max(most, left)
			s.whole.Each = max(s.whole.Each, p.FileMost)
			workers++
		}
	}
	s.whole.Workers = max(s.whole.Workers, workers)
	switch l.Accounting {
	case event.AccountingRSS:
		private = 0
	case event.AccountingPSS:
		all = most // the others map the same
		private += file
	case event.AccountingCgroup:
		all = 0
	default:
		all, private = 0, 0
	}
	i := slices.IndexFunc(s.whole.Limits, func(w event.Limit) bool { return w.ID() == l.ID() })
	if i < 0 {
		i = len(s.whole.Limits)
		s.whole.Limits = append(s.whole.Limits, event.Limit{Name: l.Name, Scope: l.Scope, Accounting: l.Accounting, Level: l.Level})
	}
	w := &s.whole.Limits[i]
	w.Used = max(w.Used, l.Used+all)
	w.UsedMax = max(w.Used, w.UsedMax, private)
}

// noteMapped notes how far pages of files can grow, where that has risen by a hundredth since
// it was noted last.
func (s *Summary) noteMapped(out *events) {
	var sum rss.Bytes
	for _, m := range s.whole.Limits {
		sum += m.Used
	}
	if s.whole.Each == 0 || sum.Sub(s.told) <= s.told/100 {
		return
	}
	s.told = sum
	out.Note(event.NameMapped, func(h event.Head) any {
		e := s.whole
		e.Head, e.Limits = h, slices.Clone(e.Limits)
		return e
	})
}

// Peak takes in one sample. pace is by how many a second a limit on numbers is known
// to be approached, 0 for the others.
func (s *Summary) Peak(sample *rss.Sample, limits []event.Limit, pace func(*event.Limit) float64) {
	var sum, noshared rss.Bytes
	var pss rss.PSSSum
	known := true
	s.meet(sample.Procs)
	s.see(sample, s.looks)
	s.unread = max(s.unread, sample.Gaps.Denied+sample.Gaps.Malformed)
	for i := range sample.Procs {
		p := &sample.Procs[i]
		sum += p.RSS
		noshared += p.NoShared()
		pss.Add(p)
		known = known && (p.PSS != nil || p.RSS == 0)
	}
	if sum > 0 {
		s.mapped(sample, &event.Limit{Accounting: event.AccountingRSS, Used: sum})
		raise(&s.peaks.RSS, sum)
		raise(&s.peaks.NoShared, noshared)
		if known {
			least, _ := pss.Range() // what was read before a fork is not all there after it
			raise(&s.peaks.PSS, least)
		}
	}
	// Of several levels the innermost: others' jobs may count in those above.
	var inner *event.Limit
	for i := range limits {
		l := &limits[i]
		if l.Name == event.LimitCgroup && (inner == nil || len(l.Level) > len(inner.Level)) {
			inner = l
		}
		// The node is everybody's: it is no measure of this job.
		if l.Limit > 0 && l.Name == event.LimitNode {
			s.node = nearer(s.node, l)
		}
		if l.Limit == 0 || l.Name == event.LimitNode || l.Name == event.LimitThrottle {
			continue
		}
		if !l.Name.Memory() {
			s.late(l, sample.Mono, pace(l))
			continue
		}
		s.nearest = nearer(s.nearest, l)
		s.mapped(sample, l)
		if l.ByJobSum() {
			s.jobSum = nearer(s.jobSum, l)
			if l.UsedMax > l.Limit {
				s.overAt = sample.Mono
			}
		}
		if l.Name != event.LimitUser {
			s.ends = nearer(s.ends, l)
		}
	}
	if inner != nil {
		raise(&s.peaks.Cgroup, inner.Used)
	}
}

// apartShare is the share of a limit's use from which on memory that it does not count
// matters.
const apartShare = 1.0 / 16

// Apart takes in how much of the tree's memory each cgroup does not count: what
// processes have that are in another one, or have brought with them. What one process
// has in anonymous pages is charged once, whatever it shares. Two samples in a row must
// say so: one process may end between the two counters. outside is the RSS of the tree
// outside of a limit.
func (s *Summary) Apart(sample *rss.Sample, limits []event.Limit, outside func(*event.Limit, *rss.Sample) rss.Bytes) {
	var anon rss.Bytes // of the largest
	for i := range sample.Procs {
		anon = max(anon, sample.Procs[i].Anon)
	}
	was := s.uncounted
	s.uncounted = make(map[string]rss.Bytes, len(was))
	other := func(l *event.Limit, n rss.Bytes) {
		if l.Name != event.LimitCgroup || n <= max(l.Charged.Scale(apartShare), 16*rss.MiB) {
			return
		}
		s.uncounted[l.Level] = max(n, s.uncounted[l.Level])
		if n = min(n, was[l.Level]); n <= s.elsewhere[l.Level] {
			return
		}
		if s.elsewhere == nil {
			s.elsewhere = map[string]rss.Bytes{}
		}
		s.elsewhere[l.Level] = n
	}
	// A limit that came near earlier may be that of a cgroup which is gone by now.
	for _, l := range []*event.Limit{s.nearest, s.ends} {
		if l != nil {
			other(l, outside(l, sample))
		}
	}
	for i := range limits {
		l := &limits[i]
		other(l, max(outside(l, sample), anon.Sub(l.Charged)))
	}
}

// meet takes in who is in the tree, the command first, the others by PID. One that has
// ended and waits for its parent has left too.
func (s *treeSeen) meet(procs []rss.Proc) {
	if len(procs) == 0 || len(s.members) > 0 && s.members[0] != procs[0].ID {
		return // the command has ended, and its children with it
	}
	s.looks++
	if s.left {
		return
	}
	now := 0
	for _, id := range s.members {
		for now < len(procs) && procs[now].ID != id {
			now++
		}
		s.left = s.left || now == len(procs) || now > 0 && procs[now].State == 'Z'
	}
	s.members = s.members[:0]
	for i := range procs {
		s.left = s.left || procs[i].Reaped
		s.members = append(s.members, procs[i].ID)
	}
}

// nearer is a copy of l where it is fuller than the fullest so far.
func nearer(so, l *event.Limit) *event.Limit {
	if so != nil && l.Ratio() <= so.Ratio() {
		return so
	}
	c := *l
	return &c
}

const (
	// cancelWithin is how long before slurmd's cancel the job was seen over its memory, and
	// cancelAhead how long it may have grown unseen.
	cancelWithin = 30 * time.Second
	cancelAhead  = 2 * time.Second
	// nearEnd is how long before the job's end a SIGTERM counts as the time limit's.
	nearEnd = 5 * time.Second
)

// Term takes in a SIGTERM of slurmstepd's: of scancel, of the time limit, or of slurmd,
// which cancels a job whose steps have more than its memory together.
// perSecond is by how much a limit is approached.
func (s *limitsSeen) Term(now time.Duration, limits []event.Limit, perSecond func(*event.Limit) float64) {
	for i := range limits {
		l := &limits[i]
		if l.Name == event.LimitTime && l.ETA != nil && *l.ETA <= nearEnd.Seconds() {
			return
		}
		if l.ByJobSum() && float64(l.UsedMax)+perSecond(l)*cancelAhead.Seconds() > float64(l.Limit) {
			s.overAt = now
		}
	}
	if s.jobSum != nil && s.overAt > 0 && now-s.overAt <= cancelWithin {
		s.cancelled = true
	}
}

func raise(peak **rss.Bytes, v rss.Bytes) {
	if *peak == nil || v > **peak {
		*peak = &v
	}
}
