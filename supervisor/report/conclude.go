package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// gravity orders the verdicts of exit events, from fine to worst.
var gravity = []event.Verdict{
	event.VerdictLed, event.VerdictFine, event.VerdictTight, event.VerdictCarried, event.VerdictUnwatched, event.VerdictAsked,
	event.VerdictNoHelp, event.VerdictRequeued, event.VerdictStopped, event.VerdictKilled, event.VerdictExhausted, event.VerdictOOM,
}

func worse(a, b event.Verdict) bool { return slices.Index(gravity, a) > slices.Index(gravity, b) }

// decisive is of all ends the one that tells why the job ended. A record that goes
// on in another one decides nothing, where there are others.
func decisive(cases []*inquest, last int) *inquest {
	var best *inquest
	for _, handed := range []bool{false, true} {
		for _, q := range cases {
			if q.handedOver() != handed {
				continue
			}
			if best == nil || q.tells(last) < best.tells(last) || q.tells(last) == best.tells(last) && q.before(best) {
				best = q
			}
		}
		if best != nil {
			break
		}
	}
	return best
}

// before orders ends that tell as much: the first of several failures, and of runs
// on several nodes that all ended well the one that came nearest to a limit.
func (q *inquest) before(o *inquest) bool {
	if q.found.cause == event.CauseEnded && q.ranks.led && o.ranks.led {
		a, aok := q.highest()
		b, bok := o.highest()
		if aok && bok && a.max.Ratio() != b.max.Ratio() {
			return a.max.Ratio() > b.max.Ratio()
		}
	}
	return q.wall(q.end).Before(o.wall(o.end))
}

// conclude takes of all runs the finding that tells why the job ended.
func (rep *Report) conclude(looks []*look, cases []*inquest, best *inquest, zone *time.Location) {
	f := &best.found
	rep.Cause, rep.Certainty = f.cause, f.certainty
	rep.Verdict = f.sentence()
	rep.Evidence = slices.Clone(f.evidence)
	if len(cases) > 1 || best.rank != nil {
		rep.Verdict = best.name() + ": " + rep.Verdict
		rep.Evidence = append(rep.Evidence, others(cases, best, zone)...)
	}
	if f.cause == event.CauseEnded {
		switch text := rep.allEnded(best.restarts()); {
		case text != "":
			rep.Verdict = text + "; " + rep.nearestNode()
		case len(cases) > 1:
			rep.Verdict = fmt.Sprintf("all of %s ended with exit status 0; %s", values.Count(len(cases), "run"), rep.Verdict)
		}
	}
	if text := carried(rep, looks); f.cause == event.CauseEnded && text != "" {
		rep.Verdict += "; " + text
	}
}

// allEnded says how many ranks ended well where none is known to have failed, empty
// where records do not tell of ranks.
func (rep *Report) allEnded(life int) string {
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
func (rep *Report) nearestNode() string {
	b := rep.Binding
	if b == nil {
		return "no limit on memory is in the records"
	}
	return fmt.Sprintf("%s came nearest to its limit, %s, with %s", clean(b.Node), b.Limit, fill(b.Limit, b.Used, b.Size))
}

// tells ranks findings: what ended the others first, what they died of next, of
// equals what the record has itself. The runs before a requeue come last.
func (q *inquest) tells(last int) int {
	rank := 0
	switch q.found.cause {
	case event.CauseCrash, event.CauseKilled:
		rank = 1
	case event.CauseCancelled:
		rank = 2
	case event.CauseUnknown:
		rank = 3
	case event.CauseRunning:
		rank = 4
	case event.CauseDetached:
		rank = 5
	case event.CauseEnded:
		rank = 6
	}
	if q.run.Meta.Job != nil && q.restarts() < last {
		rank += 10
	}
	return 3*rank + slices.Index([]Certainty{Seen, Inferred, Slurm}, q.found.certainty)
}

// name tells one end from the others.
func (q *inquest) name() string {
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

func others(cases []*inquest, best *inquest, zone *time.Location) (out []string) {
	left := 0
	for _, q := range cases {
		if q == best || q.restarts() != best.restarts() || q.found.cause == event.CauseEnded && best.found.cause == event.CauseEnded {
			continue
		}
		if len(out) == mostOthers {
			left++
			continue
		}
		out = append(out, fmt.Sprintf("%s, %s: %s", q.wall(q.end).In(zone).Format(time.TimeOnly), q.name(), q.found.sentence()))
	}
	if left > 0 {
		out = append(out, values.Count(left, "more run")+" of this job ended as listed under runs")
	}
	return out
}

// carried says what was done to keep a run that ended well inside its limits.
func carried(rep *Report, looks []*look) string {
	actions, budget := mergeDeeds(looks)
	sum := freed(actions, budget)
	if rep.Outcome != event.VerdictCarried || sum == 0 {
		return ""
	}
	return fmt.Sprintf("kept inside its limit by what gave %v back in all", sum)
}
