package observe

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Ladder is what an observer must know of the judge.
type Ladder interface {
	// NextRung is the use at which the next rule fires for a limit.
	NextRung(*event.Limit) rss.Bytes
	// Rung is the lowest use at which a rule with that action fires for a limit.
	Rung(event.Action, *event.Limit) (at rss.Bytes, ok bool)
	// Uncertain says that only a closer reading can tell on which side of a rung use is.
	Uncertain([]event.Limit) bool
	// JobEndAhead is how long before the job's end the first rule on it fires, 0 for none.
	JobEndAhead() time.Duration
}

// Heard is what was read beside the full reads, and was not taken in yet.
type Heard struct {
	News view.News
	Any  bool // something was: when to wake is to be thought over
	Full bool // it calls for a full read
	// PSS is that a reading of PSS came on which a decision depends, and Woken that the loop
	// was woken for it.
	PSS, Woken bool
}

// Hear takes in what was read beside the full reads.
func (o *Observer) Hear(now time.Duration, v *view.View, ladder Ladder) (h Heard) {
	h.News = o.TryTorch(now, v)
	if woken := o.PSS != nil && o.PSS.Woken(); o.PSS != nil && o.PSS.TakeOne(now) {
		h.Any, h.PSS = true, ladder.Uncertain(v.Limits) && !o.PSS.Busy()
		h.Woken = h.PSS && woken
	}
	if a, ok := o.Slurm.Take(); ok {
		h.Full = true
		o.heardSlurm(&a, ladder.JobEndAhead(), &h.News)
	}
	fresh, read := o.Counts.Take(func() time.Duration { return now })
	h.Any = h.Any || read
	warnings, found := o.HearSteps()
	warn(warnings, &h.News)
	unmanaged := o.Pop.Heard()
	h.Full = h.Full || reached(v, fresh, ladder) || found > 0 || unmanaged
	return h
}

// Wake is how long after now the loop must wake for a read beside the full ones, not at all
// for [cadence.Never].
func (o *Observer) Wake(now time.Duration) time.Duration {
	pause := cadence.Never
	if count, ok := o.Counts.Next(now); ok {
		pause = count
	}
	if pss, ok := o.PSS.Next(now); ok {
		pause = min(pause, pss)
	}
	return pause
}

// reached says whether one of these limits is at or above the rung that was the next at
// the last full read.
func reached(v *view.View, fresh []event.Limit, ladder Ladder) bool {
	for i := range fresh {
		l := &fresh[i]
		if old := v.Limit(l.ID()); old == nil || l.Used >= ladder.NextRung(old) {
			return true
		}
	}
	return false
}

// AskSHMUsers asks who holds what in /dev/shm; level is the cgroup that is charged, empty
// for none. It wakes nothing, and does nothing while an answer is open.
func (o *Observer) AskSHMUsers(v *view.View, level string) {
	pids := counts.Sharers(v.Sample.Procs, o.Pop.Command.PID)
	if len(pids) == 0 {
		return
	}
	ask := shmQuestion{proc: o.SHMUsers.proc, pid: pids[0], level: level}
	for i := range v.Sample.Procs {
		ask.all = append(ask.all, v.Sample.Procs[i].ID.PID)
	}
	o.SHMUsers.Ask(ask, false)
}
