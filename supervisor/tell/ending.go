package tell

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Ending is what the watcher knows when the command has ended, or the holder has gone.
type Ending struct {
	Said         bool // the holder told how the command ended
	Code, Signal int  // … by wait(2): Code where Signal is 0
	StopStatus   int  // our exit status after a stop
	Took         time.Duration
	Attached     string // how it ended, where we attached to what others started; else empty
	Node         string
	Heir         bool // another rank's watcher led before
	InJob        bool
	Requeued     *Requeued // nil where the job is not in the queue again
	Left         []event.Left
	Limits       []event.Limit // as read last
	Read, Now    time.Duration // when that was, and now
	Kills        []limit.Kills // by the kernel, and those of the whole node
	NodeKills    uint64
	Rung         func(*event.Limit) rss.Bytes // the first rung of a limit, 0 for none
	Findings     []event.Diagnosis            // the weightiest first
	Rank         int                          // ours among those that go on or followed, -1 where we are alone
}

// Requeued is how much memory a job has and will have on each node.
type Requeued struct{ From, To rss.Bytes }

func (r Requeued) String() string {
	return fmt.Sprintf("%d MiB (was %d)", r.To/rss.MiB, r.From/rss.MiB)
}

// mostFindings is how many of them the summary tells.
const mostFindings = 3

// End returns the exit event, and the lines that a person reads at the end.
func (s *Summary) End(e *Ending) (event.Exit, []string) {
	run := s.run(e)
	out, how := e.Exit(s.Stopped)
	out.Peaks, out.Binding, out.Left, out.Kernel = s.peaks, s.nearest, e.Left, limit.ByKernel(e.Kills)
	// In a job any kill counts: Slurm calls the job OUT_OF_MEMORY, whoever was killed.
	var others uint64
	if !e.InJob && e.Said && e.Code == 0 && e.Signal == 0 && !s.left {
		run.OOMKills, others = 0, run.OOMKills
	}
	if how += " after " + text.Span(e.Took); e.Attached != "" {
		// Its parent alone is told how it ended, and perhaps it has not.
		out.Code, out.Signal, how = nil, nil, e.Attached
		if !e.Said {
			out.By = "detached"
		}
	}
	advice := policy.Advise(run)
	out.Verdict, out.Advice, out.AdviceWhy = advice.Verdict, advice.Mem, advice.Why
	if s.unread > 0 && out.Advice != 0 && (summed(s.nearest) || summed(s.ends)) {
		out.Advice, out.AdviceWhy = 0, "no --mem is told: "+s.unreadWords()
	}
	if s.looks < 2 && out.Advice != 0 && (out.Verdict == event.VerdictFine || out.Verdict == event.VerdictTight) {
		out.Advice, out.AdviceWhy = 0, "no --mem advice: the command ended before a second look at its memory"
	}
	return out, s.lines(e, &out, run, how, others)
}

// Exit says how the command ended, as an event and in words.
func (e *Ending) Exit(stopped bool) (out event.Exit, how string) {
	out.By, how = "command", "rsswarden's holder ended first"
	switch {
	case stopped:
		out.By, out.Code, how = "rsswarden", &e.StopStatus, fmt.Sprintf("stopped by rsswarden, exit status %d", e.StopStatus)
	case e.Signal != 0:
		name := SignalName(e.Signal)
		out.Signal, how = &name, "killed by "+name
	case e.Said:
		out.Code, how = &e.Code, fmt.Sprintf("exit status %d", e.Code)
	}
	return out, how
}

// run is the run as the advice is about it.
func (s *Summary) run(e *Ending) policy.Run {
	r := policy.Run{
		Binding: s.nearest, Ends: s.ends, Stopped: s.Stopped, Watched: s.Watched && e.Said, Heir: e.Heir && e.Said,
		Helped: s.Done.Helped, Trimmed: s.Done.BudgetTrims > 0, Skipped: s.Done.Skipped,
		Elsewhere: s.elsewhere, JobSum: s.jobSum, Cancelled: s.cancelled,
		Asked: s.Done.Asked > 0, Failed: e.Said && (e.Code != 0 || e.Signal != 0),
		Killed:   e.Signal == int(unix.SIGKILL) && !s.Stopped,
		OOMKills: limit.OwnKills(e.Kills), NodeKills: e.NodeKills,
	}
	if e.Requeued != nil {
		r.Requeued, r.From = e.Requeued.To, e.Requeued.From
	}
	if failed(e.Code, e.Signal) {
		r.Exhausted = s.exhausted(e.Read, e.Now)
	}
	if l := s.nearest; l != nil {
		r.FirstRung = e.Rung(&event.Limit{Name: l.Name, Limit: l.Limit})
	}
	if l := s.ends; l != nil {
		r.EndsRung = e.Rung(&event.Limit{Name: l.Name, Limit: l.Limit})
	}
	return r
}

// lines are the summary. others is how many processes of the cgroup the kernel ended that
// were not seen in the tree.
func (s *Summary) lines(e *Ending, out *event.Exit, run policy.Run, how string, others uint64) []string {
	whose := "its tree"
	if s.Ranks > 1 {
		whose = fmt.Sprintf("the trees of %d ranks on node %s together", s.Ranks, e.Node)
	}
	lines := []string{fmt.Sprintf("%s; peaks of %s: %s", how, whose, peaks(&s.peaks))}
	add := func(line string) {
		if line != "" {
			lines = append(lines, line)
		}
	}
	lines = append(lines, s.nearestLines()...)
	if s.unread > 0 && !strings.Contains(out.AdviceWhy, s.unreadWords()) {
		add(s.unreadWords())
	}
	if out.Verdict != event.VerdictExhausted {
		lines = append(lines, s.sideLines()...)
	}
	for _, f := range e.Findings[:min(len(e.Findings), mostFindings)] {
		add("why: " + phrase.Finding(&f))
	}
	lines = append(lines, s.Cures...)
	add(s.Done.line())
	add(slowed(e.Kills, e.Limits))
	if run.OOMKills > 0 {
		add(fmt.Sprintf("the kernel's OOM killer ended at least %d of its processes", run.OOMKills))
	}
	add(leftWords(e.Left))
	if others > 0 {
		add(fmt.Sprintf("the kernel's OOM killer ended at least %s of its cgroup, none of this run as far as was seen", text.Count(int(others), "process")))
	}
	verdict := "verdict: " + string(out.Verdict)
	if e.Requeued != nil {
		verdict += " with " + e.Requeued.String()
	} else if out.Advice != 0 {
		verdict += fmt.Sprintf("; next time #SBATCH --mem=%s", policy.MemArg(out.Advice))
		if run.Failed && out.Verdict == event.VerdictFine {
			verdict += " at least: what it would have needed later is not known"
		}
	}
	if out.Verdict == event.VerdictExhausted {
		verdict += ": " + out.AdviceWhy
	} else if out.AdviceWhy != "" {
		verdict += " (" + out.AdviceWhy + ")"
	}
	return append(lines, verdict)
}

// nearestLines tells of the limit on memory that came nearest: the job's own, and the
// node's where the job has none or where that one was nearly full and fuller.
func (s *limitsSeen) nearestLines() (lines []string) {
	how := func(l *event.Limit) string {
		return fmt.Sprintf("%s at %v, %s", l.Name, l.Used, strings.TrimPrefix(phrase.Memory(l), "memory "))
	}
	n, own := s.node, s.nearest
	switch {
	case own == nil:
	case own.Used == 0: // it was over before anything was seen
		lines = append(lines, fmt.Sprintf("nearest limit: %s, no use was seen of its %s", own.Name, strings.TrimPrefix(phrase.Memory(own), "memory 0 % of ")))
	default:
		lines = append(lines, "nearest limit: "+how(own))
	}
	switch {
	case n == nil:
	case own == nil:
		lines = append(lines, "nearest limit: "+how(n)+", all that runs there together")
	case n.Ratio() >= event.NearShare && n.Ratio() > own.Ratio():
		lines = append(lines, "nearer still: "+how(n)+", all that runs there together")
	}
	return lines
}

// sideLines tells of each such limit that came near, and what to change.
func (s *limitsSeen) sideLines() (lines []string) {
	for _, name := range event.Limits {
		if l, ok := s.sides[name]; ok && l.Ratio() >= event.NearShare {
			lines = append(lines, "also near its limit: "+phrase.Side(&l)+"; "+name.Cure())
		}
	}
	return lines
}

// summed says that a limit is compared with what processes are seen to have.
func summed(l *event.Limit) bool {
	return l != nil && slices.Contains([]event.Accounting{event.AccountingRSS, event.AccountingPSS, event.AccountingNoShared}, l.Accounting)
}

// unreadWords tell of processes that the sums lack.
func (s *treeSeen) unreadWords() string {
	return text.Count(s.unread, "process") + " or more of its tree could not be read, as those of another user where /proc is mounted with hidepid: sums are too small"
}

func peaks(p *event.Peaks) string {
	text := ""
	for _, e := range []struct {
		v    *rss.Bytes
		name string
	}{{p.RSS, "summed RSS"}, {p.PSS, "summed PSS"}, {p.NoShared, "without shared pages"}} {
		if e.v != nil {
			text += fmt.Sprintf(", %s %v", e.name, *e.v)
		}
	}
	if p.Cgroup != nil {
		text += fmt.Sprintf("; of its cgroup: unreclaimable %v", *p.Cgroup)
	}
	if text == "" {
		return "not seen, it was too short"
	}
	return strings.TrimPrefix(text, ", ")
}

// line says what was done and what it cost; empty where nothing was.
func (n *Done) line() string {
	var parts []string
	if n.BudgetTrims > 0 {
		revised := ""
		if n.BudgetTold != 0 && n.Budget.String() != n.BudgetTold.String() {
			revised = fmt.Sprintf("; at first it was %v", n.BudgetTold)
		}
		parts = append(parts, fmt.Sprintf("workers trimmed themselves %s to keep to %v of mapped file pages each (%v given back in all%s)",
			text.Times(n.BudgetTrims), n.Budget, n.BudgetFreed, revised))
	}
	lost := n.Signalled - (n.Recycles - n.Forked)
	for _, d := range []struct {
		n    int
		line string
	}{
		{n.Trims, "trimmed " + text.Times(n.Trims)},
		{n.Recycles, "recycled " + text.Count(n.Recycles, "worker")},
		{lost, "signalled " + text.Count(lost, "pool worker") + " of which no replacement was seen"},
		{n.Collected, "collected garbage " + text.Times(n.Collected)},
		{n.Asked, "asked by a signal " + text.Times(n.Asked)},
		{n.Ran, "ran " + text.Count(n.Ran, "command") + " of exec="},
		{n.Failed, text.Count(n.Failed, "action") + " did not work"},
	} {
		if d.n > 0 {
			parts = append(parts, d.line)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	line := "done: " + strings.Join(parts, ", ")
	if n.Freed > 0 {
		line += fmt.Sprintf("; freed %v in all", n.Freed)
	}
	if n.Paused > 0 {
		line += ", trainer paused " + text.Span(n.Paused) + " in all"
	}
	if n.Forked > 0 {
		line += "; data order kept, random draws inside replaced workers changed"
	}
	return line
}

// leftWords names what outlived the command; empty where nothing did.
func leftWords(all []event.Left) string {
	var parts []string
	for _, l := range all {
		what := "process"
		if l.Role != rss.RoleOther && l.Role != "" {
			what = string(l.Role)
		}
		pids := strings.Trim(fmt.Sprint(l.PIDs), "[]")
		if l.Procs > len(l.PIDs) {
			pids += " …"
		}
		parts = append(parts, fmt.Sprintf("%s with %v RSS (PID %s)", text.Count(l.Procs, what), l.RSS, pids))
	}
	if len(parts) == 0 {
		return ""
	}
	return "still running after the command: " + strings.Join(parts, ", ")
}

// slowed says which memory.high allocations waited for, empty where none did. A
// level's count includes the levels below it: the innermost one is to blame.
func slowed(levels []limit.Kills, limits []event.Limit) string {
	var inner *limit.Kills
	for i := range levels {
		if k := &levels[i]; k.High > 0 && (inner == nil || len(k.Level) > len(inner.Level)) {
			inner = k
		}
	}
	if inner == nil {
		return ""
	}
	for i := range limits {
		if l := &limits[i]; l.Name == event.LimitThrottle && l.Level == inner.Level {
			return fmt.Sprintf("allocations above %v were slowed down %s (limit from %s); nothing is killed for that",
				l.Limit, text.Times(int(inner.High)), l.Place())
		}
	}
	return fmt.Sprintf("allocations were slowed down %s by memory.high of %s", text.Times(int(inner.High)), inner.Level)
}
