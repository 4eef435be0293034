package analysis

import (
	"slices"
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

// look is what one pass over a run gathers. A record may hold millions of
// samples: whatever a report says of a run is taken in here, sample by sample.
type RunScan struct {
	Run  *record.Run
	Exit *event.Exit
	// exitAt is when the exit event was written, end the last moment that the
	// record knows of.
	exitAt, End time.Duration
	Samples     int

	Limits    []LimitScan // by index in run.Limits
	Maps, Fds CountScan
	peaks     [accountings]peakSeen
	roles     []*roleSeen
	inner     int // the limit that is the innermost cgroup, -1 for none
	forecast  forecasts
	Deeds     actionsSeen
	Grown     grown
	Sent      *SharingSeen // nil where nothing was
	Signals   []SignalSeen
	JobEnd    time.Time // when Slurm ends the job, zero where nobody knew
	Faults    []string
	Unreached []string // why the loader hook did not reach a process
	decisions int
	recycled  int // workers that rules had replaced
	Ranks     RanksSeen
	line      int           // of the leaders that followed each other, 0 for none
	first     time.Duration // the first sample, -1 where there is none
	lastSeen  time.Duration // the last of the record, where end is from another
	// ofProc is the role of a process, by index in run.Procs; nil of one that is
	// not of the tree.
	ofProc []*roleSeen
}

// mostUnreached bounds the reasons that are kept why the hook did not reach a process.
const mostUnreached = 6

// lookPeak is the most of one accounting, and when.
type peakSeen struct {
	v     rss.Bytes
	at    time.Duration
	known bool
}

func (p *peakSeen) raise(v rss.Bytes, at time.Duration) {
	if !p.known || v > p.v {
		*p = peakSeen{v, at, true}
	}
}

// The accountings that a peak is told by.
const (
	byRSS = iota
	byPSS
	byNoShared
	byCgroup
	accountings
)

type SignalSeen struct {
	*event.Signal
	At time.Duration
}

func newLook(r *record.Run) *RunScan {
	k := &RunScan{Run: r, inner: -1, first: -1, Ranks: ranksOf(r), Limits: make([]LimitScan, len(r.Limits))}
	for i := range k.Limits {
		k.Limits[i].Limit = &r.Limits[i]
		if l := &r.Limits[i]; l.Name == event.LimitCgroup && (k.inner < 0 || len(l.Level) > len(r.Limits[k.inner].Level)) {
			k.inner = i
		}
	}
	k.Maps.size, k.Fds.size = r.Meta.MaxMapCount, r.Meta.MaxFDs
	k.ofProc = make([]*roleSeen, len(r.Procs))
	for i := range r.Procs {
		if p := &r.Procs[i]; !p.Extra && !p.Ours {
			k.ofProc[i] = k.role(p.Role)
		}
	}
	if r.Meta.Job != nil {
		k.JobEnd = r.Meta.Job.End
	}
	k.forecast.init(len(r.Limits))
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
	if len(s.Procs) > 0 {
		k.rankSums(s)
	}
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
			k.Fds.add(s.At, uint64(r.Used), uint64(r.Size), -1)
		}
		if l.add(s.At, r) {
			l.most = rankShare{}
			if most := k.Ranks.most(); most != nil && len(s.Procs) > 0 {
				l.most = rankShare{most, most.now}
			}
		}
		k.forecast.add(r.Limit, s.At, r)
	}
	if k.inner >= 0 {
		if l := &k.Limits[k.inner]; l.Seen && l.LastAt == s.At {
			k.peaks[byCgroup].raise(l.Last.Used, s.At)
		}
	}
	if len(s.Procs) > 0 {
		k.processes(s)
		return
	}
	k.roleSums(s)
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
		k.Deeds.decided(k.Run.Wall(e.At), v)
		if v.Action == event.ActionStop {
			k.forecast.disturb(e.At)
		}
	case *event.Outcome:
		if k.Deeds.came(v) == event.ActionRecycle && v.OK {
			k.recycled++
		}
		if v.OK && v.Freed > 0 {
			k.forecast.disturb(max(e.At-Seconds(v.Duration), 0))
		}
	case *event.LoaderSaid:
		k.Deeds.said(v)
		k.warned(e.At, v)
		if v.What == event.LoaderUnreached && !slices.Contains(k.Unreached, v.Reason) && len(k.Unreached) < mostUnreached {
			k.Unreached = append(k.Unreached, v.Reason)
		}
		if v.Freed > 0 || v.What == event.LoaderRecycled {
			k.forecast.disturb(e.At)
		}
	case *event.Diagnosis:
		k.Grown.diagnosed(e.At, v)
	case *event.Rank:
		k.rankEnded(e.At, v)
	case *event.Cure:
		k.Grown.cured(k.Run.Meta.ID, k.Run.Wall(e.At), v)
	case *event.Fault:
		k.Faults = append(k.Faults, v.Part+": "+v.Error)
	case *event.Exit:
		k.Exit, k.exitAt = v, e.At
	}
}

// left takes in how many seconds the job has left, negative where nobody knows.
// Once its end has come that stays 0, which says no more than that it has.
func (k *RunScan) left(at time.Duration, left float64) {
	end := k.Wall(at).Add(Seconds(left))
	if left > 0 || left == 0 && (k.JobEnd.IsZero() || end.Before(k.JobEnd)) {
		k.JobEnd = end
	}
}

// takePeaks takes the peaks of the exit event, which has those between two
// samples too. When they were is told only where a sample shows nearly as much.
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

// wall is a moment of the run as time of day, zero for a negative one.
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

// mergePeaks takes the fullest run by each accounting.
func mergePeaks(looks []*RunScan) Peaks {
	var p Peaks
	for i, to := range [accountings]**Peak{byRSS: &p.RSS, byPSS: &p.PSS, byNoShared: &p.NoShared, byCgroup: &p.Cgroup} {
		for _, k := range looks {
			if v := &k.peaks[i]; v.known && (*to == nil || v.v > (*to).Bytes) {
				*to = &Peak{Bytes: v.v, At: k.Wall(v.at), Run: k.Run.Meta.ID}
			}
		}
	}
	return p
}
