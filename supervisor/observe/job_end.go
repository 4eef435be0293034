package observe

import (
	"errors"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

const (
	// endAhead is how long before a rule on the job's end would fire scontrol
	// is asked once more: an administrator can have moved the end, and what is
	// in the environment stays as it was.
	endAhead = time.Minute
	// endHolds is how long an answer is believed.
	endHolds = 5 * time.Minute
)

// AskSlurm asks scontrol what files and environment left open. asks says that this process
// is the one of its node that asks where several have the job.
func (o *Observer) AskSlurm(now time.Duration, asks bool) {
	job, ok := o.Limits.Job()
	open := o.Limits.LeftOpen()
	if ok && (open || job.End.IsZero()) {
		o.askSlurm(now, asks, SlurmQuestion{Job: job, Open: open, End: job.End})
	}
}

func (o *Observer) askSlurm(now time.Duration, asks bool, q SlurmQuestion) {
	if asks || q.Job.LocalID == 0 || o.Pop.Attached() {
		o.endAskedAt = now
		o.Slurm.Ask(q, true)
	}
}

// JobEnd is the time to the job's end, 0 where there is none, and whether it is still being
// asked for: no rule acts on it then. ahead is how long before it the first of them fires,
// 0 for none.
func (o *Observer) JobEnd(now time.Duration, v *view.View, ahead time.Duration, asks bool) (left time.Duration, asking bool) {
	for i := range v.Limits {
		l := &v.Limits[i]
		if l.Name != event.LimitTime || l.ETA == nil {
			continue
		}
		left = time.Duration(*l.ETA * float64(time.Second))
		if ahead == 0 || left > ahead+endAhead {
			return left, false
		}
		fresh := o.endAskedAt != 0 && now-o.endAskedAt < endHolds
		if job, ok := o.Limits.Job(); ok && !o.Slurm.Busy() && !fresh {
			o.askSlurm(now, asks, SlurmQuestion{Job: job})
		}
		return left, o.Slurm.Busy()
	}
	return 0, false
}

// Slept takes in that the watcher did not run for a while: the job's end has moved if the
// job was suspended.
func (o *Observer) Slept() { o.endAskedAt = 0 }

// heardSlurm takes in what scontrol said. ahead is that of JobEnd.
func (o *Observer) heardSlurm(a *SlurmAnswer, ahead time.Duration, news *view.News) {
	if a.Open {
		o.Limits.SetEnforcement(a.Rules, a.RulesErr)
		o.enforced(news)
	}
	if a.EndErr == nil || errors.Is(a.EndErr, slurm.ErrNoEnd) {
		o.Limits.SetEnd(a.End)
	} else if ahead > 0 {
		news.Fault("scontrol", a.EndErr) // a rule waits for that end
	}
}
