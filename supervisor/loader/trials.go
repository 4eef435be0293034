package loader

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	injected "github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

const (
	// trialRoom is the headroom that every limit has to have for a trial, which takes
	// 250 to 350 MiB; with less than trialLeast a trial is ended.
	trialRoom  = 512 * rss.MiB
	trialLeast = 128 * rss.MiB
	// trialYouth is how long after a torch was first met a trial may begin: later the
	// training may be at its peak.
	trialYouth = 10 * time.Minute
)

// Trials looks after the torches of trainers whose text is not known: each is tried in a
// process of its own before a worker is recycled with it, and the verdict is kept in the
// user's cache. A probe does one thing at a time.
type Trials struct {
	*probe.Reader[func() trialResult, trialResult]
	environ func() []string
	start   func(*exec.Cmd) error
	dry     bool
	seen    map[string]*torchTrial // by their keys
	cancel  context.CancelFunc     // ends the trial that runs, nil for none
}

type torchTrial struct {
	since   time.Duration // when it was first met
	asked   bool          // the cache was looked into
	over    bool          // nothing more is done about it
	verdict *Verdict
}

// trialResult is what was found: a verdict that was kept, or that of a trial.
type trialResult struct {
	torch   Untried
	verdict Verdict
	found   bool
	made    bool // by a trial, now
	err     error
}

// TrialNews is what became of a torch: its trainers were given a verdict, or Why it stays
// without one in this run.
type TrialNews struct {
	Torch Untried
	Why   string
	Again bool // the verdict was for a trainer that came later
	Errs  []error
}

// NewTrials returns Trials that wake a loop by set. dry says that none is to be made.
func NewTrials(set *probe.Set, environ func() []string, start func(*exec.Cmd) error, dry bool) *Trials {
	return &Trials{environ: environ, start: start, dry: dry, seen: map[string]*torchTrial{}, Reader: probe.New(set, func(find func() trialResult) trialResult {
		injected.Point("trial")
		return find()
	})}
}

// Advance takes in what was found and does the next thing for the torches that wait for a
// verdict. left is what the fullest limit leaves.
func (t *Trials) Advance(now time.Duration, left rss.Bytes, c *Control) (news []TrialNews) {
	if r, ok := t.Take(); ok {
		t.cancel = nil
		switch {
		case r.found:
			t.seen[r.torch.Key].verdict = &r.verdict
			n := TrialNews{Torch: r.torch}
			if r.err != nil {
				n.Errs = append(n.Errs, r.err)
			}
			news = append(news, n.give(c, r.verdict))
		case r.made:
			news = append(news, t.leave(r.torch, fmt.Sprint(r.err)))
		}
	}
	if t.cancel != nil && left < trialLeast {
		t.cancel()
	}
	if t.Busy() || !t.wanted(c) {
		return news
	}
	for _, u := range c.Untried() {
		k := t.seen[u.Key]
		if k == nil {
			k = &torchTrial{since: now}
			t.seen[u.Key] = k
		}
		switch {
		case k.verdict != nil:
			n := TrialNews{Torch: u, Again: true}
			news = append(news, n.give(c, *k.verdict))
		case k.over || t.Busy():
		case !k.asked:
			k.asked = true
			t.Ask(func() trialResult {
				v, ok := KeptVerdict(u, t.environ())
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
				v, err := Try(ctx, u, t.environ(), t.start)
				return trialResult{torch: u, verdict: v, found: v.What != "", made: true, err: err}
			}, true)
		}
	}
	return news
}

// wanted says whether something may be done about the torch of a trainer.
func (t *Trials) wanted(c *Control) bool {
	for _, one := range c.trainers {
		if k := t.seen[one.Key]; one.Trial == event.TrialWaiting && (k == nil || !k.over) {
			return true
		}
	}
	return false
}

// give gives the verdict to the trainers that have the torch.
func (n TrialNews) give(c *Control, v Verdict) TrialNews {
	if err := c.Tried(n.Torch.Key, v); err != nil {
		n.Errs = append(n.Errs, err)
	}
	return n
}

func (t *Trials) leave(u Untried, why string) TrialNews {
	t.seen[u.Key].over = true
	return TrialNews{Torch: u, Why: why}
}

// Stop ends a trial that runs, at our own end.
func (t *Trials) Stop(within time.Duration) {
	if t.cancel == nil {
		return
	}
	t.cancel()
	t.Wait(within)
	t.Take()
	t.cancel = nil
}
