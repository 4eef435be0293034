package policy

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// spiking is a job with a trainer that has a base and takes more at once, each of its
// batches, in percent of a limit of 3000 MiB.
type spiking struct {
	base, spike func(time.Duration) float64
	unseen      bool // spikes are over before the next sample: VmHWM alone tells of them
	workers     int  // … and so do so many workers, in turn, not the trainer
	frees       rss.Bytes
}

// decisions are those of the ladder with that job, looked at each half second.
func (j *spiking) decisions(t *testing.T, end time.Duration) (all []event.Decision, at []time.Duration) {
	t.Helper()
	s, f := New(append(Default(), rules(t, "92%:signal=USR2\n95%:stop")...), 1), &Forecasts{}
	size := func(percent float64) rss.Bytes { return (3000 * rss.MiB).Scale(percent / 100) }
	peaks := make([]rss.Bytes, j.workers+1)
	for now, n := time.Duration(0), 0; now <= end; now, n = now+time.Second/2, n+1 {
		limit := slurm(j.base(now))
		var procs []rss.Proc
		for i := range peaks {
			p := rss.Proc{ID: rss.ProcID{PID: 10 + i, Start: 1}, Role: rss.RoleWorker, Parent: 10, Anon: size(j.base(now)) / rss.Bytes(len(peaks))}
			if i == 0 {
				p.Role, p.Parent = rss.RoleTrainer, 1
			}
			if of := n % max(j.workers, 1); i == of+min(j.workers, 1) {
				up := size(j.spike(now))
				peaks[i] = max(peaks[i], p.Anon+up+8*rss.MiB)
				if !j.unseen {
					p.Anon += up
					limit.Used += up
				}
			}
			p.RSS = p.Anon + 8*rss.MiB
			p.Peak = max(peaks[i], p.RSS)
			procs = append(procs, p)
		}
		f.Processes(now, procs)
		limits := f.Of(now, []event.Limit{limit}, s.InFlight() != 0)
		s.Observe(now, limits)
		in := Input{Now: now, Limits: limits}
		for due := range s.Asks(&in) {
			in.Feasible[due.Ask] = event.Feasibility{OK: true, Gain: 100 * rss.MiB}
		}
		for _, d := range s.Judge(in).Decisions {
			all, at = append(all, d), append(at, now)
			if d.Action.Frees() {
				s.Done(event.Outcome{Decision: d.ID, OK: true, Reason: event.ReasonDone, After: limit.Used, Freed: j.frees})
			}
		}
	}
	return all, at
}

// every is a spike so high at a second of each so many, from one time on.
func every(each, from time.Duration, high float64) func(time.Duration) float64 {
	return func(now time.Duration) float64 {
		if now < from || now%each >= time.Second {
			return 0
		}
		return high
	}
}

// TestSpikes: rules fire before a spike that was seen more than once reaches the limit, and
// only then.
func TestSpikes(t *testing.T) {
	flat := func(percent float64) func(time.Duration) float64 {
		return func(time.Duration) float64 { return percent }
	}
	stepped := func(now time.Duration) float64 {
		if now < 10*time.Minute {
			return 40
		}
		return 72
	}
	for name, c := range map[string]struct {
		spiking
		end   time.Duration
		first time.Duration // when a rule fires first, 0 for never
		pid   int           // whose spike that is for
	}{
		"it fits, and spikes all the time": {spiking{base: flat(45), spike: every(7*time.Second, 0, 34)}, time.Hour, 0, 0},
		"once":                             {spiking{base: stepped, spike: func(now time.Duration) float64 { return every(time.Hour, 0, 34)(now + 55*time.Minute) }}, 20 * time.Minute, 0, 0},
		"each worker once, as they start":  {spiking{base: stepped, spike: func(now time.Duration) float64 { return 34 * min(1, float64(max(0, 10*time.Second-now))) }, unseen: true, workers: 4}, 20 * time.Minute, 0, 0},
		// The spikes stay, the job needs more for good.
		"before they would reach it": {spiking{base: stepped, spike: every(time.Minute, 0, 34)}, 10*time.Minute - 30*time.Second, 0, 0},
		"from when they would": {spiking{base: stepped, spike: func(now time.Duration) float64 {
			return every(time.Minute, 0, 34)(min(now, 10*time.Minute-30*time.Second))
		}}, 11 * time.Minute, 10*time.Minute + spikeHold, 10},
		// Each is higher than the one before, as the base grows by 1 % a minute.
		"no sample has seen them": {spiking{base: func(now time.Duration) float64 { return 40 + now.Minutes() }, spike: every(time.Minute, 0, 34), unseen: true}, 29 * time.Minute, 26 * time.Minute, 10},
	} {
		t.Run(name, func(t *testing.T) {
			all, at := c.decisions(t, c.end)
			switch {
			case len(all) == 0 && c.first == 0:
				return
			case len(all) == 0 || c.first == 0:
				t.Fatalf("decisions %+v at %v, want the first at %v", all, at, c.first)
			}
			if early := at[0] - c.first; early < -90*time.Second || early > time.Minute {
				t.Errorf("the first at %v, want %v", at[0], c.first)
			}
			for i, d := range all {
				if d.Spike == nil || d.Spike.PID != c.pid || d.Lead == 0 || d.Used+d.Spike.Ahead() < d.LimitSize || d.Action != event.ActionWarn && d.Action != event.ActionTrim && d.Action != event.ActionRecycle {
					t.Errorf("at %v: %+v, spike %+v", at[i], d, d.Spike)
				}
			}
		})
	}
}

// TestSpikesSeldomAct: a job that lives with spikes which would reach its limit is warned of, and
// acted on without effect, less and less often; the spikes that VmHWM showed are forgotten after an hour.
func TestSpikesSeldomAct(t *testing.T) {
	for _, c := range []struct {
		frees       rss.Bytes
		least, most int // actions of each kind
	}{{0, 2, 14}, {100 * rss.MiB, 60, 130}} {
		j := spiking{base: func(now time.Duration) float64 { return min(40+now.Minutes(), 70) }, spike: every(time.Minute, 0, 34), unseen: true, frees: c.frees}
		all, at := j.decisions(t, 6*time.Hour)
		n := map[event.Action]int{}
		for _, d := range all {
			n[d.Action]++
		}
		if w := n[event.ActionWarn]; w < 2 || w > 14 {
			t.Errorf("%d warnings in 6 hours: %v", w, at)
		}
		for _, a := range []event.Action{event.ActionTrim, event.ActionRecycle} {
			if c.frees > 0 && a == event.ActionRecycle {
				continue // the milder one helps
			}
			if n[a] < c.least || n[a] > c.most {
				t.Errorf("%d times %s in 6 hours, each freed %v; want %d to %d", n[a], a, c.frees, c.least, c.most)
			}
		}
	}
}
