// Package render puts what package analysis found into words, tables and pages.
//
// A sentence never says more than is known. What the record shows is told as
// seen; what follows from it as likely, with what it follows from; what Slurm
// says as Slurm's.
package render

import (
	"fmt"
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
	for i := range rep.Lives {
		l, end := &rep.Lives[i], rep.LifeEnds[i]
		l.Verdict = tell(end, now).sentence(&end.Found)
		if len(rep.Scanned) > 1 {
			l.Verdict = endName(end) + ": " + l.Verdict
		}
	}
	conclude(rep, now)
	if rep.Forecast != nil {
		rep.Forecast.Note = forecastNote(rep.Forecast)
	}
	rep.Notes = append(missingNotes(rep), notes(rep.Scanned, zone)...)
	if rep.Clock != nil {
		if rep.Clock.Note = clockNote(rep); rep.Told && rep.Clock.Note != "" {
			rep.Notes = append(rep.Notes, rep.Clock.Note)
		}
	}
	if rep.Advice = advise(rep.Scanned, false); rep.Advice == nil {
		rep.Advice = []analysis.AdviceLine{}
	}
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
		switch text := allEnded(rep, best.Restarts()); {
		case text != "":
			rep.Verdict = text + "; " + nearestNode(rep)
		case len(cases) > 1:
			rep.Verdict = fmt.Sprintf("all of %s ended with exit status 0; %s", values.Count(len(cases), "run"), rep.Verdict)
		}
	}
	if text := carried(rep); f.Cause == event.CauseEnded && text != "" {
		rep.Verdict += "; " + text
	}
}

// allEnded says how many ranks ended well where none is known to have failed, empty
// where records do not tell of ranks.
func allEnded(rep *analysis.Result, life int) string {
	if !rep.Told {
		return ""
	}
	all, ended, nodes := 0, 0, map[string]bool{}
	for i := range rep.Ranks {
		if r := &rep.Ranks[i]; r.Restart == life {
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
	return fmt.Sprintf("%d of %s%s ended with exit status 0, how the %s ended is not in the records", ended, values.Count(all, "rank"), where, others)
}

// nearestNode says which node came nearest to its limit, for the end of a verdict.
func nearestNode(rep *analysis.Result) string {
	b := rep.Binding
	if b == nil {
		return "no limit on memory is in the records"
	}
	return fmt.Sprintf("%s came nearest to its limit, %s, with %s", values.Plain(b.Node), b.Limit, phrase.Fill(b.Limit, b.Used, b.Size))
}

// endName tells one end from the others.
func endName(q *analysis.Case) string {
	if q.Rank == nil {
		return runName(q.RunScan)
	}
	return rankOnNode(q.RunScan, q.Rank.Step, q.Rank.Task)
}

// runName tells one run from the others.
func runName(k *analysis.RunScan) string {
	if j := k.Run.Meta.Job; j != nil {
		return rankOnNode(k, j.Step, j.Task)
	}
	return values.Plain(k.Run.Meta.Node)
}

func rankOnNode(k *analysis.RunScan, step string, task int) string {
	m := &k.Run.Meta
	name := values.Plain(m.Node)
	if m.Job != nil {
		if step != "" {
			name += fmt.Sprintf(", step %s", values.Plain(step))
		}
		name += fmt.Sprintf(", task %d", task)
		if m.Job.Restarts > 0 {
			name += fmt.Sprintf(", restart %d", m.Job.Restarts)
		}
	}
	return strings.TrimPrefix(name, ", ")
}

// mostOthers bounds the runs that are told one by one.
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
		out = append(out, values.Count(left, "more run")+" of this job ended as listed under runs")
	}
	return out
}

// carried says what was done to keep a run that ended well inside its limits.
func carried(rep *analysis.Result) string {
	sum := analysis.Freed(rep.Actions, rep.Budget)
	if rep.Outcome != event.VerdictCarried || sum == 0 {
		return ""
	}
	return fmt.Sprintf("kept inside its limit by what gave %v back in all", sum)
}
