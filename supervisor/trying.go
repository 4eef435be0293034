package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// A torch whose text is not known is tried in a process of its own before a worker is
// recycled with it. What came of that is kept in the user's cache.

const (
	// trialRoom is the headroom that every limit has to have for a trial, which takes
	// 250 to 350 MiB; with less than trialLeast a trial is ended.
	trialRoom  = 512 * rss.MiB
	trialLeast = 128 * rss.MiB
	// trialYouth is how long after a torch was first met a trial may begin: later the
	// training may be at its peak.
	trialYouth = 10 * time.Minute
)

// trying is what is known of torches that recycling was not tried with, by their keys.
type trying struct {
	seen    map[string]*untried
	results chan trialResult
	busy    bool
	cancel  context.CancelFunc // ends the trial that runs, nil for none
}

type untried struct {
	since    time.Duration // when it was first met
	asked    bool          // the cache was looked into
	over     bool          // nothing more is done about it
	verdict  *loader.Verdict
	reported bool
}

// trialResult is what a goroutine found: a verdict that was kept, or that of a trial.
type trialResult struct {
	torch   loader.Untried
	verdict loader.Verdict
	found   bool
	made    bool // by a trial, now
	err     error
}

// tryTorch looks after the torches that wait for a verdict: at most one thing at a time.
func (w *watcher) tryTorch() {
	t := &w.trying
	if t.busy {
		if t.cancel != nil && w.headroom() < trialLeast {
			t.cancel()
		}
		return
	}
	if !w.waitsForTrial() {
		return
	}
	for _, u := range w.loader.Untried() {
		if t.seen == nil {
			t.seen, t.results = map[string]*untried{}, make(chan trialResult, 1)
		}
		k := t.seen[u.Key]
		if k == nil {
			k = &untried{since: w.now()}
			t.seen[u.Key] = k
		}
		switch {
		case k.verdict != nil:
			w.handVerdict(u, *k.verdict) // to a trainer that came later
		case k.over:
		case !k.asked:
			k.asked = true
			w.inBackground(func() trialResult {
				v, ok := loader.KeptVerdict(u, hold.Environ())
				return trialResult{torch: u, verdict: v, found: ok}
			})
			return
		case w.Settings.DryRun:
			w.leaveUntried(u, k, "a dry run makes no trial")
		case w.now()-k.since > trialYouth:
			w.leaveUntried(u, k, fmt.Sprintf("a limit left less than %v for a trial", trialRoom))
		case w.headroom() >= trialRoom:
			w.startTrial(u)
			return
		}
	}
}

// waitsForTrial says whether a trainer's torch has no verdict.
func (w *watcher) waitsForTrial() bool {
	if w.loader == nil {
		return false
	}
	for i := range w.workers.trainers {
		t := &w.workers.trainers[i]
		if k := w.trying.seen[t.Key]; t.Trial == event.TrialWaiting && (k == nil || !k.over) {
			return true
		}
	}
	return false
}

// headroom is what the fullest limit on memory leaves.
func (w *watcher) headroom() rss.Bytes {
	least := rss.Bytes(1) << 62
	for i := range w.readings {
		if l := &w.readings[i]; l.Name.Memory() {
			least = min(least, l.Limit.Sub(l.Used))
		}
	}
	return least
}

func (w *watcher) startTrial(u loader.Untried) {
	ctx, cancel := context.WithCancel(context.Background())
	w.trying.cancel = cancel
	start := w.Link.Start
	w.inBackground(func() trialResult {
		defer cancel()
		v, err := loader.Try(ctx, u, hold.Environ(), start)
		return trialResult{torch: u, verdict: v, found: v.What != "", made: true, err: err}
	})
}

func (w *watcher) inBackground(ask func() trialResult) {
	w.trying.busy = true
	results := w.trying.results
	go func() {
		fault.Point("trial")
		results <- ask()
	}()
}

// triedTorch takes in what was found.
func (w *watcher) triedTorch(r trialResult) {
	t := &w.trying
	canceled := r.made && !r.found
	t.busy, t.cancel = false, nil
	if r.err != nil && !canceled {
		w.fault("trial", r.err)
	}
	k := t.seen[r.torch.Key]
	switch {
	case r.found:
		k.verdict = &r.verdict
		w.handVerdict(r.torch, r.verdict)
	case canceled:
		w.leaveUntried(r.torch, k, fmt.Sprintf("%v", r.err))
	}
}

// handVerdict gives the trainers with that torch what came of a trial, and says it once.
func (w *watcher) handVerdict(u loader.Untried, v loader.Verdict) {
	if err := w.loader.Tried(u.Key, v); err != nil {
		w.fault("trial", err)
	}
	w.workers.trainers = w.loader.Trainers()
	k := w.trying.seen[u.Key]
	if k.reported {
		return
	}
	k.reported = true
	for _, t := range w.workers.trainers {
		if t.Key != u.Key {
			continue
		}
		w.put(event.NameLoader, func(h event.Head) any {
			return event.LoaderSaid{Head: h, What: event.LoaderTried, PID: t.ID.PID, Trial: t.Trial, Reason: t.Why}
		})
		w.sayRefused(t.ID.PID)
	}
}

// leaveUntried says once that a torch stays without a verdict in this run.
func (w *watcher) leaveUntried(u loader.Untried, k *untried, why string) {
	k.over = true
	w.Log.Info(fmt.Sprintf("PyTorch %s has not been tried here: workers are trimmed, not recycled (%s); rsswarden doctor --torch -- %s tries it",
		u.Torch, why, u.Executable))
}

// stopTrial ends a trial that runs, at our own end.
func (w *watcher) stopTrial() {
	t := &w.trying
	if t.cancel == nil {
		return
	}
	t.cancel()
	select {
	case <-t.results:
	case <-time.After(lastPatience):
	}
	t.cancel = nil
}
