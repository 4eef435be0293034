package supervisor

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/probe"
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

// trials looks after the torches that have no verdict: at most one thing at a time, in
// the background.
type trials struct {
	*probe.Reader[func() trialResult, trialResult]
	start  func(*exec.Cmd) error
	dry    bool
	seen   map[string]*untried // by their keys
	cancel context.CancelFunc  // ends the trial that runs, nil for none
}

type untried struct {
	since   time.Duration // when it was first met
	asked   bool          // the cache was looked into
	over    bool          // nothing more is done about it
	verdict *loader.Verdict
}

// trialResult is what was found: a verdict that was kept, or that of a trial.
type trialResult struct {
	torch   loader.Untried
	verdict loader.Verdict
	found   bool
	made    bool // by a trial, now
	err     error
}

// trialNews is what became of a torch: a verdict, or why it stays without one in this run.
type trialNews struct {
	torch   loader.Untried
	verdict *loader.Verdict
	why     string
	again   bool // of a verdict: it is for a trainer that came later
}

func newTrials(set *probe.Set, start func(*exec.Cmd) error, dry bool) *trials {
	return &trials{start: start, dry: dry, seen: map[string]*untried{}, Reader: probe.New(set, func(find func() trialResult) trialResult {
		fault.Point("trial")
		return find()
	})}
}

// waits says whether something may be done about the torch of a trainer.
func (t *trials) waits(trainers []loader.Trainer) bool {
	return slices.ContainsFunc(trainers, func(one loader.Trainer) bool {
		k := t.seen[one.Key]
		return one.Trial == event.TrialWaiting && (k == nil || !k.over)
	})
}

// short ends the trial that runs where the fullest limit leaves too little for it.
func (t *trials) short(left rss.Bytes) {
	if t.cancel != nil && left < trialLeast {
		t.cancel()
	}
}

// look does the next thing for the torches that wait for a verdict.
func (t *trials) look(now time.Duration, left rss.Bytes, waiting []loader.Untried) (news []trialNews) {
	for _, u := range waiting {
		k := t.seen[u.Key]
		if k == nil {
			k = &untried{since: now}
			t.seen[u.Key] = k
		}
		switch {
		case k.verdict != nil:
			news = append(news, trialNews{torch: u, verdict: k.verdict, again: true})
		case k.over || t.Busy():
		case !k.asked:
			k.asked = true
			t.Ask(func() trialResult {
				v, ok := loader.KeptVerdict(u, hold.Environ())
				return trialResult{torch: u, verdict: v, found: ok}
			}, true)
		case t.dry:
			news = append(news, t.leave(u, "a dry run makes no trial"))
		case now-k.since > trialYouth:
			news = append(news, t.leave(u, fmt.Sprintf("a limit left less than %v for a trial", trialRoom)))
		case left >= trialRoom:
			ctx, cancel := context.WithCancel(context.Background())
			t.cancel = cancel
			t.Ask(func() trialResult {
				defer cancel()
				v, err := loader.Try(ctx, u, hold.Environ(), t.start)
				return trialResult{torch: u, verdict: v, found: v.What != "", made: true, err: err}
			}, true)
		}
	}
	return news
}

func (t *trials) leave(u loader.Untried, why string) trialNews {
	t.seen[u.Key].over = true
	return trialNews{torch: u, why: why}
}

// take takes in what was found. Without news there is a trial to make.
func (t *trials) take(r trialResult) (news []trialNews) {
	t.cancel = nil
	switch {
	case r.found:
		t.seen[r.torch.Key].verdict = &r.verdict
		return []trialNews{{torch: r.torch, verdict: &r.verdict}}
	case r.made:
		return []trialNews{t.leave(r.torch, fmt.Sprint(r.err))}
	}
	return nil
}

// stop ends a trial that runs, at our own end.
func (t *trials) stop() {
	if t.cancel == nil {
		return
	}
	t.cancel()
	t.Wait(lastPatience)
	t.Take()
	t.cancel = nil
}

// tryTorch has trials look after the torches of the trainers.
func (w *watcher) tryTorch() {
	t, left := w.trials, leastLeft(w.readings)
	t.short(left)
	if w.loader != nil && !t.Busy() && t.waits(w.workers.Trainers()) {
		w.tried(t.look(w.now(), left, w.loader.Untried()))
	}
}

// leastLeft is what the fullest limit on memory leaves.
func leastLeft(readings []event.Limit) rss.Bytes {
	least := rss.Bytes(1) << 62
	for i := range readings {
		if l := &readings[i]; l.Name.Memory() {
			least = min(least, l.Limit.Sub(l.Used))
		}
	}
	return least
}

// heardTrial takes in what trials found.
func (w *watcher) heardTrial() {
	r, ok := w.trials.Take()
	if !ok {
		return
	}
	if r.err != nil && r.found {
		w.fault("trial", r.err)
	}
	w.tried(w.trials.take(r))
}

// tried gives the trainers what came of a trial, and reports it once.
func (w *watcher) tried(all []trialNews) {
	for _, n := range all {
		if n.verdict == nil {
			w.tell.Info(fmt.Sprintf("PyTorch %s has not been tried here: workers are trimmed, not recycled (%s); rsswarden doctor --torch -- %s tries it",
				n.torch.Torch, n.why, n.torch.Executable))
			continue
		}
		if err := w.loader.Tried(n.torch.Key, *n.verdict); err != nil {
			w.fault("trial", err)
		}
		w.workers.SetTrainers(w.loader.Trainers())
		for _, t := range w.workers.Trainers() {
			if t.Key != n.torch.Key || n.again {
				continue
			}
			w.tell.Put(event.NameLoader, func(h event.Head) any {
				return event.LoaderSaid{Head: h, What: event.LoaderTried, PID: t.ID.PID, Trial: t.Trial, Reason: t.Why}
			})
			w.sayRefused(t.ID.PID)
		}
	}
}
