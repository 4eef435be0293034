package report

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// look is what one pass over a run gathers. A record may hold millions of
// samples: whatever a report says of a run is taken in here, sample by sample.
type look struct {
	run  *record.Run
	exit *event.Exit
	// exitAt is when the exit event was written, end the last moment that the
	// record knows of.
	exitAt, end time.Duration
	samples     int

	limits    []lookLimit // by index in run.Limits
	maps, fds lookCount
	peaks     [accountings]lookPeak
	roles     []*roleLook
	inner     int // the limit that is the innermost cgroup, -1 for none
	forecast  forecasts
	deeds     deeds
	grown     grown
	sent      *lookSent // nil where nothing was
	signals   []lookSignal
	jobEnd    time.Time // when Slurm ends the job, zero where nobody knew
	faults    []string
	unreached []string // why the loader hook did not reach a process
	decisions int
	recycled  int // workers that rules had replaced
	ranks     lookRanks
	line      int           // of the leaders that followed each other, 0 for none
	first     time.Duration // the first sample, -1 where there is none
	lastSeen  time.Duration // the last of the record, where end is from another
	// ofProc is the role of a process, by index in run.Procs; nil of one that is
	// not of the tree.
	ofProc []*roleLook
}

// mostUnreached bounds the reasons that are kept why the hook did not reach a process.
const mostUnreached = 6

// lookPeak is the most of one accounting, and when.
type lookPeak struct {
	v     rss.Bytes
	at    time.Duration
	known bool
}

func (p *lookPeak) raise(v rss.Bytes, at time.Duration) {
	if !p.known || v > p.v {
		*p = lookPeak{v, at, true}
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

type lookSignal struct {
	*event.Signal
	at time.Duration
}

func newLook(r *record.Run) *look {
	k := &look{run: r, inner: -1, first: -1, ranks: ranksOf(r), limits: make([]lookLimit, len(r.Limits))}
	for i := range k.limits {
		k.limits[i].Limit = &r.Limits[i]
		if l := &r.Limits[i]; l.Name == event.LimitCgroup && (k.inner < 0 || len(l.Level) > len(r.Limits[k.inner].Level)) {
			k.inner = i
		}
	}
	k.maps.size, k.fds.size = r.Meta.MaxMapCount, r.Meta.MaxFDs
	k.ofProc = make([]*roleLook, len(r.Procs))
	for i := range r.Procs {
		if p := &r.Procs[i]; !p.Extra && !p.Ours {
			k.ofProc[i] = k.role(p.Role)
		}
	}
	if r.Meta.Job != nil {
		k.jobEnd = r.Meta.Job.End
	}
	k.forecast.init(len(r.Limits))
	return k
}

// finish takes what the exit event says of all of the run.
func (k *look) finish() {
	if k.exit != nil {
		k.end = k.exitAt
		k.takePeaks()
	}
}

func (k *look) sample(s *record.Sample) {
	k.samples++
	k.end = max(k.end, s.At)
	if k.first < 0 {
		k.first = s.At
	}
	if len(s.Procs) > 0 {
		k.rankSums(s)
	}
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit < 0 || r.Limit >= len(k.limits) {
			continue
		}
		l := &k.limits[r.Limit]
		switch l.Name {
		case event.LimitTime:
			k.left(s.At, r.ETA)
			continue
		case event.LimitMaps:
			k.maps.add(s.At, uint64(r.Used), uint64(r.Size), -1)
		case event.LimitFDs:
			k.fds.add(s.At, uint64(r.Used), uint64(r.Size), -1)
		}
		if l.add(s.At, r) {
			l.most = rankShare{}
			if most := k.ranks.most(); most != nil && len(s.Procs) > 0 {
				l.most = rankShare{most, most.now}
			}
		}
		k.forecast.add(r.Limit, s.At, r)
	}
	if k.inner >= 0 {
		if l := &k.limits[k.inner]; l.seen && l.lastAt == s.At {
			k.peaks[byCgroup].raise(l.last.Used, s.At)
		}
	}
	if len(s.Procs) > 0 {
		k.processes(s)
		return
	}
	k.roleSums(s)
}

func (k *look) entry(e *record.Entry) {
	k.end = max(k.end, e.At)
	switch v := e.Value.(type) {
	case *event.Found:
		if v.Name == event.LimitTime && v.ETA != nil {
			k.left(e.At, *v.ETA)
		}
	case *event.Signal:
		k.signals = append(k.signals, lookSignal{v, e.At})
	case *event.Decision:
		k.decisions++
		k.deeds.decided(k.run.Wall(e.At), v)
		if v.Action == event.ActionStop {
			k.forecast.disturb(e.At)
		}
	case *event.Outcome:
		if k.deeds.came(v) == event.ActionRecycle && v.OK {
			k.recycled++
		}
		if v.OK && v.Freed > 0 {
			k.forecast.disturb(max(e.At-seconds(v.Duration), 0))
		}
	case *event.LoaderSaid:
		k.deeds.said(v)
		k.warned(e.At, v)
		if v.What == event.LoaderUnreached && !slices.Contains(k.unreached, v.Reason) && len(k.unreached) < mostUnreached {
			k.unreached = append(k.unreached, v.Reason)
		}
		if v.Freed > 0 || v.What == event.LoaderRecycled {
			k.forecast.disturb(e.At)
		}
	case *event.Diagnosis:
		k.grown.diagnosed(e.At, v)
	case *event.Rank:
		k.rankEnded(e.At, v)
	case *event.Cure:
		k.grown.cured(k.run.Meta.ID, k.run.Wall(e.At), v)
	case *event.Fault:
		k.faults = append(k.faults, v.Part+": "+v.Error)
	case *event.Exit:
		k.exit, k.exitAt = v, e.At
	}
}

// left takes in how many seconds the job has left, negative where nobody knows.
// Once its end has come that stays 0, which says no more than that it has.
func (k *look) left(at time.Duration, left float64) {
	end := k.wall(at).Add(seconds(left))
	if left > 0 || left == 0 && (k.jobEnd.IsZero() || end.Before(k.jobEnd)) {
		k.jobEnd = end
	}
}

// takePeaks takes the peaks of the exit event, which has those between two
// samples too. When they were is told only where a sample shows nearly as much.
func (k *look) takePeaks() {
	p := &k.exit.Peaks
	for i, v := range [accountings]*rss.Bytes{byRSS: p.RSS, byPSS: p.PSS, byNoShared: p.NoShared, byCgroup: p.Cgroup} {
		own := &k.peaks[i]
		switch {
		case v == nil || own.known && own.v >= *v:
		case own.known && own.v.Of(*v) >= 0.95:
			own.v = *v
		default:
			*own = lookPeak{*v, -1, true}
		}
	}
}

// wall is a moment of the run as time of day, zero for a negative one.
func (k *look) wall(at time.Duration) time.Time {
	if at < 0 {
		return time.Time{}
	}
	return k.run.Wall(at)
}

func seconds(s float64) time.Duration {
	const most = 1 << 32
	return time.Duration(min(max(s, 0), most) * float64(time.Second))
}

// mergePeaks takes the fullest run by each accounting.
func mergePeaks(looks []*look) Peaks {
	var p Peaks
	for i, to := range [accountings]**Peak{byRSS: &p.RSS, byPSS: &p.PSS, byNoShared: &p.NoShared, byCgroup: &p.Cgroup} {
		for _, k := range looks {
			if v := &k.peaks[i]; v.known && (*to == nil || v.v > (*to).Bytes) {
				*to = &Peak{Bytes: v.v, At: k.wall(v.at), Run: k.run.Meta.ID}
			}
		}
	}
	return p
}
