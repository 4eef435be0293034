package tell

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/render"
)

// Ending is what the watcher knows when the command has ended, or the holder has gone.
type Ending struct {
	Said         bool // the holder told how the command ended
	Code, Signal int  // … by wait(2): Code where Signal is 0
	StopStatus   int  // our exit status after a stop
	Took         time.Duration
	Attached     string // what became of what we attached to; else empty
	Node         string
	Successor    bool // another rank's watcher led before
	InJob        bool
	Requeued     *Requeued // nil where the job is not in the queue again
	Left         []event.Left
	Limits       []event.Limit // as read last
	Read, Now    time.Duration // when that was, and now
	Kills        []limit.Kills // by the kernel, and those of the whole node
	NodeKills    uint64
	Findings     []event.Diagnosis // the weightiest first
	Rank         int               // ours among those that go on or followed, -1 where we are alone
}

// Requeued is how much memory a job has and will have on each node.
type Requeued struct{ From, To rss.Bytes }

func (r Requeued) String() string {
	return fmt.Sprintf("%d MiB (was %d)", r.To/rss.MiB, r.From/rss.MiB)
}

// End returns the exit event, and what every surface says of the run.
func (s *Summary) End(e *Ending) (event.Exit, analysis.Brief) {
	out := e.Exit(s.Stopped)
	out.Peaks, out.Binding, out.Left, out.Kernel = s.peaks, s.nearest, e.Left, limit.ByKernel(e.Kills)
	out.Slowed = limit.Slowed(e.Kills)
	if e.Attached != "" {
		// Its parent alone learns how it ended, and perhaps it has not.
		out.Code, out.Signal = nil, nil
		if !e.Said {
			out.By = "detached"
		}
	}
	f := s.facts(e)
	out.Brief = f.Brief(e.Took)
	if !s.Watched || !e.Said || s.unread > 0 {
		out.Watched = event.WatchedParts
	}
	var lacked *event.Limit
	switch out.Outcome {
	case event.RunStopped, event.RunRequeued:
		out.Rule = s.endedBy
	case event.RunCancelled:
		out.Cancelled = s.askedBy(e)
	case event.RunExhausted:
		if lacked = s.exhausted(e.Read, e.Now); lacked != nil {
			out.Lacked = lacked.Name
		}
	}
	if out.Next.Option == "--mem" {
		out.Advice = out.Next.Size
	}
	out.AdviceWhy = render.NextWhy(&out.Next)
	b := analysis.BriefOf(&out)
	b.Attached, b.NodeLimit, b.LackedLimit, b.Node, b.Kills = e.Attached, s.node, lacked, e.Node, s.kills(e)
	return out, b
}

// Exit says how the command ended.
func (e *Ending) Exit(stopped bool) (out event.Exit) {
	out.By = "command"
	switch {
	case stopped:
		out.By, out.Code = "rsswarden", &e.StopStatus
	case e.Signal != 0:
		name := SignalName(e.Signal)
		out.Signal = &name
	case e.Said:
		out.Code = &e.Code
	}
	return out
}

// kills counts the kernel's OOM kills that are the run's. In a job any counts: Slurm calls
// the job OUT_OF_MEMORY, whichever process it was. Elsewhere the cgroup may be others' too.
func (s *Summary) kills(e *Ending) uint64 {
	if !e.InJob && e.Said && e.Code == 0 && e.Signal == 0 && !s.left {
		return 0
	}
	return limit.OwnKills(e.Kills)
}

// facts are what the outcome follows from.
func (s *Summary) facts(e *Ending) analysis.RunFacts {
	f := analysis.RunFacts{
		Code: e.Code, Peak: s.nearest, Ends: s.ends, JobSum: s.jobSum, Saved: &s.Saved.Saved, Without: s.withoutActions(),
		Growing: map[event.LimitID]rss.Bytes{},
	}
	if e.Requeued != nil {
		f.Again = e.Requeued.To
	}
	switch {
	case s.Stopped:
		f.Code = e.StopStatus
	case e.Signal != 0:
		f.Code, f.Signal = 0, SignalName(e.Signal)
	}
	asked := s.askedBy(e)
	for o, holds := range map[event.RunOutcome]bool{
		event.RunRunning:   e.Attached != "" && !e.Said,
		event.RunRequeued:  e.Requeued != nil,
		event.RunOOM:       s.kills(e) > 0,
		event.RunSlurmKill: s.cancelled && s.jobSum != nil,
		event.RunTimeout:   s.timeUp(e) && (asked != "" || f.Signal == "SIGKILL"),
		event.RunStopped:   s.Stopped,
		event.RunCancelled: asked != "",
		event.RunUnknown:   !e.Said || e.Attached != "",
		event.RunExhausted: s.lackedSomething(e),
	} {
		f.Meet(o, holds)
	}
	for _, l := range []*event.Limit{s.nearest, s.ends} {
		if l == nil {
			continue
		}
		if g := s.grown[l.ID()]; e.Now-g.at <= lately && g.rate*60 >= float64(l.Limit)*event.SteadyShare {
			f.Growing[l.ID()] = rss.Bytes(g.rate)
		}
	}
	seen := s.looks >= 2 && s.Watched && e.Said
	if l := s.ends; l != nil && l.Name == event.LimitCgroup && s.elsewhere[l.Level] > 0 {
		seen = false // a part of the tree was charged to another cgroup
	}
	f.Partial = !seen || s.unread > 0 && (summed(s.nearest) || summed(s.ends))
	return f
}

// lately is how long before the end a peak may be for its growth to have gone on to the end.
const lately = 5 * time.Second

// endSignals ask for an end; termToKill is how long before it one counts: KillWait of
// slurm.conf is 30 s by default.
var endSignals = []string{"SIGTERM", "SIGINT", "SIGHUP"}

const termToKill = 3 * time.Minute

// askedBy is the signal from outside that asked for the end; empty where none did.
func (s *Summary) askedBy(e *Ending) string {
	switch {
	case s.Stopped || e.Attached != "" && !e.Said:
	case s.asked != "" && e.Now-s.askedAt <= termToKill:
		return s.asked
	case e.Signal != 0 && slices.Contains(endSignals, SignalName(e.Signal)):
		return SignalName(e.Signal)
	case e.Code > 128 && slices.Contains(endSignals, SignalName(e.Code-128)):
		return SignalName(e.Code - 128)
	}
	return ""
}

// timeUp says that the run went on until the job's end.
func (s *Summary) timeUp(e *Ending) bool {
	i := slices.IndexFunc(e.Limits, func(l event.Limit) bool { return l.Name == event.LimitTime && l.ETA != nil })
	return i >= 0 && *e.Limits[i].ETA-(e.Now-e.Read).Seconds() <= nearEnd.Seconds()
}

// lackedSomething says that the command failed by itself with none left of something else
// than memory.
func (s *Summary) lackedSomething(e *Ending) bool {
	return failed(e.Code, e.Signal) && s.exhausted(e.Read, e.Now) != nil
}

// withoutActions is at most what each limit would have counted without actions: its peak
// with all that workers have mapped in memory, and what recycles gave back.
func (s *Summary) withoutActions() map[event.LimitID]rss.Bytes {
	if s.Saved.Outcome() != event.HelpedYes {
		return nil
	}
	out := map[event.LimitID]rss.Bytes{}
	for i := range s.whole.Limits {
		m := &s.whole.Limits[i]
		out[m.ID()] = analysis.WithoutActions(m, &s.Saved.Saved, s.own, s.n >= s.Saved.Recycled)
	}
	return out
}

// summed says that a limit is compared with what processes are seen to have.
func summed(l *event.Limit) bool {
	return l != nil && slices.Contains([]event.Accounting{event.AccountingRSS, event.AccountingPSS, event.AccountingNoShared}, l.Accounting)
}
