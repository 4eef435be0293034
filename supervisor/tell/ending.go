package tell

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/text"
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

// flush is how long the last events, the record and the removal of the metrics may take; the
// holder waits for 2 s in all.
const flush = time.Second

// listing is how long the run may take to be listed: flush comes after it.
const listing = 500 * time.Millisecond

// Closing ends what stands for a run that goes on: its metrics, and alerts, unless another
// leader goes on with those.
func (f *Fan) Closing(others bool) {
	f.Textfile.Close()
	f.Alerts.Close(!others)
}

// End tells how the command ended, with the summary, and closes all sinks. The comment may
// take so long.
func (f *Fan) End(e *Ending, comment time.Duration) {
	f.Findings.Last(e.Findings)
	out, brief := f.Sum.End(e)
	f.Sum.noteMapped(f.events)
	f.name(&brief)
	if f.stream != nil {
		out.Ours = f.Costs(e.Now)
	}
	f.Record.list(&out, analysis.SumsOf(&brief, f.Sum.ends, grew(e.Findings)), e.Took, e.Now, listing)
	f.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	if line := leftLine(e.Left); line != "" {
		f.Warn(line)
	}
	f.delayed.end()
	draw := render.Summary
	if f.set.BySite {
		draw = render.Short
	}
	if f.set.Short || !f.set.BySite {
		f.Lines.Summary(func(style text.Style) []string { return draw(&brief, style) }, &brief)
	}
	var closing sync.WaitGroup
	closing.Go(f.Alerts.Comment.Last(&out, e.Rank, comment))
	closing.Go(func() {
		f.Record.Close(out.Outcome != event.RunOK, flush)
	})
	var counted <-chan struct{}
	if !brief.Detached {
		counted = f.Textfile.Ended(out.Outcome)
	}
	closing.Go(func() {
		late := time.After(flush)
		for _, done := range []<-chan struct{}{f.Textfile.Removed, counted} {
			if done == nil {
				continue
			}
			select {
			case <-done:
			case <-late:
				return
			}
		}
	})
	closing.Go(func() { f.CloseSinks(flush) })
	closing.Wait()
	f.Alerts.Last()
}

// grew is what grew most, empty where that is not likely.
func grew(weightiest []event.Diagnosis) event.Finding {
	for i := range weightiest {
		if weightiest[i].Confidence != event.Possible {
			return weightiest[i].Finding
		}
	}
	return ""
}

// EndFollowing tells how the command of a rank ended that follows. What memory did is the
// leader's to tell.
func (f *Fan) EndFollowing(e *Ending) {
	out := e.Exit(f.Sum.Stopped && e.Said)
	facts := analysis.RunFacts{Code: e.Code, Saved: &event.Saved{}}
	if e.Signal != 0 {
		facts.Signal = SignalName(e.Signal)
	}
	asked := f.Sum.askedBy(e)
	facts.Meet(event.RunStopped, f.Sum.Stopped && e.Said)
	facts.Meet(event.RunCancelled, asked != "")
	facts.Meet(event.RunUnknown, !e.Said)
	out.Brief = facts.Brief(e.Took)
	out.Watched, out.Cancelled = event.WatchedRank, asked
	f.Record.list(&out, record.IndexSums{}, e.Took, e.Now, listing)
	f.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	f.delayed.end()
	if !e.Said || e.Code != 0 || e.Signal != 0 {
		brief := analysis.BriefOf(&out)
		f.name(&brief)
		f.Info(fmt.Sprintf("rank %d: %s", e.Rank, render.Ending(&brief)))
	}
	f.Record.Close(true, flush)
}

// leftLine says what runs on when the command has ended, empty where nothing does.
func leftLine(left []event.Left) string {
	var parts []string
	for _, l := range left {
		what := string(l.Role)
		if l.Role == rss.RoleOther {
			what = "process"
		}
		part := fmt.Sprintf("%s with %v RSS (PID %s", text.Count(l.Procs, what), l.RSS, strings.Trim(fmt.Sprint(l.PIDs), "[]"))
		if l.Procs > len(l.PIDs) {
			part += " …"
		}
		parts = append(parts, part+")")
	}
	if len(parts) == 0 {
		return ""
	}
	return "still running after the command: " + strings.Join(parts, ", ")
}

// name says which run it is of.
func (f *Fan) name(b *analysis.Brief) {
	b.Command, b.Recorded, b.ID = f.Run.Command, f.Recorder != nil, f.Run.Label()[:4]
	if f.Run.Job != nil {
		b.Job = f.Run.Job.ID
	}
}

// CloseFollowing closes the other sinks of a rank that follows.
func (f *Fan) CloseFollowing() {
	f.CloseSinks(flush)
	f.Alerts.Last()
}

// A run may fail because it ran out of something else than memory. A peak of an hour ago
// was survived: only how limits stood right before the end counts, and only a failure of
// the command's own making.
const (
	// blameFor is how long before the last look a limit may have been full for a
	// failure to be laid to it: Python takes seconds to take 60,000 mappings down, and a
	// busy machine a quarter of a minute to end a training.
	blameFor = 30 * time.Second
	// onItsWayFor is the same of one that was not full yet.
	onItsWayFor = 15 * time.Second
	// usedUp is the share from which on one counts as used up: the last look was
	// some time before. closingFrom is from where on it may have been at the rate
	// that was seen, within closingIn.
	usedUp      = 0.95
	closingFrom = 0.5
	closingIn   = 3 * time.Second
	// leastRise is the share of a limit that others have a part in by which it
	// must have risen for this job to be what filled it.
	leastRise = 0.05
)

// sideTail is how one limit stood in the last seconds.
type sideTail struct {
	slots [int(blameFor / time.Second)]sideSlot
	last  sideSlot // the last that differs from the one before it
}

// sideSlot is the fullest reading of one second.
type sideSlot struct {
	limit event.Limit
	at    time.Duration
	ok    bool
	rate  float64   // by which it rose to that, a second
	low   rss.Bytes // the least that was read in that second
}

// late takes in a reading at that time. pace is what its process is known to add a
// second: it may be the nearest since this reading.
func (s *limitsSeen) late(l *event.Limit, now time.Duration, pace float64) {
	if s.tails == nil {
		s.tails = map[event.LimitName]*sideTail{}
	}
	t := s.tails[l.Name]
	if t == nil {
		t = &sideTail{}
		s.tails[l.Name] = t
	}
	at := now - time.Duration(l.Age*float64(time.Second))
	n := sideSlot{limit: *l, at: at, ok: true, low: l.Used, rate: pace}
	if b := &t.last; b.ok && b.limit.PID == l.PID && b.limit.Level == l.Level && b.limit.Scope == l.Scope {
		switch passed := (at - b.at).Seconds(); {
		case l.Used == b.limit.Used && at-b.at <= closingIn:
			n.rate = max(pace, b.rate)
		case l.Used > b.limit.Used && passed > 0:
			n.rate = max(pace, float64(l.Used-b.limit.Used)/passed)
		}
	}
	if l.Used != t.last.limit.Used || l.PID != t.last.limit.PID {
		t.last = n
	}
	slot := &t.slots[int(at/time.Second)%len(t.slots)]
	fresh := !slot.ok || slot.at/time.Second != at/time.Second
	if !fresh {
		n.low = min(n.low, slot.low)
	}
	if fresh || l.Ratio() >= slot.limit.Ratio() {
		*slot = n
	}
	slot.low = n.low
}

// ranOut returns the fullest reading right before the end, where there was none
// left, or would have been at the rate that was seen.
func (t *sideTail) ranOut(end time.Duration) (event.Limit, bool) {
	var full sideSlot
	least, seen := rss.Bytes(0), false
	for i := range t.slots {
		s := &t.slots[i]
		if !s.ok || end-s.at > blameFor {
			continue
		}
		if !seen || s.low < least {
			least, seen = s.low, true
		}
		if end-s.at > onItsWayFor && s.limit.Ratio() < usedUp {
			continue
		}
		if !full.ok || s.limit.Ratio() > full.limit.Ratio() {
			full = *s
		}
	}
	l := &full.limit
	if !full.ok || l.Limit == 0 {
		return event.Limit{}, false
	}
	closing := l.Ratio() >= closingFrom && float64(l.Used)+full.rate*closingIn.Seconds() >= float64(l.Limit)
	if l.Name == event.LimitSHM {
		// One batch may take it from there to full and back, between two looks.
		closing = l.Ratio() >= event.NearShare && end-full.at <= closingIn
	}
	if l.Ratio() < usedUp && !closing {
		return event.Limit{}, false
	}
	if l.Scope != event.ScopeProcess && (l.Used-least).Of(l.Limit) < leastRise {
		return event.Limit{}, false // it stood so all the time: others fill it, or the job lives with it
	}
	return *l, true
}

// sentWithin is how long sending may take: the fork server refuses a million of
// descriptors after all were pickled, at some thousand a second. What fails later
// has another cause.
const sentWithin = 5 * time.Minute

// exhausted is the limit that there was none left of at the last reading, nil where nothing
// ran out.
func (s *Summary) exhausted(read, now time.Duration) *event.Limit {
	for _, name := range event.Limits {
		t := s.tails[name]
		if t == nil {
			continue
		}
		if l, ok := t.ranOut(read); ok {
			return &l
		}
	}
	p := s.sharing.what
	if p == nil || now-s.sharing.at > sentWithin {
		return nil
	}
	// A DataLoader was about to send more tensors than a limit holds.
	for _, c := range []struct {
		name      event.LimitName
		used, has int
	}{{event.LimitFDs, p.Sent, p.MaxSent}, {event.LimitMaps, p.Maps, p.MaxMaps}, {event.LimitFDs, p.FDs, p.MaxFDs}} {
		if c.used > c.has && c.has > 0 {
			return &event.Limit{Name: c.name, Used: rss.Bytes(c.used), Limit: rss.Bytes(c.has)}
		}
	}
	return nil
}

// failed says that the command ended badly by itself: one that a signal ended has not run
// out of anything.
func failed(code, signal int) bool {
	if code > 128 { // a shell says so
		signal = code - 128
	}
	switch unix.Signal(signal) {
	case 0:
		return code != 0
	case unix.SIGBUS, unix.SIGABRT, unix.SIGSEGV:
		return true
	}
	return false
}

// SignalName gives "SIGTERM"; "SIG34" for one without a name.
func SignalName(signal int) string {
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", signal)
}
