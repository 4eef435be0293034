package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// The process that puts a job back into the queue outlives the watcher: from the first step
// on Slurm ends the command, the holder and the watcher, and it has until KillWait is over.

// filePatience is how long it waits at its end for a file system to take its
// lines.
const filePatience = 2 * time.Second

// ErrNoPlan says that [RequeueJob] got no readable plan.
var ErrNoPlan = errors.New("cannot read the plan")

// RequeueJob reads a plan and carries it out. It writes each step to out, whose reader may
// have ended, and to the file of the job's attempts.
func RequeueJob(in io.Reader, out io.Writer) error {
	// Slurm sends TERM to the tasks alone, and its KILL to all of the job.
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	var plan RequeuePlan
	if err := json.NewDecoder(in).Decode(&plan); err != nil {
		return fmt.Errorf("%w: %w", ErrNoPlan, err)
	}
	return plan.CarryOut(out, slurm.Scontrol, slurm.RequeuePatience{})
}

func (p *RequeuePlan) CarryOut(out io.Writer, scontrol func(context.Context, ...string) ([]byte, error), patience slurm.RequeuePatience) error {
	lines, written := p.keep()
	said := json.NewEncoder(out)
	lines <- p.entry(slurm.RequeueStep{Step: record.RequeueBegun, OK: true})
	q := slurm.Requeue{
		Job: p.Job, MiB: p.MiB, StartIn: p.StartIn, Again: p.Again, Scontrol: scontrol, Patience: patience,
		Told: func(s slurm.RequeueStep) {
			_ = said.Encode(requeueSaid{Step: &s}) // the reader may have ended
			if s.Step != slurm.StepLook || !s.OK {
				lines <- p.entry(s)
			}
		},
	}
	r := q.Run(context.Background())
	_ = said.Encode(requeueSaid{Result: &r})
	close(lines)
	select {
	case err := <-written:
		return err
	case <-time.After(filePatience):
		return fmt.Errorf("cannot write what became of job %s: no answer from the file system within %v", p.Job.ID, filePatience)
	}
}

// mostSteps is more than there are.
const mostSteps = 16

// keep writes lines to the file of the job's attempts, on the side: a file server
// that hangs must not keep the job from being released.
func (p *RequeuePlan) keep() (chan<- record.RequeueEntry, <-chan error) {
	lines, written := make(chan record.RequeueEntry, mostSteps), make(chan error, 1)
	go func() {
		f, err := record.OpenRequeueLog(p.Places, p.Job.ID)
		if err != nil {
			written <- err
			return
		}
		defer f.Close()
		for l := range lines {
			if err := l.Write(f); err != nil {
				written <- fmt.Errorf("cannot write to %s: %w", f.Name(), err)
				return
			}
		}
		written <- nil
	}()
	return lines, written
}

func (p *RequeuePlan) entry(s slurm.RequeueStep) record.RequeueEntry {
	to, l := p.Job, p.Line
	to.MiB = p.MiB
	l.Time, l.Job, l.FromMiB, l.ToMiB = time.Now(), p.Job.ID, p.Job.PerNode(), to.PerNode()
	l.Step, l.OK, l.Error = s.Step, s.OK, s.Error
	if s.OK && s.Took > 0 {
		l.Detail = s.String()
	}
	return l
}

// SayLastAttempt says on the side how the attempt before this one ended: it is read
// from a shared file system, and the command does not wait for it.
func (a *Env) SayLastAttempt() {
	find := a.LastAttempt()
	if find == nil {
		return
	}
	probe.Run(func() {
		if text := find(); text != "" {
			a.Tell.Info(text)
		}
	})
}

// LastAttempt returns how to find out how the last attempt ended, empty where it has
// left no word; nil where there was none, or another watcher reports it: on the first
// node the leader.
func (a *Env) LastAttempt() func() string {
	job, ok := a.Limits.Job()
	first := job.NodeID == 0 && !a.Ranks.Successor()
	if a.Ranks.Alone() {
		first = job.Task == 0
	}
	if !ok || job.Restarts == 0 || !first || a.Able.Requeue != "" || a.Attempt > 1 {
		return nil
	}
	has, _ := slurm.StepLimit(a.Lookup, slurm.RlimitRSS())
	places := record.DefaultPlaces(a.Lookup, os.Geteuid())
	return func() string {
		lines := record.ReadRequeueLog(places, job.ID, job.Cluster, time.Now())
		last, ok := record.LastRequeue(lines, job.Restarts)
		if !ok {
			return ""
		}
		return lastAttempt(job.ID, job.Restarts, &last, has.Bytes>>20)
	}
}

var ordinals = []string{"first", "second", "third", "fourth", "fifth"}

func ordinal(restarts int) string {
	if restarts < len(ordinals) {
		return ordinals[restarts]
	}
	return fmt.Sprintf("%dth", restarts+1)
}

// lastAttempt is "second attempt of job 46: the first was requeued at 14:03:22 by
// 97%:requeue, slurm at 291 of 300 MiB; it had 300 MiB and this one has 375".
func lastAttempt(job string, restarts int, last *record.Requeued, hasMiB uint64) string {
	text := fmt.Sprintf("%s attempt of job %s: the %s was requeued at %s by %s, %s",
		ordinal(restarts), job, ordinal(last.Restart), last.Time.Local().Format(time.TimeOnly), last.Rule, last.Because)
	text += fmt.Sprintf("; it had %d MiB", last.FromMiB)
	switch {
	case hasMiB == 0:
	case !slices.Contains([]uint64{last.ToMiB, 0}, hasMiB) && last.Raised:
		text += fmt.Sprintf(" and was to have %d, this one has %d", last.ToMiB, hasMiB)
	default:
		text += fmt.Sprintf(" and this one has %d", hasMiB)
	}
	if len(last.Errors) > 0 {
		text += " (" + strings.Join(last.Errors, "; ") + ")"
	}
	return text
}
