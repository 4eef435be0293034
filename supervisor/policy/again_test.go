package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestAgain: a ladder that is given only the judgements that have moved another one decides
// the same, whatever limits come and go, and whatever comes of actions.
func TestAgain(t *testing.T) {
	for seed := range uint64(20) {
		if diff := again(t, rand.New(rand.NewPCG(seed, 11))); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

func again(t *testing.T, rng *rand.Rand) string {
	ladder := append(Default(), rules(t, "free<450M:trim\nslurm 93%:gc\n95%:signal=USR2\neta<5m:recycle\ntime eta<30m:signal=USR1\n98%:requeue\n99.5%:stop")...)
	live, repeat := New(ladder, 1), New(ladder, 1)
	var flight []uint64
	now, used, away := time.Duration(0), [3]float64{60, 70, 50}, [3]time.Duration{}
	for range 2000 {
		now += time.Duration(rng.IntN(3000)) * time.Millisecond
		if rng.IntN(50) == 0 {
			now += time.Duration(rng.IntN(600)) * time.Second
		}
		in := Input{Now: now, JobEnd: max(time.Hour-now/4, time.Second), EndUnsure: rng.IntN(20) == 0, Lead: map[event.Ask]rss.Bytes{}}
		for i := range used {
			used[i] = min(max(used[i]+rng.NormFloat64()*3, 20), 102)
			if now >= away[i] && rng.IntN(100) == 0 {
				away[i] = now + time.Duration(rng.IntN(1200))*time.Second
			}
			if now < away[i] {
				continue
			}
			l := slurm(used[i])
			l.Name = []event.LimitName{event.LimitSlurm, event.LimitCgroup, event.LimitUser}[i]
			l.Binding = len(in.Limits) == 0
			if rng.IntN(3) > 0 {
				eta := rng.Float64() * 1500
				l.ETA, l.ETAHigh = &eta, &eta
			}
			in.Limits = append(in.Limits, l)
		}
		live.Observe(now, in.Limits)
		for r, l := range live.Uncrossed(in.Limits) {
			if r.Action.Frees() && rng.IntN(4) == 0 {
				in.Lead[event.Ask{Rule: r, On: l.ID()}] = l.Limit.Scale(0.1)
			}
		}
		for due := range live.Asks(&in) {
			in.Feasible[due.Ask] = event.Feasibility{
				OK: rng.IntN(3) > 0, Gain: rss.Bytes(rng.IntN(500)) * rss.MiB, Later: rng.IntN(4) == 0,
				Reason: []event.Reason{event.ReasonNone, event.ReasonNoWorker, event.ReasonNothing}[rng.IntN(3)],
			}
		}
		j := live.Judge(in)
		switch {
		case j.Moved:
			was := Record(&in, &j)
			second := Repeat(repeat, &was)
			if diff := cmp.Diff(j.Decisions, second.Decisions) + cmp.Diff(j.Skipped, second.Skipped); diff != "" {
				return fmt.Sprintf("at %v (-first, +again):\n%s", now, diff)
			}
		case len(j.Decisions)+len(j.Skipped) > 0:
			return fmt.Sprintf("at %v a judgement that has not moved the ladder has %v, %v", now, j.Decisions, j.Skipped)
		}
		for _, d := range j.Decisions {
			if !d.Action.Asks() && d.Action != event.ActionWarn {
				flight = append(flight, d.ID)
			}
		}
		switch rng.IntN(8) {
		case 0:
			live.Pass(now + time.Duration(rng.IntN(200))*time.Millisecond)
		case 1, 2, 3:
			if n := len(flight); n > 0 {
				o := event.Outcome{Decision: flight[n-1], OK: rng.IntN(3) > 0, After: slurm(used[0]).Used, Freed: rss.Bytes(rng.IntN(300)) * rss.MiB}
				o.Reason = []event.Reason{event.ReasonDone, event.ReasonRecovered, event.ReasonTimeout, event.ReasonForkRefused}[min(rng.IntN(40), 3)]
				if rng.IntN(4) == 0 {
					live.Begun(o.Decision)
				}
				live.Pass(now + time.Duration(rng.IntN(200))*time.Millisecond)
				live.Done(o)
				flight = flight[:n-1]
			}
		}
	}
	return ""
}
