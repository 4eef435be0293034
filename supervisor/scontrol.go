package supervisor

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/observe"
)

// askScontrol asks what files and environment left open, late and on the side:
// thousands of ranks that all ask at their start are a storm.
func (w *watcher) askScontrol() {
	w.sayLastLife()
	w.foresee(rand.N(5 * time.Second))
	job, ok := w.observe.Limits.Job()
	open := w.observe.Limits.LeftOpen()
	if ok && (open || job.End.IsZero()) {
		w.inquire(job, open, job.End)
	}
}

// inquire asks scontrol for slurmstepd's doings, where they are open, and for
// the job's end, where that is not known. One process of each node asks: who leads.
func (w *watcher) inquire(job slurm.Job, open bool, end time.Time) {
	if job.LocalID != 0 && !w.observe.Pop.Attached() && !w.node.Joined() {
		return
	}
	w.endAskedAt = w.now()
	w.scontrol.Ask(observe.SlurmQuestion{Job: job, Open: open, End: end}, true)
}

// answered takes in what scontrol said.
func (w *watcher) answered(a observe.SlurmAnswer) {
	if a.Open {
		w.observe.Limits.SetEnforcement(a.Rules, a.RulesErr)
		w.applyEnforcement(w.fault)
	}
	if a.EndErr == nil || errors.Is(a.EndErr, slurm.ErrNoEnd) {
		w.observe.Limits.SetEnd(a.End)
	} else if w.ladder.JobEndAhead() > 0 {
		w.fault("scontrol", a.EndErr) // a rule waits for that end
	}
}

const (
	// endAhead is how long before a rule on the job's end would fire scontrol
	// is asked once more: an administrator can have moved the end, and what is
	// in the environment stays as it was.
	endAhead = time.Minute
	// endHolds is how long an answer is believed.
	endHolds = 5 * time.Minute
)

// jobEnd is the time to the job's end, 0 where there is none, and whether it is
// still being asked for: no rule acts on it then.
func (w *watcher) jobEnd() (left time.Duration, asking bool) {
	i := slices.IndexFunc(w.view.Limits, func(l event.Limit) bool { return l.Name == event.LimitTime && l.ETA != nil })
	if i < 0 {
		return 0, false
	}
	left = time.Duration(*w.view.Limits[i].ETA * float64(time.Second))
	ahead := w.ladder.JobEndAhead()
	if ahead == 0 || left > ahead+endAhead {
		return left, false
	}
	fresh := w.endAskedAt != 0 && w.now()-w.endAskedAt < endHolds
	if job, ok := w.observe.Limits.Job(); ok && !w.scontrol.Busy() && !fresh {
		w.inquire(job, false, time.Time{})
	}
	return left, w.scontrol.Busy()
}

// heardSteps takes in the limits of other steps, and says whether any were found.
func (w *watcher) heardSteps() bool {
	warnings, found := w.observe.HearSteps()
	w.warn(warnings)
	return found > 0
}
