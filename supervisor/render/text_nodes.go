package render

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// mostNodesApart is of how many nodes a terminal shows peaks, roles and actions:
// those that came nearest to a limit.
const mostNodesApart = 4

// nodeByNode says that peaks and roles are shown node by node.
func nodeByNode(rep *analysis.Result) bool { return len(rep.LastNodes()) > 1 }

// sizeOf is "4 ranks on 2 nodes, 2 attempts".
func sizeOf(j *analysis.Result) string {
	text := values.Count(len(j.LastRanks()), "rank") + " on " + values.Count(len(j.LastNodes()), "node")
	if n := len(j.Attempts); n == 2 {
		text += ", requeued once"
	} else if n > 2 {
		text += fmt.Sprintf(", requeued %s", values.Times(n-1))
	}
	return text
}

// together writes what a job of several ranks, nodes or attempts came to.
func (t *textReport) together(rep *analysis.Result) {
	if !rep.Several() {
		return
	}
	t.b.WriteByte('\n')
	for _, note := range togetherNotes(rep, t.zone) {
		t.para("", "  ", values.Plain(note))
	}
	if n := len(rep.Leads) - mostShown; n > 0 {
		t.para("", "  ", "and "+values.Count(n, "more change")+" of lead")
	}
	t.attempts(rep)
	t.nodes(rep)
	t.ranks(rep)
}

// togetherNotes say which limit came nearest, which nodes have no record, and who led.
func togetherNotes(rep *analysis.Result, zone *time.Location) (notes []string) {
	if rep.Binding != nil {
		notes = append(notes, bindingSentence(rep.Binding, zone))
	}
	notes = append(notes, missingNotes(rep)...)
	for i := range rep.Leads[:min(len(rep.Leads), mostShown)] {
		notes = append(notes, leadSentence(&rep.Leads[i]))
	}
	return notes
}

// bindingSentence says which limit on which node the job came to, and whose memory it was.
func bindingSentence(b *analysis.Binding, zone *time.Location) string {
	verb := "came nearest to its limit"
	if b.Decided {
		verb = "met its limit"
	}
	name := string(b.Limit)
	if b.Scope != "" && string(b.Scope) != name {
		name += ", " + string(b.Scope)
	}
	text := fmt.Sprintf("%s %s: %s at %s", b.Node, verb, name, phrase.Fill(b.Limit, b.Used, b.Size))
	if !b.At.IsZero() {
		text += ", at " + b.At.In(zone).Format(time.TimeOnly)
	}
	switch who := (analysis.RankKey{Step: b.Step, Task: b.Task}).String(); {
	case b.RankRSS > 0:
		text += fmt.Sprintf("; of its ranks %s had most then, %v by RSS", who, b.RankRSS)
	case b.Task >= 0:
		text += "; it was " + who + " that ended"
	default:
		text += "; which rank had most then is not recorded"
	}
	return text
}

func (t *textReport) attempts(rep *analysis.Result) {
	t.section("attempts")
	for i := range rep.Attempts[:min(len(rep.Attempts), mostShown)] {
		l := &rep.Attempts[i]
		line := fmt.Sprintf("%s, %s", values.Span(analysis.Seconds(l.Duration)), l.Cause)
		if l.Binding != nil {
			line += fmt.Sprintf(", at most %s on %s", phrase.Fill(l.Binding.Limit, l.Binding.Used, l.Binding.Size), values.Plain(l.Binding.Node))
		}
		t.para("  ", "     ", fmt.Sprintf("%d: %s, %s: %s", l.Restart+1, l.Start.In(t.zone).Format(time.DateTime), line, values.Plain(l.Verdict)))
	}
}

func (t *textReport) nodes(rep *analysis.Result) {
	nodes := rep.LastNodes()
	if len(nodes) == 0 {
		return
	}
	t.section("nodes, each with the memory limit that it came nearest to")
	t.line("  %-12s %-8s %9s %9s %7s %9s %8s %8s", "node", "limit", "peak", "of", "share", "headroom", "decided", "recycled")
	for i := range nodes[:min(len(nodes), mostShown)] {
		n := &nodes[i]
		near := n.Nearest
		if near == nil {
			t.line("  %-12s %-8s %9s %9s %7s %9s %8d %8d", values.Plain(n.Node), "-", "-", "-", "-", "-", n.Decisions, n.Recycled)
			continue
		}
		t.line("  %-12s %-8s %9v %9v %7s %9v %8d %8d", values.Plain(n.Node), near.Limit, near.Used, near.Size, values.Percent(near.Share), near.Headroom, n.Decisions, n.Recycled)
	}
	if n := len(nodes) - mostShown; n > 0 {
		t.line("  and %s further from their limits", values.Count(n, "node"))
	}
}

// ranks writes a table of ranks: those that failed, then those with most memory.
func (t *textReport) ranks(rep *analysis.Result) {
	all := rep.LastRanks()
	if len(all) < 2 {
		return
	}
	list := slices.Clone(all)
	if len(list) > mostShown {
		slices.SortStableFunc(list, func(a, b analysis.Rank) int {
			if a.Failed() && b.Failed() {
				return a.End.Compare(b.End)
			}
			return cmp.Or(b2i(b.Failed())-b2i(a.Failed()), cmp.Compare(b.Most(), a.Most()))
		})
	}
	t.section("ranks, each with the most by RSS that its processes had together")
	t.line("  %-12s %6s %5s %9s  %-8s %7s  %s", "node", "step", "task", "peak", "at", "workers", "end")
	for i := range list[:min(len(list), mostShown)] {
		r := &list[i]
		peak, at, workers := "-", "-", "-"
		if r.Peak != nil {
			peak, at, workers = r.Peak.String(), t.clock(r.PeakAt), values.Digits(uint64(r.Workers))
		}
		end := "-"
		if !r.End.IsZero() {
			end = t.clock(r.End)
		}
		task := "-"
		if r.Task >= 0 {
			task = fmt.Sprint(r.Task)
		}
		t.line("  %-12s %6s %5s %9s  %-8s %7s  %-8s  %s", values.Plain(r.Node), values.Plain(r.Step), task, peak, at, workers, end, values.Plain(rankHow(r)))
	}
	if n := len(list) - mostShown; n > 0 {
		failed := 0
		for _, r := range list[mostShown:] {
			failed += b2i(r.Failed())
		}
		of := "none"
		if failed > 0 {
			of = fmt.Sprint(failed)
		}
		t.line("  and %s, %s of them failed; --json has all", values.Count(n, "more rank"), of)
	}
}

// eachNode writes the lines of single nodes where there are several.
func (t *textReport) eachNode(rep *analysis.Result) {
	if !nodeByNode(rep) {
		return
	}
	nodes := rep.LastNodes()
	for i := range nodes[:min(len(nodes), mostNodesApart)] {
		n := &nodes[i]
		t.section(fmt.Sprintf("on %s: %s, %s to %s", values.Plain(n.Node), values.Count(n.Ranks, "rank"), t.clock(n.Start), t.clock(n.End)))
		t.peaks(&n.Peaks)
		t.roles(n.Roles)
		for i := range n.Actions {
			t.para("  ", "    ", values.Plain(actionLine(&n.Actions[i])))
		}
	}
	if n := len(nodes) - mostNodesApart; n > 0 {
		t.section(fmt.Sprintf("and %s; --json has what each came to", values.Count(n, "more node")))
		t.begin()
	}
}

func leadSentence(c *analysis.LeadChange) string {
	why := "whose rank had ended"
	if c.Lost {
		why = "whose watcher was gone"
	}
	text := fmt.Sprintf("on %s the lead went from %s, %s, to %s at %s", values.Plain(c.Node),
		analysis.RankKey{Step: c.FromStep, Task: c.From}.String(), why, analysis.RankKey{Step: c.ToStep, Task: c.To}.String(), c.Time.Format(time.TimeOnly))
	if c.Gap >= 0.05 {
		text += fmt.Sprintf("; nothing was recorded there for %s", values.Span(analysis.Seconds(c.Gap)))
	}
	return text
}

// rankHow is how a rank ended, for a table.
func rankHow(r *analysis.Rank) string {
	switch how := exitWords(r.Code, r.Signal); {
	case how != "":
		return how
	case !r.End.IsZero():
		return "ended"
	case r.Live:
		return "runs"
	}
	return "not known"
}
