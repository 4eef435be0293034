package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// RankSeen is one rank over one run: that of the run itself, and with a leader's
// record every other of its node. Times are of the run, -1 where not known.
type RankSeen struct {
	RankKey
	Pid, holder int
	Comm        string
	own         bool // the run's own
	joined      time.Duration
	ended       time.Duration // negative while it is not known to have ended
	code        *int
	signal      *string

	// now is the sum of RSS of its processes in the sample at hand, peak the most.
	now, Peak    rss.Bytes
	PeakAt       time.Duration
	Seen         bool // it has processes in the record
	workers      int  // at most at a time
	workersInNow int
}

// known says that its end is known.
func (r *RankSeen) known() bool { return r.signal != nil || r.code != nil }

// failed says that it is known to have ended otherwise than with status 0.
func (r *RankSeen) failed() bool { return r.signal != nil || r.code != nil && *r.code != 0 }

// RanksSeen are the ranks of one run.
type RanksSeen struct {
	List []*RankSeen
	// of is the rank of each process, by index in run.Procs; -1 for none.
	of []int
	// led says that the record has ranks: it is a leader's. leads is when its
	// watcher took the lead, -1 where it does not say.
	led   bool
	leads time.Duration
}

// ranksOf finds the ranks of a run, and whose each process is. Rank events are few:
// they are read before the samples.
func ranksOf(r *record.Run) RanksSeen {
	l := RanksSeen{leads: -1}
	own := &RankSeen{own: true, joined: 0, ended: -1, Pid: r.Meta.Process.PID, holder: r.Meta.Holder}
	own.RankKey = RankKey{Task: -1, holder: r.Meta.Holder}
	if j := r.Meta.Job; j != nil {
		own.RankKey = RankKey{Step: j.Step, Task: j.Task}
	}
	l.List = append(l.List, own)
	for i := range r.Events {
		e, ok := r.Events[i].Value.(*event.Rank)
		if !ok {
			continue
		}
		l.led = true
		if e.What == event.RankLeads && l.leads < 0 && (e.Holder == 0 || e.Holder == r.Meta.Holder) {
			l.leads = r.Events[i].At
		}
		l.take(r.Events[i].At, e)
	}
	l.assign(r)
	return l
}

// Led says that the record has ranks, Failed that one is known to have failed.
func (l *RanksSeen) Led() bool    { return l.led }
func (l *RanksSeen) Failed() bool { return slices.ContainsFunc(l.List, (*RankSeen).failed) }

func RankOf(e *event.Rank) RankKey {
	if e.Task < 0 {
		return RankKey{e.Step, -1, e.Holder}
	}
	return RankKey{Step: e.Step, Task: e.Task}
}

func (l *RanksSeen) find(key RankKey) *RankSeen {
	i := slices.IndexFunc(l.List, func(r *RankSeen) bool { return r.RankKey == key })
	if i < 0 {
		return nil
	}
	return l.List[i]
}

func (l *RanksSeen) take(at time.Duration, e *event.Rank) {
	key := RankOf(e)
	r := l.find(key)
	if r == nil {
		if len(l.List) >= mostRanks {
			return
		}
		r = &RankSeen{RankKey: key, joined: at, ended: -1}
		l.List = append(l.List, r)
	}
	if e.PID != 0 {
		r.Pid = e.PID
	}
	if e.Holder != 0 {
		r.holder = e.Holder
	}
	if e.What == event.RankEnded {
		r.ended, r.code, r.signal = at, e.Code, e.Signal
	}
}

// mostRanks bounds the ranks of one run: steps may come by the thousand.
const mostRanks = 4096

// assign says of each process which rank it is of: the nearest ancestor that is a
// rank's command or holder. A PID that was used again is the one that was there
// when the child began.
func (l *RanksSeen) assign(r *record.Run) {
	l.of = make([]int, len(r.Procs))
	byPID := make(map[int][]int, len(r.Procs))
	for i := range r.Procs {
		l.of[i] = unassigned
		byPID[r.Procs[i].ID.PID] = append(byPID[r.Procs[i].ID.PID], i)
	}
	ranks := map[int]int{}
	for i, k := range l.List {
		for _, pid := range []int{k.holder, k.Pid} {
			if pid != 0 {
				ranks[pid] = i
			}
		}
	}
	for i := range r.Procs {
		if l.ours(r, i, byPID) {
			l.of[i] = noRank
			continue
		}
		l.of[i] = l.ancestor(r, i, byPID, ranks, 0)
		if n := l.of[i]; n >= 0 && l.List[n].Pid == r.Procs[i].ID.PID {
			l.List[n].Comm = r.Procs[i].Comm
		}
	}
}

// ours says that a process is rsswarden's: the record marks those of its own rank,
// the others are a rank's holder and what it starts by the same name, its watcher.
func (l *RanksSeen) ours(r *record.Run, i int, byPID map[int][]int) bool {
	p := &r.Procs[i]
	if p.Ours {
		return true
	}
	for _, k := range l.List {
		switch {
		case k.holder == 0 || p.ID.PID == k.Pid:
		case p.ID.PID == k.holder:
			return true
		case p.Parent == k.holder:
			return slices.ContainsFunc(byPID[k.holder], func(h int) bool { return r.Procs[h].Comm == p.Comm })
		}
	}
	return false
}

const (
	noRank     = -1
	unassigned = -2
	// deepest bounds the ancestors that are followed: a damaged record may have
	// them in a circle.
	deepest = 64
)

func (l *RanksSeen) ancestor(r *record.Run, i int, byPID map[int][]int, ranks map[int]int, depth int) int {
	p := &r.Procs[i]
	if n, ok := ranks[p.ID.PID]; ok {
		return n
	}
	if l.of[i] != unassigned {
		return l.of[i]
	}
	if n, ok := ranks[p.Parent]; ok {
		return n
	}
	parent := -1
	for _, j := range byPID[p.Parent] {
		if start := r.Procs[j].ID.Start; j != i && start <= p.ID.Start && (parent < 0 || start > r.Procs[parent].ID.Start) {
			parent = j
		}
	}
	if parent < 0 || depth == deepest {
		return noRank
	}
	return l.ancestor(r, parent, byPID, ranks, depth+1)
}

func (l *RanksSeen) begin() {
	for _, r := range l.List {
		r.now, r.workersInNow = 0, 0
	}
}

func (l *RanksSeen) add(u *record.Usage, p *record.Proc) {
	if n := l.of[u.Proc]; n >= 0 {
		r := l.List[n]
		r.now += u.RSS()
		r.Seen = true
		if p.Role.IsWorker() {
			r.workersInNow++
		}
	}
}

func (l *RanksSeen) end(at time.Duration) {
	for _, r := range l.List {
		if r.now > r.Peak {
			r.Peak, r.PeakAt = r.now, at
		}
		r.workers = max(r.workers, r.workersInNow)
	}
}

// most is the rank whose processes have most in the sample at hand, nil where none
// has anything.
func (l *RanksSeen) most() *RankSeen {
	var most *RankSeen
	for _, r := range l.List {
		if r.now > 0 && (most == nil || r.now > most.now) {
			most = r
		}
	}
	return most
}

// rankScan are the ranks of the node, and the records of those that led it before and after.
type rankScan struct {
	Ranks   RanksSeen
	Line    *record.Run // that of the first of the leaders that followed each other, nil for one without followers
	Follows bool        // what was before it is in another record
	Handing *Handover   // to another rank's record, nil where none goes on from this one
	fallen  *failedRank // the first rank but its own that failed
}

// failedRank is a rank that failed while the record of its node went on, and what
// there was to know then.
type failedRank struct {
	*RankSeen
	limitScans
}

// scanThen is the run as it was when the rank failed.
func (f *failedRank) scanThen(k *RunScan) *RunScan {
	c, run := *k, *k.Run
	run.Live = false // the rank's end is its own
	c.Run, c.limitScans = &run, f.limitScans
	c.End, c.exitAt = f.ended, f.ended
	c.Exit = &event.Exit{By: "command", Code: f.code, Signal: f.signal}
	if k.Exit != nil {
		c.Exit.Kernel, c.Exit.Binding = k.Exit.Kernel, k.Exit.Binding
	}
	c.Signals = slices.DeleteFunc(slices.Clone(k.Signals), func(s SignalSeen) bool { return s.At > f.ended })
	return &c
}

// rankEnded keeps the limits' use when the first rank failed whose end is
// not the record's: minutes later they say nothing of it any more.
func (k *RunScan) rankEnded(at time.Duration, e *event.Rank) {
	r := k.Ranks.find(RankOf(e))
	if r == nil || r.own || !e.Failed() || k.fallen != nil {
		return
	}
	f := &failedRank{r, k.limitScans}
	f.Limits = slices.Clone(k.Limits)
	for i := range f.Limits {
		f.Limits[i].spark = spark{} // goes on to be written
	}
	k.fallen = f
}

// Handover is how the record of a node goes on in another rank's.
type Handover struct {
	Next *RunScan
	At   time.Time     // when the next one's watcher took the lead
	gap  time.Duration // in which nothing was recorded
	lost bool          // the watcher or the holder before was gone, else its rank had ended
}

const (
	// handSlack is how much earlier than the end of a record another rank may
	// have taken the lead, by two clocks that are read one after the other.
	handSlack = time.Second
	// withIt is how soon after the last of its record a rank must have ended for
	// the record to tell why.
	withIt = 5 * time.Second
)

// handOver finds which records go on in another one of their node, and gives those
// that break off the end that the next one knows of.
func handOver(looks []*RunScan) {
	var led []*RunScan
	for _, k := range looks {
		if k.Ranks.led && k.Run.Meta.Job != nil {
			led = append(led, k)
		}
	}
	before := successions(led)
	for i, n := range before {
		led[i].Line = led[firstOf(before, i)].Run
		if n < 0 {
			continue
		}
		a, b := led[n], led[i]
		end, taken := a.Wall(a.End), b.Wall(b.from())
		a.Handing = &Handover{Next: b, At: taken, gap: taken.Sub(end), lost: a.Exit == nil || a.Exit.Code == nil && a.Exit.Signal == nil}
		b.Follows = a.Handing.whole(a)
		if a.Exit != nil {
			continue
		}
		r := b.Ranks.find(a.Ranks.List[0].RankKey)
		if r == nil || !r.known() {
			continue
		}
		if ended := b.Wall(r.ended); ended.Sub(end) <= withIt {
			a.Exit = &event.Exit{By: "command", Code: r.code, Signal: r.signal}
			a.exitAt = max(a.End, ended.Sub(a.Run.Meta.Start))
			a.End = a.exitAt
			if f := b.fallen; f != nil && f.RankSeen == r {
				b.fallen = nil // it is reported with the record that saw it
			}
		}
	}
}

// whole says that the two records have all of what was between: of other steps each is for
// itself.
func (h *Handover) whole(from *RunScan) bool {
	return h.gap <= withIt && jobName(from.Run) == jobName(h.Next.Run)
}

func leadChanges(looks []*RunScan, zone *time.Location) (out []LeadChange) {
	for _, k := range looks {
		h := k.Handing
		if h == nil {
			continue
		}
		from, to := k.Ranks.List[0], h.Next.Ranks.List[0]
		out = append(out, LeadChange{
			Node: k.Run.Meta.Node, Restart: k.Restarts(), FromStep: from.Step, From: from.Task, ToStep: to.Step, To: to.Task,
			Time: h.At.In(zone), Gap: max(h.gap.Seconds(), 0), Lost: h.lost,
		})
	}
	slices.SortStableFunc(out, func(a, b LeadChange) int { return a.Time.Compare(b.Time) })
	return out
}

// leaderPeriods cuts the record of a rank that led more than once where another rank led in
// between, into several that follow each other. Where no other is known to have led the
// record stays whole.
func leaderPeriods(runs []*record.Run) (out []*record.Run) {
	for _, r := range runs {
		from := time.Duration(math.MinInt64)
		leads := r.Leads()
		for i, at := range leads {
			if i > 0 && slices.ContainsFunc(runs, func(o *record.Run) bool { return o != r && ledBetween(o, r, leads[i-1], at) }) {
				part := r.Part(from, at)
				part.Live = false
				out = append(out, part)
				from = at
			}
		}
		if from != math.MinInt64 {
			r = r.Part(from, math.MaxInt64)
		}
		out = append(out, r)
	}
	return out
}

// ledBetween says that another rank of the same node and attempt took the lead between
// two moments of a run.
func ledBetween(other, r *record.Run, from, to time.Duration) bool {
	if r.Meta.Job == nil || other.Meta.Job == nil || other.Meta.Node != r.Meta.Node || jobOf(other) != jobOf(r) {
		return false
	}
	return slices.ContainsFunc(other.Leads(), func(at time.Duration) bool {
		w := other.Wall(at)
		return w.After(r.Wall(from)) && w.Before(r.Wall(to))
	})
}

// jobAttempt is one attempt of one job.
type jobAttempt struct {
	cluster, id string
	restarts    int
}

func jobOf(r *record.Run) jobAttempt {
	return jobAttempt{r.Meta.Job.Cluster, r.Meta.Job.ID, r.Meta.Job.Restarts}
}

// jobName is what the runs of one job have in common and no others.
func jobName(r *record.Run) string {
	j := r.Meta.Job
	if j == nil {
		return r.Meta.ID
	}
	// A job that Slurm has requeued is another observation.
	return fmt.Sprintf("%s %s %s %d", j.Cluster, j.ID, j.Step, j.Restarts)
}

// successions returns for each leader's record the index of the one that it went on from, -1
// for none. Leaders of one meeting place follow each other, and their limit is one
// limit. Ranks that were started otherwise meet elsewhere: two such leaders lead the
// same node at the same time, each with a limit of its own.
func successions(all []*RunScan) (before []int) {
	order := make([]int, len(all))
	before = make([]int, len(all))
	for i := range all {
		order[i], before[i] = i, -1
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[a].Wall(all[a].from()).Compare(all[b].Wall(all[b].from())) })
	var last []int // of each line of leaders
	for _, i := range order {
		at := -1
		for n, l := range last {
			if all[l].handsTo(all[i]) && (at < 0 || all[l].likelier(all[last[at]], all[i])) {
				at = n
			}
		}
		if at < 0 {
			last = append(last, i)
			continue
		}
		before[i], last[at] = last[at], i
	}
	return before
}

// firstOf is the first of those that led before one.
func firstOf(before []int, i int) int {
	for before[i] >= 0 {
		i = before[i]
	}
	return i
}

// handsTo says that the next one may have gone on from this one: later on the same
// node, by a rank that was there before. A step that came later is another job for
// the node.
func (k *RunScan) handsTo(next *RunScan) bool {
	ended := k.Wall(k.End)
	return k.Run.Meta.Node == next.Run.Meta.Node && jobOf(k.Run) == jobOf(next.Run) && !k.Run.Live &&
		!ended.After(next.Wall(next.from()).Add(handSlack)) && next.Run.Meta.Start.Before(ended)
}

// likelier says that the next one went on from this one rather than from the other:
// from a leader that knew its rank, else from the one that ended last.
func (k *RunScan) likelier(other, next *RunScan) bool {
	rank := next.Ranks.List[0].RankKey
	if a, b := k.Ranks.find(rank) != nil, other.Ranks.find(rank) != nil; a != b {
		return a
	}
	return k.Wall(k.End).After(other.Wall(other.End))
}

// nodeRun is one run to draw: that of a node, where several ranks led one after the
// other.
type nodeRun struct {
	*record.Run
	also []string // the IDs of the others that are in it
}

// perNode joins the records of a node and attempt that go on in each other, so that a
// node has one chart.
func perNode(runs []*record.Run) (out []nodeRun) {
	type place struct {
		node string
		job  jobAttempt
	}
	led := map[place][]*record.Run{} // by time
	began := map[*record.Run]time.Time{}
	for _, r := range runs {
		if from, leads := r.Recorded(); leads && r.Meta.Job != nil {
			p := place{r.Meta.Node, jobOf(r)}
			led[p], began[r] = append(led[p], r), r.Wall(from)
		}
	}
	taken := map[*record.Run]bool{}
	for _, r := range runs {
		if taken[r] {
			continue
		}
		d := nodeRun{Run: r}
		if _, leads := began[r]; leads {
			group := led[place{r.Meta.Node, jobOf(r)}]
			slices.SortStableFunc(group, func(a, b *record.Run) int { return began[a].Compare(began[b]) })
			if len(group) > 1 {
				if one, ok := record.Join(group); ok {
					d.Run = one
					for _, g := range group {
						taken[g], d.also = true, append(d.also, g.Meta.ID)
					}
				}
			}
		}
		out = append(out, d)
	}
	return out
}

// weight is how much a run is worth to be drawn where there are too many: those that broke
// off come first, then those that came nearest to a limit by their exit events.
func (d nodeRun) weight() float64 {
	switch e := d.Exit(); {
	case e == nil, e.Outcome == event.RunOOM:
		return 2
	case e.Binding != nil:
		return e.Binding.Ratio()
	}
	return 0
}

// Foremost keeps of a list the n of the greatest weight, in their order.
func Foremost[T any](list []T, n int, weight func(T) float64) (out []T) {
	if len(list) <= n {
		return list
	}
	of, order := make([]float64, len(list)), make([]int, len(list))
	for i, x := range list {
		of[i], order[i] = weight(x), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of[b], of[a]) })
	for _, i := range slices.Sorted(slices.Values(order[:n])) {
		out = append(out, list[i])
	}
	return out
}
