package action

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// jobFacts is what Slurm says of the job before it is requeued.
type jobFacts struct {
	job  slurm.RunningJob
	room slurm.MaxMemory // the most that its nodes and partition give
	// killWait is KillWait of slurm.conf.
	killWait time.Duration
	// diesOnTERM is why the process that puts the job back would not live for long
	// enough to do so; empty where it does.
	diesOnTERM string
	err        error
}

// factsAsk asks for the facts about a job, after a delay or once they are needed now.
type factsAsk struct {
	id     string
	holder int
	delay  time.Duration
	hurry  <-chan struct{}
}

func newFactsReader(proc string, run observe.Scontrol) *probe.Reader[factsAsk, jobFacts] {
	return probe.New(nil, func(ask factsAsk) jobFacts {
		select {
		case <-time.After(ask.delay):
		case <-ask.hurry:
		}
		fault.Point("requeue-ask")
		ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
		defer cancel()
		f := askFacts(ctx, ask.id, run)
		f.diesOnTERM = diesOnTERM(proc, ask.holder)
		return f
	})
}

const killWaitDefault = 30 * time.Second

// jobFacts returns what Slurm says, or has it asked on the side. What is a little
// old does while it is asked again: the process that puts the job back looks too.
func (a *requeuing) jobFacts(job slurm.Job) (jobFacts, bool) {
	a.askJobFacts(job, 0)
	return a.facts, a.factsAt != 0
}

// askJobFacts takes in what Slurm said, and has it asked, after a delay, where that
// is not fresh.
func (a *requeuing) askJobFacts(job slurm.Job, delay time.Duration) {
	if facts, ok := a.asking.Take(); ok {
		a.facts, a.hurry, a.factsAt = facts, nil, max(a.Now(), 1)
	}
	if a.hurry != nil && delay == 0 {
		close(a.hurry)
		a.hurry = nil
	}
	hold := factsHold
	if a.facts.err != nil {
		hold = errorHolds
	}
	if a.asking.Busy() || a.factsAt != 0 && a.Now()-a.factsAt < hold {
		return
	}
	if delay > 0 {
		a.hurry = make(chan struct{})
	}
	a.asking.Ask(factsAsk{job.ID, a.Pop.Holder, delay, a.hurry}, false)
}

// askFacts asks about the job, its nodes and its partition. What the last two give
// at most may stay unknown.
func askFacts(ctx context.Context, id string, scontrol observe.Scontrol) (f jobFacts) {
	out, err := scontrol(ctx, "show", "job", "-o", id)
	if err == nil {
		f.job, err = slurm.ParseRunningJob(out, id)
	}
	if err != nil {
		f.err = fmt.Errorf("cannot ask Slurm about job %s: %w", id, err)
		return f
	}
	f.killWait = killWaitDefault
	if out, err := scontrol(ctx, "show", "config"); err == nil {
		f.killWait = parseKillWait(out)
	}
	if f.job.NodeList != "" {
		if out, err := scontrol(ctx, "show", "node", "-o", f.job.NodeList); err == nil {
			f.room = f.room.Least(slurm.ParseMaxMemory(out))
		}
	}
	if f.job.Partition != "" {
		if out, err := scontrol(ctx, "show", "partition", "-o", f.job.Partition); err == nil {
			f.room = f.room.Least(slurm.ParseMaxMemory(out))
		}
	}
	return f
}

// prefetchJob has Slurm asked about the job ahead, where a rule on requeue= may fire: it
// is to act at once then. At the start of a job thousands of tasks would ask, so
// only the leader does.
func (a *requeuing) prefetchJob(delay time.Duration) {
	job, ok := a.Limits.Job()
	if !ok || a.Able.Requeue != "" || a.Ranks.Alone() && job.LocalID != 0 && delay > 0 || job.Restarts >= a.Settings.MaxRequeues || !a.Settings.Requeues() {
		return
	}
	a.askJobFacts(job, delay)
}

// parseKillWait reads "KillWait = 30 sec" from what `scontrol show config` prints.
func parseKillWait(b []byte) time.Duration {
	values, err := slurm.ParseShowConfig(b)
	if err != nil {
		return killWaitDefault
	}
	number, _, _ := strings.Cut(values["killwait"], " ")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return killWaitDefault
	}
	return time.Duration(n) * time.Second
}

// diesOnTERM says why all of the job's processes on this node would be gone at Slurm's
// TERM: it ends the batch script, and with that slurmstepd kills what is left.
// Where rsswarden is what slurmstepd has started, it stays until the job is in the
// queue.
func diesOnTERM(proc string, holder int) string {
	task, stepd := 0, false
	for i, err := range proctree.Parents(proc, holder) {
		if i.ID.PID <= 1 || task == 0 && err != nil {
			break
		}
		if stepd = task != 0 && (err != nil || strings.HasPrefix(i.Comm, "slurmstepd")); stepd {
			break
		}
		task = i.ID.PID
	}
	if !stepd {
		return "no slurmstepd found above rsswarden, so it is unknown whether Slurm's TERM leaves it time"
	}
	// What cannot be read does not outlive it as far as we know.
	if lives, _ := signalIn(proc, task, syscall.SIGTERM, "SigCgt:", "SigIgn:"); lives || task == holder {
		return ""
	}
	return "the batch script stands between Slurm and rsswarden: Slurm's TERM would end it, and everything with it, before the job has its memory; " +
		"write `exec rsswarden run -- …` as its last line, or `srun rsswarden run -- …`"
}
