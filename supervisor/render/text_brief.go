package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

const labelColumns = 8

// block is one paragraph of a report, behind its label.
type block struct {
	*textReport
	label  string
	begun  bool
	column int // of the second of a pair
}

func (t *textReport) block(label string) *block {
	return &block{textReport: t, label: label, column: 24}
}

// indent is what stands before the next line.
func (k *block) indent() string {
	if k.begun {
		return strings.Repeat(" ", labelColumns)
	}
	k.begun = true
	return fmt.Sprintf("%-*s", labelColumns, k.label)
}

// raw writes a line that fits, with colours of its own.
func (k *block) raw(line string) { k.b.WriteString(k.indent() + line + "\n") }

// say writes a text, wrapped.
func (k *block) say(paint values.Paint, text string) {
	k.styled(paint, k.indent(), strings.Repeat(" ", labelColumns), values.Plain(text))
}

// pair writes what stands first and, dim, what belongs to it: on one line where that fits.
func (k *block) pair(paint values.Paint, first, second string) {
	pad := max(k.column-values.Columns(first), 2)
	if second == "" || labelColumns+values.Columns(first)+pad+values.Columns(second) > k.style.Columns() {
		k.say(paint, first)
		if second != "" {
			k.styled(values.Dim, strings.Repeat(" ", labelColumns+2), strings.Repeat(" ", labelColumns+2), values.Plain(second))
		}
		return
	}
	k.raw(k.style.Paint(paint, k.style.Plain(values.Plain(first))) + strings.Repeat(" ", pad) + k.style.Paint(values.Dim, k.style.Plain(values.Plain(second))))
}

// brief writes how it ended, its memory, what was done, why, what to ask for next and where
// there is more. Of a full report findings have a section of their own.
func (t *textReport) brief(rep *analysis.Result, full bool) {
	b := &rep.Brief
	where := rep.Runs[0].Node
	if rep.Several() {
		where = sizeOf(rep)
	}
	t.head(b.Outcome, Headline(b), cmp.Or(b.Job, b.ID), commandName(b.Command), where, exitWords(b.Code, b.Signal), took(analysis.Seconds(rep.Duration)))
	t.styled(values.Dim, "  ", "  ", rep.Start.In(t.zone).Format(time.DateTime)+" to "+t.clock(rep.End)+", "+values.Command(b.Command, t.style.Columns()-38))
	t.b.WriteByte('\n')
	t.memory(rep, gradePaint[b.Outcome.Grade()])
	t.did(rep, full)
	t.why(rep, full)
	t.next(rep, full)
	t.more(rep)
	t.together(rep)
}

// head is the headline, with which run it was at the right; a fact may be empty.
func (t *textReport) head(o event.RunOutcome, words string, facts ...string) {
	left := Glyph(o) + " " + words
	right := values.Plain(strings.Join(slices.DeleteFunc(facts, func(s string) bool { return s == "" }), " · "))
	pad := t.style.Columns() - values.Columns(left) - values.Columns(right)
	line := t.style.Paint(gradePaint[o.Grade()], t.style.Plain(values.Plain(left)))
	if pad < 2 {
		t.b.WriteString(line + "\n")
		t.styled(values.Dim, "  ", "  ", right)
	} else {
		t.b.WriteString(line + strings.Repeat(" ", pad) + t.style.Paint(values.Dim, t.style.Plain(right)) + "\n")
	}
}

// memory is the peak, the course of use, and the processes that had it.
func (t *textReport) memory(rep *analysis.Result, paint values.Paint) {
	b := &rep.Brief
	k := t.block("Memory")
	k.raw(peakWords(b, t.style, paint))
	if b.Node != "" && len(rep.LastNodes()) > 1 {
		k.say(values.Dim, "on "+b.Node+", the node that came nearest")
	}
	l := nearestOf(rep)
	if l != nil && !t.style.ASCII {
		if line, _ := sparkline(l.Spark); line != "" {
			k.raw(line + t.style.Paint(values.Dim, "   "+l.From.In(t.zone).Format(time.TimeOnly)+" to "+l.To.In(t.zone).Format(time.TimeOnly)))
		}
	}
	if nodeByNode(rep) {
		return
	}
	var parts []string
	part := func(n int, role rss.Role, has rss.Bytes) {
		if has > 0 {
			parts = append(parts, fmt.Sprintf("%s%s %v", values.Count(n, string(role)), poolWords(rep.Roles, role), has))
		}
	}
	if l != nil && len(l.Held) > 0 {
		for _, h := range l.Held {
			part(h.Count, h.Role, h.Bytes)
		}
		if len(parts) > 0 {
			k.say("", "in the fullest sample: "+strings.Join(parts, ", "))
		}
		return
	}
	for i := range rep.Roles {
		r := &rep.Roles[i]
		part(r.Count, r.Role, r.Peak)
	}
	if len(parts) > 0 {
		k.say("", strings.Join(parts, ", ")+" of summed RSS, each at its highest")
	}
}

// poolWords is " (multiprocessing.Pool)" behind pool workers, empty behind any other role.
func poolWords(all []analysis.Role, role rss.Role) string {
	for i := range all {
		if r := &all[i]; r.Role == role && len(r.Pools) > 0 {
			return " (" + values.Plain(strings.Join(r.Pools, ", ")) + ")"
		}
	}
	return ""
}

// nearestOf is the limit of the brief with how it was used over the run, nil where no sample
// has it.
func nearestOf(rep *analysis.Result) *analysis.Limit {
	var best *analysis.Limit
	for i := range rep.Limits {
		l := &rep.Limits[i]
		if p := rep.Brief.Peak; p != nil && l.Name == p.Name && l.Scope == p.Scope && (best == nil || l.Ratio() > best.Ratio()) {
			best = l
		}
	}
	return best
}

// did is the ledger of actions, a line for each kind; full has those that did not work.
func (t *textReport) did(rep *analysis.Result, full bool) {
	s := &rep.Brief.Saved
	k := t.block("Did")
	if s.WorkerTrims > 0 {
		k.pair("", values.Count(s.WorkerTrims, "trim")+" by workers", fmt.Sprintf("%v of pages, kept in the page cache", s.Dropped))
	}
	if rep.Brief.Helped == event.HelpedDryRun {
		k.say("", "nothing: it was a dry run")
	}
	for i := range s.Actions {
		a := &s.Actions[i]
		if full {
			k.say("", actionLine(a))
			continue
		}
		if a.Action == event.ActionWarn || a.Worked == 0 {
			continue
		}
		first := values.Count(a.Worked, string(a.Action))
		var parts []string
		if a.Freed > 0 {
			parts = append(parts, fmt.Sprintf("freed %v", a.Freed))
		}
		if a.Paused > 0 {
			parts = append(parts, "trainer paused "+values.Span(analysis.Seconds(a.Paused)))
		}
		if n := a.Fired - a.Worked; n > 0 {
			parts = append(parts, fmt.Sprintf("%d more did not work", n))
		}
		k.pair("", first, strings.Join(parts, "; "))
	}
	if text := phrase.Skipped(s); !full && text != "" && rep.Brief.Helped != event.HelpedDryRun {
		k.say("", text)
	}
	for i := range rep.Cures {
		k.say("", string(rep.Cures[i].Remedy)+": "+cureText(&rep.Cures[i]))
	}
}

// mostWhys bounds what was found that a report begins with; --full has all.
const mostWhys = 2

func (t *textReport) why(rep *analysis.Result, full bool) {
	k := t.block("Why")
	if rep.Cause != event.CauseEnded || rep.Several() { // else the headline has said it
		k.say("", rep.Verdict)
	}
	if full {
		return
	}
	shown := min(len(rep.Findings), mostWhys)
	for i := range rep.Findings[:shown] {
		d := &rep.Findings[i]
		text := findingTitle(d, len(rep.Runs))
		if len(d.Evidence) > 0 {
			text += ": " + d.Evidence[0]
		}
		k.say("", text)
		if len(d.Advice) > 0 {
			k.say(values.Bold, "do: "+d.Advice[0])
		}
	}
	if n := len(rep.Findings) - shown; n > 0 {
		k.say("", "and "+values.Count(n, "more finding")+": --full")
	}
	if n := len(rep.Notes); n > 0 && slices.ContainsFunc(rep.Runs, func(r analysis.Run) bool { return len(r.Damage) > 0 }) {
		k.say("", "parts of the record could not be read: --full")
	}
}

func (t *textReport) next(rep *analysis.Result, full bool) {
	k := t.block("Next")
	b := &rep.Brief
	if text := cure(b); text != "" {
		k.say(values.Bold, text)
	}
	for i := range rep.Advice {
		l := &rep.Advice[i]
		line := l.Line
		if i == 0 && b.Next.Kind == event.NextKeep {
			line = "keep " + line
		}
		k.advice(l, line, full)
	}
	k.wholeJob(b)
}

// advice is a line to type and why, with what it rests on where that is asked for.
func (k *block) advice(l *analysis.AdviceLine, line string, rests bool) {
	k.pair(values.Bold, line, l.Why)
	if rests && l.Evidence != "" {
		k.styled(values.Dim, strings.Repeat(" ", labelColumns+2), strings.Repeat(" ", labelColumns+2), values.Plain(l.Evidence))
	}
}

// wholeJobUntil is the length up to which a run that ended well is taken for a try-out of a
// longer one.
const wholeJobUntil = 15 * time.Minute

// wholeJob says what the whole job will need, where what was seen may be a part of it.
func (k *block) wholeJob(b *analysis.Brief) {
	n := b.Need
	if n == nil || b.OK() && b.Duration() > wholeJobUntil {
		return
	}
	const without = "whole job without rsswarden, estimate"
	switch {
	case n.Open == "":
		k.pair(values.Bold, spanOf(n.Without), without)
	case n.Without.High > 0:
		k.pair(values.Bold, "up to "+phrase.Roughly(n.Without.High), without)
		k.say("", "no closer: "+openWords(n))
	default:
		k.pair(values.Bold, "not known", "whole job without rsswarden")
		k.say("", phrase.Roughly(n.Peak)+" so far; "+openWords(n))
	}
	if n.With != nil {
		k.pair(values.Bold, spanOf(*n.With), "whole job with rsswarden, estimate")
	}
}

// spanOf is a range: "1.9 to 2.3 GiB".
func spanOf(r analysis.MemRange) string {
	low, unit, _ := strings.Cut(phrase.Roughly(r.Low), " ")
	high := phrase.Roughly(r.High)
	if !strings.HasSuffix(high, unit) {
		low += " " + unit
	}
	return low + " to " + high
}

// openWords is why it is not known what the whole job needs.
func openWords(n *analysis.Need) string {
	workers := values.Count(n.Workers, "worker")
	switch n.Open {
	case analysis.NeedShort:
		return "workers were seen for less than a minute"
	case analysis.NeedGrows:
		of := map[rss.Role]string{rss.RoleWorker: "workers grow", rss.RoleTrainer: "the trainer grows"}[n.Grows]
		return fmt.Sprintf("%s %s/min, no bound known", cmp.Or(of, "it grows"), phrase.Roughly(60*n.Rate))
	case analysis.NeedRecycled:
		return "recycles hid how far workers grow: try --dry-run"
	case analysis.NeedFiles:
		if n.Each == 0 {
			return workers + " still read new pages of files, how many there are was not read"
		}
		return fmt.Sprintf("%s map up to %s each and still read new pages", workers, phrase.Roughly(n.Each))
	case analysis.NeedTrimmed:
		return fmt.Sprintf("%s map up to %s each, trims hid what they read: try --dry-run", workers, phrase.Roughly(n.Each))
	case analysis.NeedCopies:
		return workers + " still copy the trainer's memory"
	}
	return ""
}

func (t *textReport) more(rep *analysis.Result) {
	k := t.block("More")
	which := cmp.Or(values.Plain(rep.Job), rep.Brief.ID)
	if which == "" {
		return
	}
	if b := &rep.Brief; b.Outcome == event.RunKilled && b.Job != "" {
		k.say("", "sacct -j "+b.Job+" -o State,Reason,ExitCode")
	}
	k.pair("", "rsswarden report "+which+" --full", "limits, processes, evidence")
	k.pair("", "rsswarden report "+which+" --html run.html", "a page with the chart")
}
