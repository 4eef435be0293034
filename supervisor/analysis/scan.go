package analysis

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// observer takes in what a run has, by time.
type observer interface {
	entry(e *record.Entry)
	sample(s *record.Sample)
}

// longest is how long a run may be. A journal is text that anybody may have
// changed, and arithmetic on times must not overflow.
const longest = 20 * 365 * 24 * time.Hour

// samplesOf is a variable for the test that counts how often a run is decoded.
var samplesOf = (*record.Run).Samples

// scan shows a run to all observers. It is the one loop over samples: to decode them
// takes longer than all else.
func scan(r *record.Run, all ...observer) {
	events := r.Events
	until := func(at time.Duration) {
		for ; len(events) > 0 && events[0].At <= at; events = events[1:] {
			if events[0].At < 0 {
				continue
			}
			for _, o := range all {
				o.entry(&events[0])
			}
		}
	}
	for s := range samplesOf(r) {
		if s.At < 0 || s.At > longest {
			continue
		}
		until(s.At)
		for _, o := range all {
			o.sample(s)
		}
	}
	until(longest)
}

// RunScan is what one pass over a run gathers. A record may hold millions of
// samples: whatever a report says of a run is taken in here, sample by sample.
type RunScan struct {
	Run *record.Run
	// Exit is the exit event, of this record or of one that goes on where it ends;
	// Recorded is nil where this record has none.
	Exit, Recorded *event.Exit
	// exitAt is when the exit event was written, end the last moment that the
	// record knows of.
	exitAt, End time.Duration
	Samples     int

	limitScans
	treeScan
	inner     int // the limit that is the innermost cgroup, -1 for none
	Findings  findingsSeen
	Sharing   *SharingSeen // nil where nothing was
	Signals   []SignalSeen
	JobEnd    time.Time // when Slurm ends the job, zero where it was not known
	Faults    []string
	Unreached []string      // why the loader hook did not reach a process
	first     time.Duration // the first sample, -1 where there is none
	rankScan
}

// mostUnreached bounds the reasons that are kept why the hook did not reach a process.
const mostUnreached = 6

// mostPools bounds the classes of pools that are kept.
const mostPools = 8

type SignalSeen struct {
	*event.Signal
	At time.Duration
}

func newRunScan(r *record.Run) *RunScan {
	k := &RunScan{Run: r, inner: -1, first: -1, rankScan: rankScan{Ranks: ranksOf(r)}, limitScans: limitScans{Limits: make([]LimitScan, len(r.Limits))}, treeScan: newTreeScan(r)}
	k.Recorded = r.Exit()
	for i := range k.Limits {
		k.Limits[i].Limit = &r.Limits[i]
		if l := &r.Limits[i]; l.Name == event.LimitCgroup && (k.inner < 0 || len(l.Level) > len(r.Limits[k.inner].Level)) {
			k.inner = i
		}
	}
	k.Maps.size, k.FDs.size = r.Meta.MaxMapCount, r.Meta.MaxFDs
	if r.Meta.Job != nil {
		k.JobEnd = r.Meta.Job.End
	}
	return k
}

// finish takes what the exit event says of all of the run.
func (k *RunScan) finish() {
	if k.Exit != nil {
		k.End = k.exitAt
		k.takePeaks()
	}
}

func (k *RunScan) sample(s *record.Sample) {
	k.Samples++
	k.End = max(k.End, s.At)
	if k.first < 0 {
		k.first = s.At
	}
	maps, fds := k.processes(s, &k.Ranks)
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit < 0 || r.Limit >= len(k.Limits) {
			continue
		}
		l := &k.Limits[r.Limit]
		switch l.Name {
		case event.LimitTime:
			k.left(s.At, r.ETA)
			continue
		case event.LimitMaps:
			k.Maps.add(s.At, uint64(r.Used), uint64(r.Size), -1)
		case event.LimitFDs:
			k.FDs.add(s.At, uint64(r.Used), uint64(r.Size), -1)
		}
		if !l.Seen || r.Used > l.Peak.Used {
			l.Peak, l.PeakAt, l.Workers, l.Trainers = *r, s.At, k.Workers.now, k.Trainers.now.Count
			l.held = k.held(l.held[:0], KeyOf(l.Limit))
		}
		if l.add(s.At, r) {
			if l.most = k.Ranks.most(); l.most != nil {
				l.mostRSS = l.most.now
			}
		}
		l.own.add(s.At, r.Used.Sub(k.workerFiles(l.Accounting)))
	}
	if k.inner >= 0 {
		if l := &k.Limits[k.inner]; l.Seen && l.LastAt == s.At {
			k.peaks[byCgroup].raise(l.Last.Used, s.At)
		}
	}
	if maps.V > 0 {
		k.Maps.add(s.At, maps.V, 0, maps.Proc)
	}
	if fds.V > 0 {
		k.FDs.add(s.At, fds.V, 0, fds.Proc)
	}
}

func (k *RunScan) entry(e *record.Entry) {
	k.End = max(k.End, e.At)
	switch v := e.Value.(type) {
	case *event.Found:
		if v.Name == event.LimitTime && v.ETA != nil {
			k.left(e.At, *v.ETA)
		}
	case *event.Signal:
		k.Signals = append(k.Signals, SignalSeen{v, e.At})
	case *event.Decision:
		k.decisions++
		k.Actions.decided(k.Run.Wall(e.At), v)
	case *event.Outcome:
		k.Actions.finished(k.Run.Wall(e.At), v)
	case *event.LoaderSaid:
		k.Actions.Said(v)
		k.Sharing = warned(k.Sharing, e.At, v)
		if w := k.role(rss.RolePoolWorker); v.Pool != "" && !slices.Contains(w.most.Pools, v.Pool) && len(w.most.Pools) < mostPools {
			w.most.Pools = append(w.most.Pools, v.Pool)
		}
		if v.What == event.LoaderUnreached && !slices.Contains(k.Unreached, v.Reason) && len(k.Unreached) < mostUnreached {
			k.Unreached = append(k.Unreached, v.Reason)
		}
	case *event.Mapped:
		k.Mapped = v
	case *event.Diagnosis:
		k.Findings.diagnosed(e.At, v)
	case *event.Rank:
		k.rankEnded(e.At, v)
	case *event.Cure:
		k.Findings.cured(k.Run.Meta.ID, k.Run.Wall(e.At), v)
	case *event.Fault:
		k.Faults = append(k.Faults, v.Part+": "+v.Error)
	case *event.Exit:
		k.Exit, k.exitAt = v, e.At
	}
}

// left takes in how many seconds the job has left, negative where it is not known.
// Once its end has come that stays 0, which says no more than that it has.
func (k *RunScan) left(at time.Duration, left float64) {
	end := k.Wall(at).Add(Seconds(left))
	if left > 0 || left == 0 && (k.JobEnd.IsZero() || end.Before(k.JobEnd)) {
		k.JobEnd = end
	}
}

// takePeaks takes the peaks of the exit event, which has those between two
// samples too. Their time is known only where a sample shows nearly as much.
func (k *RunScan) takePeaks() {
	p := &k.Exit.Peaks
	for i, v := range [accountings]*rss.Bytes{byRSS: p.RSS, byPSS: p.PSS, byNoShared: p.NoShared, byCgroup: p.Cgroup} {
		own := &k.peaks[i]
		switch {
		case v == nil || own.known && own.v >= *v:
		case own.known && own.v.Of(*v) >= 0.95:
			own.v = *v
		default:
			*own = peakSeen{*v, -1, true}
		}
	}
}

// Wall is a moment of the run as time of day, zero for a negative one.
func (k *RunScan) Wall(at time.Duration) time.Time {
	if at < 0 {
		return time.Time{}
	}
	return k.Run.Wall(at)
}

func Seconds(s float64) time.Duration {
	const most = 1 << 32
	return time.Duration(min(max(s, 0), most) * float64(time.Second))
}

// parallel does something for each of n, a few at a time.
func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	free := make(chan bool, min(runtime.GOMAXPROCS(0), mostAtOnce))
	for i := range n {
		free <- true
		all.Go(func() {
			do(i)
			<-free
		})
	}
	all.Wait()
}

// mostAtOnce bounds how much of a login node a report takes.
const mostAtOnce = 4

// Distinct takes out what was read twice, from a full record and a journal, and
// puts the rest in order of node, step and task.
func Distinct(runs []*record.Run) []*record.Run {
	byID := map[string]*record.Run{}
	var out []*record.Run
	for _, r := range runs {
		if r == nil {
			continue
		}
		if old := byID[r.Meta.ID]; old != nil && r.Meta.ID != "" {
			if old.JournalOnly && !r.JournalOnly {
				out[slices.Index(out, old)], byID[r.Meta.ID] = r, r
			}
			continue
		}
		byID[r.Meta.ID] = r
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *record.Run) int {
		x, y := cmp.Or(a.Meta.Job, &record.Job{}), cmp.Or(b.Meta.Job, &record.Job{})
		return cmp.Or(strings.Compare(a.Meta.Node, b.Meta.Node), x.Task-y.Task, a.Meta.Start.Compare(b.Meta.Start))
	})
	return out
}

// restarts is how often the job had been requeued when its last runs started.
func restarts(runs []*record.Run) (n int) {
	for _, r := range runs {
		if r.Meta.Job != nil {
			n = max(n, r.Meta.Job.Restarts)
		}
	}
	return n
}

// Highest is the memory limit that came nearest over the whole run. The node is
// everybody's: it is no measure of this run unless there is no other.
func (k *RunScan) Highest() (best *LimitScan, ok bool) {
	for _, node := range []bool{false, true} {
		for i := range k.Limits {
			l := &k.Limits[i]
			if !l.Seen || l.Max.Size == 0 || l.Max.Used == 0 || !l.Name.Row().Amount || l.Name == event.LimitThrottle || (l.Name == event.LimitNode) != node {
				continue
			}
			if best == nil || l.Max.Ratio() > best.Max.Ratio() {
				best = l
			}
		}
		if best != nil {
			return best, true
		}
	}
	return nil, false
}

// binding is how the limit adds up that binds the run, empty where none does.
func (k *RunScan) binding() event.Accounting {
	if k.Exit != nil && k.Exit.Binding != nil {
		return k.Exit.Binding.Accounting
	}
	for i := range k.Limits {
		if l := &k.Limits[i]; l.Seen && l.Last.Binding {
			return l.Accounting
		}
	}
	return ""
}

// limitScans are the limits, and what was done about them.
type limitScans struct {
	Limits    []LimitScan // by index in run.Limits
	Maps, FDs CountScan
	Actions   actionsSeen
	Mapped    *event.Mapped // the last, nil where none was noted
	decisions int
}

// from is when the recording began: a watcher that takes the lead later than its
// rank began records from then on.
func (k *RunScan) from() time.Duration {
	switch {
	case k.Ranks.leads >= 0:
		return k.Ranks.leads
	case k.first >= 0:
		return k.first
	}
	return 0
}

func (k *RunScan) Restarts() int { return cmp.Or(k.Run.Meta.Job, &record.Job{}).Restarts }

// actionsSeen is what was done in one run. The zero value is ready.
type actionsSeen struct {
	event.Ledger
	Last    *event.Decision // but warnings
	LastAt  time.Time
	Outcome *event.Outcome // of Last
}

func (d *actionsSeen) decided(at time.Time, v *event.Decision) {
	d.Decided(at, v)
	if v.Action != event.ActionWarn {
		d.Last, d.LastAt, d.Outcome = v, at, nil
	}
}

func (d *actionsSeen) finished(at time.Time, v *event.Outcome) {
	d.Finished(at, v)
	if d.Last != nil && v.Decision != 0 && d.Last.ID == v.Decision {
		d.Outcome = v
	}
}

func mergeActions(looks []*RunScan) (all event.Saved) {
	for _, k := range looks {
		all.Add(&k.Actions.Saved)
	}
	return all
}
