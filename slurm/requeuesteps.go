package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// The steps that put a job back into the queue with more memory.
const (
	StepLook    = "show job"    // does it run still? somebody else may have been first
	StepHold    = "requeuehold" // from here on Slurm ends the job: CONT, TERM, and KILL after KillWait
	StepUpdate  = "update"      // Slurm raises the memory of a job that does not run, and of no other; from 26.05 on it lowers a running one's
	StepRelease = "release"     // a job that stays held never starts again
)

// RequeueStep says how one step ended.
type RequeueStep struct {
	Step  string        `json:"step"`
	OK    bool          `json:"ok"`
	Tries int           `json:"tries"`
	Took  time.Duration `json:"took_ns"`
	Error string        `json:"error,omitempty"`
}

// String is the step for a sentence: "requeuehold 31 ms", "update failed: …".
func (s RequeueStep) String() string {
	text := s.Step
	if s.OK {
		text += fmt.Sprintf(" %.0f ms", s.Took.Seconds()*1e3)
	} else {
		text += " failed: " + s.Error
	}
	if s.Tries > 1 {
		text += fmt.Sprintf(" (%d tries)", s.Tries)
	}
	return text
}

// Requeue puts a job back into the queue with more memory.
type Requeue struct {
	Job RunningJob // as it was seen last
	MiB uint64     // of [RunningJob.Raise]
	// StartIn is when it may start again, if it has ended by then; else, and where
	// StartIn is 0, Slurm has it wait for requeue_delay of SchedulerParameters (25.11
	// and newer), else for cred_expire of AuthInfo, 2 minutes.
	StartIn time.Duration
	// Again says that somebody before us may have held it and not come further.
	Again bool
	// Scontrol runs scontrol, for as long as the context lasts; see [ScontrolStrict].
	Scontrol func(ctx context.Context, args ...string) ([]byte, error)
	// Told is told of each step as soon as it has ended; nil for nobody.
	Told func(RequeueStep)
	// Patience is for how long each step is tried; the zero value is what a real
	// slurmctld wants.
	Patience RequeuePatience
}

// RequeuePatience bounds the steps. A step is tried again until its time is over,
// and at least twice.
type RequeuePatience struct {
	Call, Pause           time.Duration // of one try, and after the first: twice as long after each, 1 s at most
	Hold, Update, Release time.Duration
}

// requeuePatience: while a requeuehold is waited for the job's memory grows on;
// after it KillWait runs, 30 s where nobody has changed it, and the release must
// have its turn.
var requeuePatience = RequeuePatience{
	Call: 5 * time.Second, Pause: 100 * time.Millisecond,
	Hold: 2 * time.Second, Update: 4 * time.Second, Release: time.Minute,
}

// RequeueResult says what came of it.
type RequeueResult struct {
	// Requeued says that the job was put back by this. Gone says that it did not
	// run any more and nothing was done.
	Requeued, Gone bool
	// Raised says that it has the new memory. Held says that it could not be
	// released: it waits until somebody does that by hand.
	Raised, Held bool
	// Why is what went wrong, for people; empty where nothing did.
	Why string
}

// errGone says that the job does not run any more, and not by our doing.
var errGone = errors.New("the job does not run any more")

// Run takes the steps. Cancel the context only to give the job up as it is: what
// has been held is to be released.
func (q *Requeue) Run(ctx context.Context) RequeueResult {
	if q.Patience == (RequeuePatience{}) {
		q.Patience = requeuePatience
	}
	job, err := q.find(ctx)
	gone := RequeueResult{Gone: true, Why: "job " + q.Job.ID + " is " + job.State}
	switch {
	case err != nil:
		return RequeueResult{Why: err.Error()}
	case q.Again && job.held():
	case job.State != "RUNNING":
		return gone
	default:
		err := q.step(ctx, StepHold, q.Patience.Hold, func(j RunningJob) (bool, error) {
			if j.State != "RUNNING" && !j.held() {
				gone.Why = "job " + j.ID + " is " + j.State
				return false, errGone
			}
			return j.held(), nil
		}, func(int) []string { return []string{"requeuehold", q.Job.Leader} })
		if errors.Is(err, errGone) {
			return gone
		}
		if err != nil {
			return RequeueResult{Why: err.Error()}
		}
	}
	r := RequeueResult{Requeued: true}
	err = q.step(ctx, StepUpdate, q.Patience.Update, func(j RunningJob) (bool, error) {
		return j.MiB == q.MiB && j.PerCPU == q.Job.PerCPU, nil
	}, q.update)
	if err != nil {
		r.Why = err.Error()
	} else {
		r.Raised = true
	}
	err = q.step(ctx, StepRelease, q.Patience.Release, func(j RunningJob) (bool, error) {
		return !j.held(), nil
	}, func(int) []string { return []string{"release", q.Job.Leader} })
	if err != nil {
		r.Held = true
		r.Why = strings.TrimPrefix(r.Why+"; "+err.Error(), "; ")
	}
	return r
}

// update has Slurm change the memory. The time of the start is only a wish.
func (q *Requeue) update(try int) []string {
	args := []string{"update", "JobId=" + q.Job.ID, q.Job.Setting(q.MiB)}
	if q.StartIn > 0 && try == 1 {
		args = append(args, fmt.Sprintf("StartTime=now+%.0f", q.StartIn.Seconds()))
	}
	return args
}

// held says that a job waits until it is released: Slurm has several words for it,
// "JobHeldUser" and "job_requeued_in_held_state".
func (j RunningJob) held() bool {
	return strings.Contains(strings.ToLower(j.Reason), "held")
}

// find asks how the job stands.
func (q *Requeue) find(ctx context.Context) (job RunningJob, err error) {
	err = q.try(ctx, StepLook, q.Patience.Hold, func(ctx context.Context, _ int) error {
		job, err = q.look(ctx)
		return err
	})
	return job, err
}

func (q *Requeue) look(ctx context.Context) (RunningJob, error) {
	out, err := q.Scontrol(ctx, "show", "job", "-o", q.Job.ID)
	if err != nil {
		return RunningJob{}, err
	}
	return ParseRunningJob(out, q.Job.ID)
}

// step runs a command of scontrol. Where that complains it is looked at whether
// the job is as it should be all the same: a command may have been carried out and
// not been answered, another node may have been first, and what scontrol says may
// be a warning about something else.
func (q *Requeue) step(ctx context.Context, name string, within time.Duration, is func(RunningJob) (bool, error), args func(try int) []string) error {
	return q.try(ctx, name, within, func(ctx context.Context, try int) error {
		_, err := q.Scontrol(ctx, args(try)...)
		if err == nil {
			return nil
		}
		job, lookErr := q.look(ctx)
		if lookErr != nil {
			return err
		}
		done, final := is(job)
		if done {
			return nil
		}
		return errors.Join(final, err)
	})
}

// try does something until it succeeds, its time is over, or its error is errGone.
func (q *Requeue) try(ctx context.Context, name string, within time.Duration, do func(ctx context.Context, try int) error) error {
	began, pause := time.Now(), q.Patience.Pause
	s := RequeueStep{Step: name}
	var err error
	for {
		s.Tries++
		call, cancel := context.WithTimeout(ctx, q.Patience.Call)
		err = do(call, s.Tries)
		cancel()
		if err == nil || errors.Is(err, errGone) || ctx.Err() != nil || time.Since(began) >= within && s.Tries > 1 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
	s.OK, s.Took = err == nil, time.Since(began)
	if err != nil {
		s.Error = strings.ReplaceAll(err.Error(), "\n", ": ")
	}
	if q.Told != nil {
		q.Told(s)
	}
	return err
}

// ScontrolStrict is [Scontrol] for commands that change something: some of them
// say on stderr alone that they did nothing, and end with status 0.
func ScontrolStrict(ctx context.Context, args ...string) ([]byte, error) {
	return ScontrolStrictBy(ctx, (*exec.Cmd).Start, args...)
}

// ScontrolStrictBy is [ScontrolStrict] for a process that starts programs in a way of
// its own.
func ScontrolStrictBy(ctx context.Context, start func(*exec.Cmd) error, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	line := firstLine(errs.Bytes())
	switch {
	case err != nil && line != "":
		return nil, fmt.Errorf("scontrol %s: %w: %s", strings.Join(args, " "), err, line)
	case err != nil:
		return nil, fmt.Errorf("scontrol %s: %w", strings.Join(args, " "), err)
	case line != "" && args[0] != "show":
		return nil, fmt.Errorf("scontrol %s: %s", strings.Join(args, " "), line)
	}
	return out.Bytes(), nil
}
