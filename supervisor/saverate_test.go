package supervisor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/saverate"
)

// looks runs the loop of the watcher beside the job until the job is over: what
// [watcher.loop] does on a tick, on news of the hook and on a reading of PSS.
func (r *rateStand) looks() (n int) {
	w := r.world
	for !w.over() {
		until := w.now + r.sleep(r.pause(r.now()))
		if r.pssAsk != nil {
			until = min(until, r.pssAt)
		}
		before := w.now
		w.advance(until)
		time.Sleep(w.now - before)
		if w.over() {
			break
		}
		news := len(w.said) > 0
		r.wrote = false
		r.render()
		n++
		switch {
		case news:
			if r.poll(true) || len(r.said) > 0 {
				r.full()
			}
		case r.pssAsk != nil && w.now >= r.pssAt:
			r.answerPSS()
		case !r.idleTick():
			r.tick()
		}
		r.readCtl()
		r.askedPSS()
	}
	return n
}

// idleTick takes a fast tick over files in which nothing has changed since the last
// look: it would read what that read, and only the rate takes note. Near a rung
// the watcher looks 500 times a second, which is what a simulation spends its time
// on. It is false where the tick is more than that.
func (r *rateStand) idleTick() bool {
	now := r.look()
	pss, hurried := r.pss.next(now)
	switch {
	case hurried && pss <= 0, r.wrote, r.watched < 0, now-r.unstuckAt >= unstickEvery-sameWake, now+policy.MinPause < r.lookDue, now-r.fullAt >= r.fullPause(now):
		return false
	}
	r.lookDue = 0
	b := &r.readings[r.watched]
	r.rate(b).Add(now, growing(b))
	return true
}

// rateEnd is how one job ended, bare and wrapped.
type rateEnd struct {
	saverate.Label
	bare, killed bool
	at           time.Duration // … by the job's clock
	nearest      float64       // most used of the limit, ours included
	acted        int           // decisions that did something, or tried
	budget       int           // trims that workers made by themselves to keep to a budget
	recycles     int
	stalls       time.Duration // in which the trainer stood still for recycles
	why          string        // the last thing that was said, and what the memory was
}

// simulate runs one job, bare and wrapped.
func simulate(t *testing.T, seed uint64) (e rateEnd) {
	spec := saverate.New(seed, &saverate.Simulated)
	e.Label = spec.Label()
	bare := newRateWorld(&spec, 1, false)
	for !bare.over() {
		bare.said = nil
		bare.advance(bare.now + time.Hour)
	}
	e.bare = bare.killed
	synctest.Test(t, func(t *testing.T) {
		r := newRateStand(t, &spec)
		r.looks()
		w := r.world
		e.killed, e.at, e.nearest, e.stalls = w.killed, w.now, w.peak.Of(spec.Limit), w.stalls
		e.acted = r.sum.trims + r.sum.recycles + r.sum.failed + r.sum.drops + r.sum.collected
		e.budget, e.recycles = r.sum.budgetTrims, r.sum.recycles
		e.why = r.why()
	})
	return e
}

// why says how the job stood in the end.
func (r *rateStand) why() string {
	w := r.world
	m := w.memory()
	var leaked, mapped rss.Bytes
	for _, o := range m.Workers {
		leaked += o.Private.Sub(w.Fresh)
		mapped += o.Mapped
	}
	doing := "nothing in flight"
	if f := r.flight; f != nil {
		doing = fmt.Sprintf("%s in flight for %v", f.decision.Action, (r.now() - f.began).Round(time.Millisecond))
	}
	return fmt.Sprintf("%d workers, a batch each %v; used %v of %v: leaked %v, mapped %v, the rest %v; %s; last said: %s",
		w.Workers, w.Step*time.Duration(w.Workers), w.used(), w.Limit, leaked, mapped, w.used().Sub(leaked+mapped), doing, r.lines.last())
}

// TestSaveRate is the save rate in simulation: 500 jobs of package saverate, whose
// labels were there before, on a clock of their own, beside the live watcher with the
// default ladder. Nothing is skipped of what decides and acts but the holder and the
// wire: limits are found in made-up files, budgets and requests go through the run
// directory, and a hook that behaves and takes as long as ours meets them.
func TestSaveRate(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // a million small writes
	var fits, carried, bare, lost, innocents, touched, budgets int
	began := time.Now()
	for seed := uint64(1); seed <= saverate.Simulated.Seeds; seed++ {
		e := simulate(t, seed)
		if e.bare {
			bare++
		}
		if e.Fits {
			fits++
			if e.bare && !e.killed {
				carried++
			}
			if e.killed {
				lost++
				t.Logf("killed at %v although it fits: %v\n\t%s", e.at.Round(time.Second), e.Label, e.why)
			}
		}
		if e.Innocent {
			innocents++
			if e.acted > 0 {
				touched++
				t.Logf("acted %d times on an innocent: %v\n\t%s", e.acted, e.Label, e.why)
			}
			if e.budget > 0 {
				budgets++
				t.Logf("%d budget trims in an innocent: %v\n\t%s", e.budget, e.Label, e.why)
			}
		}
		if e.killed && !e.bare {
			t.Errorf("killed wrapped and not bare: %v\n\t%s", e.Label, e.why)
		}
	}
	t.Logf("%d jobs in %v: killed bare %d, of %d that fit killed wrapped %d, carried %d; %d innocents, acted on %d, trimmed by budget %d",
		saverate.Simulated.Seeds, time.Since(began).Round(time.Second), bare, fits, lost, carried, innocents, touched, budgets)
}
