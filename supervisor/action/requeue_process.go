package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// RequeueCommand is the command of our program that puts a job back into the queue; not for
// users. Its process outlives the watcher: from the first step on Slurm ends the command,
// the holder and the watcher, and it has until KillWait is over.
const RequeueCommand = "requeue-job"

// RequeuePlan is the input of that process, as JSON on its standard input.
type RequeuePlan struct {
	Job     slurm.RunningJob `json:"job"`
	MiB     uint64           `json:"mib"` // as in Job.MiB
	StartIn time.Duration    `json:"start_in_ns"`
	Again   bool             `json:"again,omitempty"`
	Places  record.Places    `json:"places"`
	// Line is what each line of the file of the job's attempts says of it.
	Line record.RequeueEntry `json:"line"`
}

// requeueSaid is a line of what it writes to its standard output: a step, and the
// result as the last.
type requeueSaid struct {
	Step   *slurm.RequeueStep   `json:"step,omitempty"`
	Result *slurm.RequeueResult `json:"result,omitempty"`
}

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

type putAnswer struct {
	steps  []slurm.RequeueStep
	result *slurm.RequeueResult
	err    error
}

func (a *putAnswer) held() bool {
	return slices.ContainsFunc(a.steps, func(s slurm.RequeueStep) bool { return s.OK && s.Step == slurm.StepHold })
}

// putOutside runs the process as an orphan. slurmstepd sums its tasks' descendants, and
// near the limit there is no room for one more; it does not count an orphan. A shell gives
// a background process no standard input unless one is named.
const putOutside = `exec 3<&0; "$0" "$1" <&3 3<&- &`

// putting is one requeue, as [Requeue] sees it. Only the loop uses it but for what is on
// the channel.
type putting struct {
	*requeuing
	flight *Flight
	limit  event.Limit
	plan   RequeuePlan
	answer *probe.Reader[*exec.Cmd, putAnswer] // nil before the process was started
	sent   *Result                             // what it came to
}

// Ask asks for a checkpoint as a signal= rule would.
func (p *putting) Ask() Result {
	r := event.Rule{Action: event.ActionSignal, Arg: p.Settings.CheckpointSignal}
	to, h := signalling{p.Env}.receivers(r, &p.limit)
	if !h.OK {
		return Result{Reason: h.Reason, Detail: h.Detail}
	}
	sig, _, _ := r.Signal()
	return Signal(p.Kill, to, sig, h.Detail)
}

func (p *putting) PutBack() {
	if f := p.flight; !f.over {
		p.Ladder.Begun(f.Decision.ID) // it goes on without us
		p.Ranks.SaveHandover()
	}
	cmd := exec.Command("/bin/sh", "-c", putOutside, fmt.Sprintf("/proc/%d/exe", os.Getpid()), RequeueCommand)
	cmd.Env = hold.Environ()
	// A session of its own: what ends a process group or a terminal leaves it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	plan := p.plan
	p.answer = probe.New(nil, func(cmd *exec.Cmd) putAnswer { return runPut(cmd, p.Holder.Start, &plan) })
	p.answer.Ask(cmd, false)
}

// runPut runs the process and takes in what it says.
func runPut(cmd *exec.Cmd, start func(*exec.Cmd) error, plan *RequeuePlan) (a putAnswer) {
	failed := func(err error) putAnswer {
		return putAnswer{err: fmt.Errorf("cannot start the process that puts the job back: %w", err)}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return failed(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed(err)
	}
	if err := start(cmd); err != nil {
		return failed(err)
	}
	err = json.NewEncoder(in).Encode(plan)
	in.Close()
	for dec := json.NewDecoder(io.LimitReader(out, 1<<20)); err == nil; {
		var said requeueSaid
		if err = dec.Decode(&said); err != nil {
			break
		}
		if said.Step != nil {
			a.steps = append(a.steps, *said.Step)
		}
		if said.Result != nil {
			a.result = said.Result
			break
		}
	}
	go cmd.Wait() // it may still write its file
	if a.result == nil {
		a.err = fmt.Errorf("the process that puts the job back ended without an answer: %w", err)
	}
	return a
}

// Ended tells how it came out, once it has said so.
func (p *putting) Ended() (Result, bool) {
	if p.sent == nil {
		if a, ok := p.answer.Take(); ok {
			p.take(a)
		}
	}
	if p.sent == nil {
		return Result{}, false
	}
	return *p.sent, true
}

func (p *putting) take(a putAnswer) {
	r := Result{Reason: event.ReasonError}
	if a.err != nil && a.held() && !p.plan.Again {
		p.plan.Again = true // a job that stays held never starts again
		p.PutBack()
		return
	}
	if a.err != nil {
		r.Detail = a.err.Error() + "; " + p.whereTold()
	} else {
		r = requeueResult(p.size(), p.plan.Job, *a.result, a.steps)
		if a.result.Requeued {
			size := p.size()
			if !a.result.Raised {
				size.To = size.From
			}
			p.done = &size
		}
	}
	p.sent = &r
}

// whereTold says where to look up what is unknown.
func (p *putting) whereTold() string {
	return "scontrol show job " + p.plan.Job.ID + " shows its state"
}
