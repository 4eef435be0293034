package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// What asks somebody is asked once for a crossing and holds nothing up.
func TestAskOnceForACrossing(t *testing.T) {
	for _, ask := range []string{"signal=USR2", "exec=notify"} {
		c := newScript(t, "90%:recycle\n93%:"+ask+"\n97%:stop")
		c.can = func(r event.Rule, _ *event.Limit) Help {
			return Help{OK: r.Action.Asks(), Reason: event.ReasonNoWorker}
		}
		c.want(c.at(second, slurm(94)), "skip 90%:recycle: no worker", "93%:"+ask)
		if c.s.InFlight() != 0 {
			t.Fatalf("%s is in flight", ask)
		}
		for range 100 {
			c.want(c.at(10*second, slurm(94)))
		}
		c.done(false, event.ReasonError, 94, 94) // nobody waits for it
		c.want(c.at(0, slurm(94)))
		c.want(c.at(second, slurm(88.1)))
		c.want(c.at(second, slurm(94))) // not left by five points
		c.want(c.at(second, slurm(80)))
		c.want(c.at(second, slurm(94)), "skip 90%:recycle: no worker", "93%:"+ask)
		c.want(c.at(0, slurm(97)), "97%:stop")
	}
}

// Who is asked has one thing to do, however many limits are crossed for it.
func TestAskOnceForSeveralLimits(t *testing.T) {
	c := newScript(t, "93%:signal=USR2")
	job := func(percent float64) event.Limit {
		l := slurm(percent)
		l.Scope = event.ScopeJob
		return l
	}
	c.want(c.at(second, slurm(94), job(94)), "93%:signal=USR2")
	c.want(c.at(second, slurm(95), job(95)))
	c.want(c.at(second, slurm(50), job(95))) // left on one
	c.want(c.at(second, slurm(94), job(95)), "93%:signal=USR2")
	c.want(c.at(second, slurm(50), job(50)))
	c.want(c.at(second, slurm(50), job(94)), "93%:signal=USR2")
	c.want(c.at(second, slurm(94)), "93%:signal=USR2") // the other is gone
}

// Each step of a job has its own to ask; what lies in one step is one.
func TestAskEachStep(t *testing.T) {
	c := newScript(t, "93%:signal=USR2")
	step := func(level string, percent float64) event.Limit {
		l := slurm(percent)
		l.Scope, l.Level = event.ScopeStep, level
		return l
	}
	c.want(c.at(second, step("/job_7/step_0", 94), step("/job_7/step_1", 50)), "93%:signal=USR2")
	c.want(c.at(second, step("/job_7/step_0", 94), step("/job_7/step_1", 94)), "93%:signal=USR2")
	c.want(c.at(second, step("/job_7/step_0", 94), step("/job_7/step_1", 94), step("/job_7/step_1/task_0", 94)))
}

// An action in flight may yet make it needless; one that hangs must not keep
// the trainer from its checkpoint.
func TestAskWaitsALittle(t *testing.T) {
	c := newScript(t, "90%:recycle\n93%:signal=USR2")
	c.want(c.at(second, slurm(94)), "90%:recycle")
	c.want(c.at(second, slurm(94)))
	c.done(true, event.ReasonDone, 94, 70)
	c.want(c.at(second, slurm(70)))

	c = newScript(t, "90%:recycle\n93%:signal=USR2")
	c.want(c.at(second, slurm(91)), "90%:recycle")
	c.want(c.at(askPatience-1, slurm(94)))
	c.want(c.at(1, slurm(94)), "93%:signal=USR2")
	if c.s.InFlight() == 0 {
		t.Error("the recycle is not in flight any more")
	}

	c = newScript(t, "90%:recycle\n93%:signal=USR2")
	c.want(c.at(second, slurm(91)), "90%:recycle")
	c.want(c.at(time.Millisecond, slurm(94)))
	c.want(c.at(time.Millisecond, slurm(95.6)), "93%:signal=USR2") // 4.6 used up, 4.4 left
}

// Actions that follow upon each other, each of some use and none of enough,
// must not keep the trainer from its checkpoint either.
func TestAskWaitsForOneActionNotForAll(t *testing.T) {
	c := newScript(t, "90%:recycle\n93%:signal=USR2")
	c.want(c.at(0, slurm(95)), "90%:recycle")
	for c.now < time.Minute && !slices.Contains(c.at(second, slurm(95)), "93%:signal=USR2") {
		c.done(true, event.ReasonDone, 95, 92)
		c.want(c.at(second, slurm(92)), "90%:recycle") // below the rung, and not left
	}
	if most := askPatience + 2*second; c.now > most {
		t.Errorf("asked after %v of recycles, want %v at most", c.now, most)
	}
}

// A refusal is said once, and whoever may be asked later is.
func TestRefusedAskIsTriedAgain(t *testing.T) {
	c := newScript(t, "93%:signal=USR2")
	deaf := true
	c.can = func(event.Rule, *event.Limit) Help { return Help{OK: !deaf, Reason: event.ReasonNotCaught} }
	c.want(c.at(second, slurm(94)), "skip 93%:signal=USR2: "+string(event.ReasonNotCaught))
	c.want(c.at(second, slurm(94)))
	deaf = false
	c.want(c.at(second, slurm(94)), "93%:signal=USR2")
	c.want(c.at(second, slurm(94)))
}

func TestAskBeforeTheJobsEnd(t *testing.T) {
	c := newScript(t, "time eta<10m:signal=USR2\ntime eta<5m:exec=save")
	help := false
	c.can = func(event.Rule, *event.Limit) Help { return Help{OK: help, Reason: event.ReasonNotCaught} }
	for _, x := range []struct {
		left time.Duration
		help bool
		want []string
	}{
		{time.Hour, true, nil},
		{9 * time.Minute, false, []string{"skip time eta<10m:signal=USR2: " + string(event.ReasonNotCaught)}},
		{8 * time.Minute, true, []string{"time eta<10m:signal=USR2"}},
		{7 * time.Minute, true, nil},
		{4 * time.Minute, true, []string{"time eta<5m:exec=save"}},
		{time.Minute, true, nil},
	} {
		c.end, help = x.left, x.help
		c.want(c.at(second, slurm(10)), x.want...)
	}
}

// Collecting garbage stops the trainer: in vain it is done ever less often.
func TestCollectingInVainThins(t *testing.T) {
	c := newScript(t, "85%:gc")
	var at []time.Duration
	for range 240 {
		if len(c.at(15*second, slurm(90))) > 0 {
			at = append(at, c.now)
			c.done(true, event.ReasonDone, 90, 90)
		}
	}
	var gaps []time.Duration
	for i := range at[1:] {
		gaps = append(gaps, at[i+1]-at[i])
	}
	want := []time.Duration{30 * second, 60 * second, 120 * second, 240 * second, 480 * second, 960 * second}
	if !slices.Equal(gaps, want) {
		t.Errorf("collected %v apart, want %v", gaps, want)
	}
	c.at(second, slurm(10))
	c.want(c.at(10*second, slurm(90)), "85%:gc") // a new crossing
}
