// Package render puts what package analysis found into words, tables and pages.
//
// A sentence never says more than is known. What the record shows is called
// seen; what follows from it likely, with what it follows from; what Slurm
// says is Slurm's.
package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Explain puts a report into words: it fills in its sentences, with times in the zone of
// now.
func Explain(rep *analysis.Result, now time.Time) {
	if len(rep.Runs) == 0 {
		rep.Evidence, rep.Advice = []string{}, []analysis.AdviceLine{}
		rep.Verdict = "there is no record of it"
		if said := rep.Slurm; said != nil {
			rep.Verdict += ": " + slurmSays(said, nil)
		}
		return
	}
	zone := now.Location()
	for i := range rep.Attempts {
		l, end := &rep.Attempts[i], rep.AttemptEnds[i]
		l.Verdict = tell(end, now).sentence(&end.Found)
		if len(rep.Scanned) > 1 {
			l.Verdict = endName(end) + ": " + l.Verdict
		}
	}
	conclude(rep, now)
	rep.Notes = append(missingNotes(rep), notes(rep.Scanned, zone)...)
	if slices.ContainsFunc(rep.Nodes, func(n analysis.Node) bool { return n.Node != rep.Nodes[0].Node }) {
		rep.Notes = append(rep.Notes, "times are of each node's own clock, which may differ")
	}
	rep.Advice = adviceOf(rep)
}

func tell(q *analysis.Case, now time.Time) *caseText { return &caseText{q, now.Location(), now} }

// conclude takes of all runs the finding that tells why the job ended.
func conclude(rep *analysis.Result, now time.Time) {
	cases, best := rep.Cases, rep.Best
	f := &best.Found
	rep.Verdict = tell(best, now).sentence(f)
	rep.Evidence = tell(best, now).evidence(f)
	if len(cases) > 1 || best.Rank != nil {
		rep.Verdict = endName(best) + ": " + rep.Verdict
		rep.Evidence = append(rep.Evidence, others(cases, best, now)...)
	}
	if f.Cause == event.CauseEnded {
		if text := allEnded(rep, best.Restarts()); text != "" {
			rep.Verdict = text + "; " + nearestNode(rep)
		}
	}
}

// allEnded says how many ranks ended well where none is known to have failed, empty for one.
func allEnded(rep *analysis.Result, attempt int) string {
	all, ended, nodes := 0, 0, map[string]bool{}
	for i := range rep.Ranks {
		if r := &rep.Ranks[i]; r.Restart == attempt {
			all++
			nodes[r.Node] = true
			if r.Code != nil && *r.Code == 0 {
				ended++
			}
		}
	}
	where := " on " + values.Count(len(nodes), "node")
	if rep.Unrecorded > 0 {
		where += " with a record"
	}
	switch {
	case all < 2:
		return ""
	case ended == all && all == 2:
		return "both ranks" + where + " ended with exit status 0"
	case ended == all:
		return "all " + values.Count(all, "rank") + where + " ended with exit status 0"
	}
	others := "others"
	if all-ended == 1 {
		others = "other"
	}
	return fmt.Sprintf("%d of %s%s ended with exit status 0, how the %s ended is not recorded", ended, values.Count(all, "rank"), where, others)
}

// nearestNode says which node came nearest to its limit, for the end of a verdict.
func nearestNode(rep *analysis.Result) string {
	b := rep.Binding
	if b == nil {
		return "no limit on memory is in the records"
	}
	return fmt.Sprintf("%s came nearest to its limit, %s, with %s", values.Plain(b.Node), b.Limit, phrase.Fill(b.Limit, b.Used, b.Size))
}

func endName(q *analysis.Case) string {
	if q.Rank == nil {
		return runName(q.RunScan)
	}
	return place(q.Run.Meta.Node, q.Rank.Step, q.Rank.Task, q.Restarts())
}

func runName(k *analysis.RunScan) string {
	if j := k.Run.Meta.Job; j != nil {
		return place(k.Run.Meta.Node, j.Step, j.Task, j.Restarts)
	}
	return values.Plain(k.Run.Meta.Node)
}

// place is where a rank ran: "n1, step 0, task 3, attempt 2".
func place(node, step string, task, restart int) string {
	name := values.Plain(node)
	if step != "" {
		name += ", step " + values.Plain(step)
	}
	name += fmt.Sprintf(", task %d", task)
	if restart > 0 {
		name += fmt.Sprintf(", attempt %d", restart+1)
	}
	return strings.TrimPrefix(name, ", ")
}

const mostOthers = 8

func others(cases []*analysis.Case, best *analysis.Case, now time.Time) (out []string) {
	left := 0
	for _, q := range cases {
		if q == best || q.Restarts() != best.Restarts() || q.Found.Cause == event.CauseEnded && best.Found.Cause == event.CauseEnded {
			continue
		}
		if len(out) == mostOthers {
			left++
			continue
		}
		out = append(out, fmt.Sprintf("%s, %s: %s", q.Wall(q.End).In(now.Location()).Format(time.TimeOnly), endName(q), tell(q, now).sentence(&q.Found)))
	}
	if left > 0 {
		out = append(out, values.Count(left, "more run")+" of this job ended as listed under ranks")
	}
	return out
}

const mostNotes = 6

// notes say what is missing or doubtful: what several runs have in common once, with
// how many they are.
func notes(looks []*analysis.RunScan, zone *time.Location) (out []string) {
	var texts []string
	names := map[string][]string{} // of the runs that a text is on
	unit := "rank"
	for _, k := range looks {
		r := k.Run
		if r.Meta.Job == nil {
			unit = "run"
		}
		add := func(format string, args ...any) {
			s := fmt.Sprintf(format, args...)
			if names[s] == nil {
				texts = append(texts, s)
			}
			if name := runName(k); !slices.Contains(names[s], name) {
				names[s] = append(names[s], name)
			}
		}
		if r.JournalOnly {
			add("only the journal was found: it has %s, roles in place of processes, and no PSS", values.Count(k.Samples, "sample"))
		}
		for _, d := range r.Damage[:min(len(r.Damage), mostNotes)] {
			add("part of the record could not be read: %s", values.Plain(values.JoinLines(d)))
		}
		if n := len(r.Damage) - mostNotes; n > 0 {
			add("%s more could not be read", values.Count(n, "part"))
		}
		if r.Thinned {
			add("old samples were thinned: one stands for 10 s or more, the fullest of them")
		}
		if r.Dropped > 0 {
			add("%s were taken out, there were too many", values.Count(r.Dropped, "event"))
		}
		if k.Samples == 0 {
			add("no sample in the record: it ended before the first was written")
		}
		faults := outgrown(k.Faults)
		for _, f := range faults[:min(len(faults), mostNotes)] {
			if said, ok := strings.CutPrefix(f, "start: "); ok { // nothing had worked yet
				add("at the start: %s", values.Plain(said))
				continue
			}
			add("a part of rsswarden had stopped working: %s", values.Plain(f))
		}
		for _, why := range k.Unreached {
			add("the loader hook did not reach a process that had loaded PyTorch, so its workers were not replaced, and not trimmed but by ptrace: %s", values.Plain(values.JoinLines(why)))
		}
		if r.Meta.Attached {
			add("it was watched from outside, from %s on", r.Meta.Start.In(zone).Format(time.DateTime))
		}
	}
	for _, text := range texts {
		switch list := names[text]; {
		case len(looks) == 1:
		case len(list) == 1:
			text = list[0] + ": " + text
		default:
			text = fmt.Sprintf("%s, the first %s: %s", values.Count(len(list), unit), list[0], text)
		}
		out = append(out, text)
	}
	return out
}

// outgrown leaves out what comes again later with further failures.
func outgrown(all []string) (out []string) {
	faults := make([]string, len(all))
	for i, f := range all {
		faults[i] = values.JoinLines(f)
	}
	for i, f := range faults {
		if !slices.ContainsFunc(faults[i+1:], func(o string) bool { return strings.HasPrefix(o, f) }) {
			out = append(out, f)
		}
	}
	return out
}

// missingNotes say of which nodes there is no record.
func missingNotes(j *analysis.Result) []string {
	if j.Unrecorded == 0 {
		return nil
	}
	if len(j.Missing) == 0 {
		return []string{fmt.Sprintf("of %s of the job there is no record, and Slurm did not say of which%s", values.Count(j.Unrecorded, "node"), whyMissing)}
	}
	shown := j.Missing[:min(len(j.Missing), mostShown)]
	text := values.Plain(strings.Join(shown, ", "))
	if n := len(j.Missing) - len(shown); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return []string{fmt.Sprintf("there is no record of %s, which Slurm gave to the job%s", text, whyMissing)}
}

const whyMissing = ": no rsswarden ran there, or for less than a minute without a rule that fired, or what it left lies on that node alone or in a directory that was not looked through"
