package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// gravity orders the verdicts of exit events, from fine to worst.
var gravity = []event.Verdict{
	event.VerdictFine, event.VerdictTight, event.VerdictCarried, event.VerdictUnwatched, event.VerdictAsked,
	event.VerdictNoHelp, event.VerdictStopped, event.VerdictKilled, event.VerdictExhausted, event.VerdictOOM,
}

func worse(a, b event.Verdict) bool { return slices.Index(gravity, a) > slices.Index(gravity, b) }

// conclude takes of all runs the finding that tells why the job ended.
func (rep *Report) conclude(looks []*look, found []finding, last int, now time.Time) {
	best := -1
	for i := range found {
		if best < 0 || tells(looks[i], &found[i], last) < tells(looks[best], &found[best], last) ||
			tells(looks[i], &found[i], last) == tells(looks[best], &found[best], last) && looks[i].wall(looks[i].end).Before(looks[best].wall(looks[best].end)) {
			best = i
		}
	}
	f := &found[best]
	rep.Cause, rep.Certainty = f.cause, f.certainty
	rep.Verdict = f.sentence()
	rep.Evidence = slices.Clone(f.evidence)
	if len(found) > 1 {
		rep.Verdict = runName(looks[best]) + ": " + rep.Verdict
		rep.Evidence = append(rep.Evidence, others(looks, found, best, now.Location())...)
		if f.cause == event.CauseEnded {
			rep.Verdict = fmt.Sprintf("all of %s ended with exit status 0; %s", many(len(found), "run"), rep.Verdict)
		}
	}
	if text := carried(rep, looks); f.cause == event.CauseEnded && text != "" {
		rep.Verdict += "; " + text
	}
}

// tells ranks findings: what ended the others first, what they died of next, of
// equals what the record has itself. The runs before a requeue come last.
func tells(k *look, f *finding, last int) int {
	rank := 0
	switch f.cause {
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
	if j := k.run.Meta.Job; j != nil && j.Restarts < last {
		rank += 10
	}
	return 3*rank + slices.Index([]Certainty{Seen, Inferred, Slurm}, f.certainty)
}

// runName tells one run from the others.
func runName(k *look) string {
	m := &k.run.Meta
	name := clean(m.Node)
	if m.Job != nil {
		if m.Job.Step != "" {
			name += fmt.Sprintf(", step %s", clean(m.Job.Step))
		}
		name += fmt.Sprintf(", task %d", m.Job.Task)
		if m.Job.Restarts > 0 {
			name += fmt.Sprintf(", restart %d", m.Job.Restarts)
		}
	}
	return strings.TrimPrefix(name, ", ")
}

// mostOthers bounds the runs that are told one by one.
const mostOthers = 8

func others(looks []*look, found []finding, best int, zone *time.Location) (out []string) {
	left := 0
	for i := range found {
		if i == best || found[i].cause == event.CauseEnded && found[best].cause == event.CauseEnded {
			continue
		}
		if len(out) == mostOthers {
			left++
			continue
		}
		out = append(out, fmt.Sprintf("%s, %s: %s", looks[i].wall(looks[i].end).In(zone).Format(time.TimeOnly), runName(looks[i]), found[i].sentence()))
	}
	if left > 0 {
		out = append(out, many(left, "more run")+" of this job ended as listed under runs")
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
