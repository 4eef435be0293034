package event

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// TestSaved: decisions with their outcomes, rules that could not help, and what loaders did by
// themselves, each counted once.
func TestSaved(t *testing.T) {
	var s Ledger
	at := time.Unix(1, 0)
	decide := func(id uint64, a Action, o Outcome) {
		s.Decided(at, &Decision{ID: id, Action: a, Limit: LimitSlurm, Used: 900 * rss.MiB})
		o.Decision = id
		s.Finished(at, &o)
		s.Finished(at, &o) // told twice
	}
	decide(1, ActionRecycle, Outcome{OK: true, Freed: 300 * rss.MiB, Paused: 0.5})
	decide(2, ActionTrim, Outcome{OK: true, Freed: 100 * rss.MiB})
	decide(3, ActionTrim, Outcome{OK: true}) // freed nothing
	decide(4, ActionTrim, Outcome{Reason: ReasonStatus})
	s.Finished(at, &Outcome{Action: ActionGC, Reason: ReasonStatus})
	s.Said(&LoaderSaid{What: LoaderTrimmed, Count: 3, Freed: 200 * rss.MiB})
	s.Said(&LoaderSaid{What: LoaderTrimmed, Count: 1, Freed: 100 * rss.MiB, Reason: TrimRequested}) // decision 2
	s.Said(&LoaderSaid{What: LoaderRecycled, Reason: string(ReasonDeferred), Paused: 0.25})
	s.Said(&LoaderSaid{What: LoaderRecycled}) // decision 1
	trim := s.Sum(ActionTrim)
	if trim.Fired != 3 || trim.Worked != 2 || trim.Freed != 100*rss.MiB || trim.Reasons[ReasonStatus] != 1 || trim.PeakUsed != 900*rss.MiB {
		t.Errorf("trims %+v", trim)
	}
	if s.Recycled != 2 || s.Helped != 2 || s.WorkerTrims != 3 || s.Dropped != 200*rss.MiB || s.Skipped() != 1 || s.Paused() != 0.75 {
		t.Errorf("%+v", s)
	}
	if s.Outcome() != HelpedYes || s.Actions[0].Action != ActionTrim {
		t.Errorf("%s, %+v", s.Outcome(), s.Actions)
	}
	var both Saved
	both.Add(&s.Saved)
	both.Add(&s.Saved)
	if b := both.Sum(ActionTrim); b.Worked != 4 || both.Recycled != 4 || both.Skipped() != 2 || both.Paused() != 1.5 {
		t.Errorf("two of the same: %+v", both)
	}
}

// TestSavedOutcome: whether all of it helped.
func TestSavedOutcome(t *testing.T) {
	for want, s := range map[Helped]Saved{
		HelpedNo:      {},
		HelpedDryRun:  {Actions: []ActionSum{{Action: ActionTrim, Fired: 1, Reasons: map[Reason]int{ReasonDryRun: 1}}}},
		HelpedRefused: {Actions: []ActionSum{{Action: ActionTrim, Skipped: 1}}},
		HelpedYes:     {WorkerTrims: 1, Dropped: 1},
	} {
		if got := s.Outcome(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
