package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// summaryLines is what a person reads at the end.
func (w *watcher) summaryLines(exit *hold.Exit, out *event.Exit, run policy.Run) []string {
	s := &w.sum
	how := "rsswarden's holder ended first"
	switch {
	case s.stopped:
		how = fmt.Sprintf("stopped by rsswarden, exit status %d", w.Settings.StopStatus)
	case out.Signal != nil:
		how = "killed by " + *out.Signal
	case exit != nil:
		how = fmt.Sprintf("exit status %d", exit.Code)
	}
	how += " after " + text.Span(w.runTime())
	if w.Attached != nil {
		how = w.lastWords(exit != nil)
	}
	whose := "its tree"
	if s.ranks > 1 {
		whose = fmt.Sprintf("the trees of %d ranks on node %s together", s.ranks, slurm.NodeName(w.Lookup))
	}
	lines := []string{fmt.Sprintf("%s; peaks of %s: %s", how, whose, peaks(&s.peaks))}
	lines = append(lines, s.nearestLines()...)
	if s.unread > 0 && !strings.Contains(out.AdviceWhy, s.unreadWords()) {
		lines = append(lines, s.unreadWords())
	}
	if out.Verdict != event.VerdictExhausted {
		lines = append(lines, s.sideLines()...)
	}
	lines = append(lines, w.findingLines()...)
	lines = append(lines, s.cures...)
	if line := s.deeds(); line != "" {
		lines = append(lines, line)
	}
	if s.slowed != "" {
		lines = append(lines, s.slowed)
	}
	if run.OOMKills > 0 {
		lines = append(lines, fmt.Sprintf("the kernel's OOM killer ended at least %d of its processes", run.OOMKills))
	}
	if line := leftWords(out.Left); line != "" {
		lines = append(lines, line)
	}
	if s.othersKilled > 0 {
		lines = append(lines, fmt.Sprintf("the kernel's OOM killer ended at least %s of its cgroup, none of this run as far as was seen", text.Count(int(s.othersKilled), "process")))
	}
	verdict := "verdict: " + string(out.Verdict)
	if s.requeue.done != nil {
		verdict += " with " + s.requeue.done.String()
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
func (s *summary) nearestLines() (lines []string) {
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
	case n.Ratio() >= nearShare && n.Ratio() > own.Ratio():
		lines = append(lines, "nearer still: "+how(n)+", all that runs there together")
	}
	return lines
}

// sideLines tells of each such limit that came near, and what to change.
func (s *summary) sideLines() (lines []string) {
	for _, name := range event.Limits {
		if l, ok := s.sides[name]; ok && l.Ratio() >= nearShare {
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
func (s *summary) unreadWords() string {
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

// deeds says what was done and what it cost.
func (s *summary) deeds() string {
	var parts []string
	if s.budgetTrims > 0 {
		revised := ""
		if s.budgetTold != 0 && s.budget.String() != s.budgetTold.String() {
			revised = fmt.Sprintf("; at first it was %v", s.budgetTold)
		}
		parts = append(parts, fmt.Sprintf("workers trimmed themselves %s to keep to %v of mapped file pages each (%v given back in all%s)",
			text.Times(s.budgetTrims), s.budget, s.budgetFreed, revised))
	}
	if s.trims > 0 {
		parts = append(parts, "trimmed "+text.Times(s.trims))
	}
	if s.recycles > 0 {
		parts = append(parts, fmt.Sprintf("recycled %s", text.Count(s.recycles, "worker")))
	}
	if n := s.signalled - (s.recycles - s.forked); n > 0 {
		parts = append(parts, "signalled "+text.Count(n, "pool worker")+" of which no replacement was seen")
	}
	if s.collected > 0 {
		parts = append(parts, "collected garbage "+text.Times(s.collected))
	}
	if s.asked > 0 {
		parts = append(parts, "asked by a signal "+text.Times(s.asked))
	}
	if s.ran > 0 {
		parts = append(parts, "ran "+text.Count(s.ran, "command")+" of exec=")
	}
	if s.failed > 0 {
		parts = append(parts, text.Count(s.failed, "action")+" did not work")
	}
	if len(parts) == 0 {
		return ""
	}
	line := "done: " + strings.Join(parts, ", ")
	if s.freed > 0 {
		line += fmt.Sprintf("; freed %v in all", s.freed)
	}
	if s.paused > 0 {
		line += ", trainer paused " + text.Span(s.paused) + " in all"
	}
	if s.forked > 0 {
		line += "; data order kept, random draws inside replaced workers changed"
	}
	return line
}
