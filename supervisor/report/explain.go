package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Explain puts a report into words: it fills in its sentences, with times in the zone of
// now.
func Explain(rep *Report, now time.Time) {
	if len(rep.Runs) == 0 {
		rep.Evidence, rep.Advice = []string{}, []Line{}
		rep.Verdict = "there is no record of it"
		if said := rep.Slurm; said != nil {
			rep.Verdict += ": " + slurmSays(said, nil)
		}
		return
	}
	zone := now.Location()
	for i := range rep.Lives {
		l := &rep.Lives[i]
		l.Verdict = tell(l.best, now).sentence(&l.best.found)
		if len(rep.looks) > 1 {
			l.Verdict = endName(l.best) + ": " + l.Verdict
		}
	}
	conclude(rep, now)
	if rep.Forecast != nil {
		rep.Forecast.Note = forecastNote(rep.Forecast)
	}
	rep.Notes = append(missingNotes(rep), notes(rep.looks, zone)...)
	if rep.Clock != nil {
		if rep.Clock.Note = clockNote(rep); rep.told && rep.Clock.Note != "" {
			rep.Notes = append(rep.Notes, rep.Clock.Note)
		}
	}
	if rep.Advice = advise(rep.facts, false); rep.Advice == nil {
		rep.Advice = []Line{}
	}
}

func tell(q *inquest, now time.Time) *teller { return &teller{q, now.Location(), now} }

// conclude takes of all runs the finding that tells why the job ended.
func conclude(rep *Report, now time.Time) {
	cases, best := rep.cases, rep.best
	f := &best.found
	rep.Verdict = tell(best, now).sentence(f)
	rep.Evidence = tell(best, now).evidence(f)
	if len(cases) > 1 || best.rank != nil {
		rep.Verdict = endName(best) + ": " + rep.Verdict
		rep.Evidence = append(rep.Evidence, others(cases, best, now)...)
	}
	if f.cause == event.CauseEnded {
		switch text := allEnded(rep, best.restarts()); {
		case text != "":
			rep.Verdict = text + "; " + nearestNode(rep)
		case len(cases) > 1:
			rep.Verdict = fmt.Sprintf("all of %s ended with exit status 0; %s", values.Count(len(cases), "run"), rep.Verdict)
		}
	}
	if text := carried(rep); f.cause == event.CauseEnded && text != "" {
		rep.Verdict += "; " + text
	}
}

// allEnded says how many ranks ended well where none is known to have failed, empty
// where records do not tell of ranks.
func allEnded(rep *Report, life int) string {
	if !rep.told {
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
func nearestNode(rep *Report) string {
	b := rep.Binding
	if b == nil {
		return "no limit on memory is in the records"
	}
	return fmt.Sprintf("%s came nearest to its limit, %s, with %s", clean(b.Node), b.Limit, phrase.Fill(b.Limit, b.Used, b.Size))
}

// endName tells one end from the others.
func endName(q *inquest) string {
	if q.rank == nil {
		return runName(q.look)
	}
	return rankOnNode(q.look, q.rank.step, q.rank.task)
}

// runName tells one run from the others.
func runName(k *look) string {
	if j := k.run.Meta.Job; j != nil {
		return rankOnNode(k, j.Step, j.Task)
	}
	return clean(k.run.Meta.Node)
}

func rankOnNode(k *look, step string, task int) string {
	m := &k.run.Meta
	name := clean(m.Node)
	if m.Job != nil {
		if step != "" {
			name += fmt.Sprintf(", step %s", clean(step))
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

func others(cases []*inquest, best *inquest, now time.Time) (out []string) {
	left := 0
	for _, q := range cases {
		if q == best || q.restarts() != best.restarts() || q.found.cause == event.CauseEnded && best.found.cause == event.CauseEnded {
			continue
		}
		if len(out) == mostOthers {
			left++
			continue
		}
		out = append(out, fmt.Sprintf("%s, %s: %s", q.wall(q.end).In(now.Location()).Format(time.TimeOnly), endName(q), tell(q, now).sentence(&q.found)))
	}
	if left > 0 {
		out = append(out, values.Count(left, "more run")+" of this job ended as listed under runs")
	}
	return out
}

// carried says what was done to keep a run that ended well inside its limits.
func carried(rep *Report) string {
	sum := freed(rep.Actions, rep.Budget)
	if rep.Outcome != event.VerdictCarried || sum == 0 {
		return ""
	}
	return fmt.Sprintf("kept inside its limit by what gave %v back in all", sum)
}
