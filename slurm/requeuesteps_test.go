package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// controller plays slurmctld for one job.
type controller struct {
	state, reason string
	memory        string
	calls         []string
	// fails is how often each command still fails, -1 for always; lost has a
	// requeuehold done but not answered.
	fails map[string]int
	lost  bool
	// warns has what scontrol did complain of all the same.
	warns bool
}

func (c *controller) scontrol(ctx context.Context, args ...string) ([]byte, error) {
	c.calls = append(c.calls, strings.Join(args, " "))
	name := args[0]
	if name == "requeuehold" && c.lost {
		c.state, c.reason = "COMPLETING", "job_requeued_in_held_state"
	}
	if n := c.fails[name]; n != 0 {
		c.fails[name] = n - 1
		return nil, errors.New("slurmctld said no to " + name)
	}
	switch name {
	case "show":
		text := strings.Replace(showRunning, "JobState=RUNNING Reason=None", "JobState="+c.state+" Reason="+c.reason, 1)
		if c.memory != "" {
			text = strings.Replace(text, "MinMemoryNode=300M", c.memory+"M", 1)
		}
		return []byte(text), nil
	case "requeuehold":
		if c.state != "RUNNING" {
			return nil, errors.New("job is pending execution")
		}
		c.state, c.reason = "COMPLETING", "job_requeued_in_held_state"
	case "update":
		if c.state == "RUNNING" {
			return nil, errors.New("job is running")
		}
		c.memory = args[2]
	case "release":
		c.reason = "BeginTime"
	default:
		return nil, fmt.Errorf("unexpected %q", args)
	}
	if c.warns {
		return nil, errors.New("a line of slurm.conf is out of date")
	}
	return nil, nil
}

func TestRequeueSteps(t *testing.T) {
	show, hold, release := "show job -o 46", "requeuehold 46", "release 46"
	update, again := "update JobId=46 MinMemoryNode=375 StartTime=now+40", "update JobId=46 MinMemoryNode=375"
	all := []string{show, hold, update, release}
	each := []string{show, hold, update, again, release}
	for _, c := range []struct {
		name       string
		controller controller
		want       RequeueResult // Why as a part of it
		calls      []string      // each once, however often it was tried, the looks in between left out
		memory     string
		reason     string // that Slurm has in the end
	}{
		{"all is well", controller{}, RequeueResult{Requeued: true, Raised: true}, all, "MinMemoryNode=375", "BeginTime"},
		{"each step fails twice", controller{fails: map[string]int{"show": 2, "requeuehold": 2, "update": 2, "release": 2}},
			RequeueResult{Requeued: true, Raised: true}, each, "MinMemoryNode=375", "BeginTime"},
		{"scontrol complains of something else", controller{warns: true}, RequeueResult{Requeued: true, Raised: true}, all, "MinMemoryNode=375", "BeginTime"},
		{"nobody answers", controller{fails: map[string]int{"show": -1}}, RequeueResult{Why: "no to show"}, []string{show}, "", "None"},
		{"requeuehold is refused", controller{fails: map[string]int{"requeuehold": -1}},
			RequeueResult{Why: "no to requeuehold"}, []string{show, hold}, "", "None"},
		{"requeuehold was done without an answer", controller{lost: true, fails: map[string]int{"requeuehold": -1}},
			RequeueResult{Requeued: true, Raised: true}, all, "MinMemoryNode=375", "BeginTime"},
		{"the size is refused: it is released all the same", controller{fails: map[string]int{"update": -1}},
			RequeueResult{Requeued: true, Why: "no to update"}, each, "", "BeginTime"},
		{"it cannot be released", controller{fails: map[string]int{"release": -1}},
			RequeueResult{Requeued: true, Raised: true, Held: true, Why: "no to release"}, all, "MinMemoryNode=375", "job_requeued_in_held_state"},
		{"neither", controller{fails: map[string]int{"update": -1, "release": -1}},
			RequeueResult{Requeued: true, Held: true, Why: "no to update; slurmctld said no to release"}, each, "", "job_requeued_in_held_state"},
		{"another node was first", controller{state: "PENDING", reason: "BeginTime"},
			RequeueResult{Gone: true, Why: "job 46 is PENDING"}, []string{show}, "", "BeginTime"},
		{"it was cancelled", controller{state: "CANCELLED"}, RequeueResult{Gone: true, Why: "CANCELLED"}, []string{show}, "", "None"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctl := c.controller
			if ctl.state == "" {
				ctl.state = "RUNNING"
			}
			if ctl.reason == "" {
				ctl.reason = "None"
			}
			job, err := ParseRunningJob([]byte(showRunning), "46")
			if err != nil {
				t.Fatal(err)
			}
			var steps []RequeueStep
			q := Requeue{
				Job: job, MiB: 375, StartIn: 40 * time.Second, Scontrol: ctl.scontrol, Told: func(s RequeueStep) { steps = append(steps, s) },
				Patience: RequeuePatience{Call: time.Minute, Pause: time.Microsecond, Hold: 100 * time.Millisecond, Update: 100 * time.Millisecond, Release: 100 * time.Millisecond},
			}
			got := q.Run(context.Background())
			why := got.Why
			got.Why = c.want.Why
			if got != c.want || !strings.Contains(why, c.want.Why) || c.want.Why == "" && why != "" {
				t.Errorf("%+v, %q, want %+v", got, why, c.want)
			}
			if calls := distinct(ctl.calls); !slices.Equal(calls, c.calls) {
				t.Errorf("asked for %q, want %q", calls, c.calls)
			}
			if ctl.memory != c.memory || ctl.reason != c.reason {
				t.Errorf("memory %q, reason %q", ctl.memory, ctl.reason)
			}
			if last := steps[len(steps)-1]; len(steps) > 4 || last.OK != (c.want.Requeued && !c.want.Held || c.want.Gone) {
				t.Errorf("told of %v", steps)
			}
			for _, s := range steps {
				if s.Tries < 1 || s.OK != (s.Error == "") || s.String() == "" {
					t.Errorf("told %+v", s)
				}
			}
		})
	}
}

// distinct are the calls in order, each once.
func distinct(calls []string) (list []string) {
	for _, c := range calls {
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// TestRequeueAgain: the process that had held the job was killed. Another one of
// the same goes on where it was; without that word nobody touches a job that was
// held by hand.
func TestRequeueAgain(t *testing.T) {
	job, err := ParseRunningJob([]byte(showRunning), "46")
	if err != nil {
		t.Fatal(err)
	}
	ctl := controller{state: "PENDING", reason: "JobHeldUser"}
	q := Requeue{Job: job, MiB: 375, Scontrol: ctl.scontrol}
	if got := q.Run(context.Background()); !got.Gone || got.Requeued || ctl.reason != "JobHeldUser" {
		t.Errorf("%+v, reason %s", got, ctl.reason)
	}
	q.Again = true
	if got := q.Run(context.Background()); !got.Requeued || !got.Raised || ctl.reason != "BeginTime" {
		t.Errorf("%+v, reason %s", got, ctl.reason)
	}
}

// TestRequeueOfTwo: the leaders of two nodes see their rung crossed at once. The
// one whose requeuehold comes second leaves the job as the first has put it.
func TestRequeueOfTwo(t *testing.T) {
	ctl := controller{state: "RUNNING", reason: "None"}
	job, err := ParseRunningJob([]byte(showRunning), "46")
	if err != nil {
		t.Fatal(err)
	}
	patience := RequeuePatience{Call: time.Minute, Pause: time.Microsecond, Hold: time.Millisecond, Update: time.Millisecond, Release: time.Millisecond}
	second := Requeue{Job: job, MiB: 500, Patience: patience}
	var first RequeueResult
	second.Scontrol = func(ctx context.Context, args ...string) ([]byte, error) {
		if args[0] == "requeuehold" && first == (RequeueResult{}) {
			// The first does all of it between the second's look and its step.
			q := Requeue{Job: job, MiB: 375, Patience: patience, Scontrol: ctl.scontrol}
			first = q.Run(ctx)
		}
		return ctl.scontrol(ctx, args...)
	}
	got := second.Run(context.Background())
	if !first.Requeued || !first.Raised || !got.Gone || got.Requeued || ctl.memory != "MinMemoryNode=375" || ctl.reason != "BeginTime" {
		t.Errorf("%+v, then %+v; memory %s, reason %s", first, got, ctl.memory, ctl.reason)
	}
}

// TestRequeueCallsEnd: a scontrol that hangs is ended, and tried again.
func TestRequeueCallsEnd(t *testing.T) {
	ctl := controller{state: "RUNNING", reason: "None"}
	hung := map[string]bool{}
	job, _ := ParseRunningJob([]byte(showRunning), "46")
	q := Requeue{Job: job, MiB: 375, Patience: RequeuePatience{Call: 20 * time.Millisecond, Pause: time.Microsecond, Hold: time.Minute, Update: time.Minute, Release: time.Minute}}
	q.Scontrol = func(ctx context.Context, args ...string) ([]byte, error) {
		if !hung[args[0]] {
			hung[args[0]] = true
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return ctl.scontrol(ctx, args...)
	}
	if got := q.Run(context.Background()); got != (RequeueResult{Requeued: true, Raised: true}) || len(hung) != 4 {
		t.Errorf("%+v, hung %v", got, hung)
	}
}
