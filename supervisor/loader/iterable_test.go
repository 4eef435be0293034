package loader

import (
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// stream starts testdata/stream.py; streamBare is the result of it without us.
func stream(t *testing.T, on *stand, args string) *training {
	return train(t, trainOptions{on: on, script: "stream.py", args: args})
}

func streamBare(t *testing.T, on *stand, args string) result {
	t.Helper()
	return bareOnce(t, trainOptions{on: on, script: "stream.py", args: args})
}

// renew asks for one worker and waits until the loader's next epoch has new ones; it
// returns what was reported about them.
func (tr *training) renew() []Said {
	tr.t.Helper()
	old := tr.some()
	id, err := tr.ctl.Recycle(old[len(tr.said)%len(old)], event.Swap)
	must(tr.t, err)
	from, before := len(tr.said), len(tr.heard(event.LoaderRecycled, 0))
	var renewed []Said
	tr.until("an answer", func() bool {
		renewed = tr.heard(event.LoaderRecycled, 0)[before:]
		_, ok := tr.last(id)
		return ok && (len(renewed) == 0 || len(renewed) == len(old))
	})
	s, _ := tr.last(id)
	if s.What != event.LoaderRecycled || len(renewed) != len(old) {
		tr.t.Fatalf("%+v; said %+v", s, tr.said[from:])
	}
	if a := tr.heard(event.LoaderAccepted, id); len(a) == 0 || a[0].Reason != string(event.ReasonDeferred) {
		tr.t.Errorf("that it was put off was not said: %+v", tr.said[from:])
	}
	return renewed
}

// TestIterable replaces the workers of persistent loaders over iterable
// datasets, some several epochs in a row: every record comes once an epoch, in
// the order in which it comes bare, and main draws what it draws bare.
func TestIterable(t *testing.T) {
	t.Parallel()
	shapes := []string{
		"--break-at 20", "--dataset pipe --generator",
		// From here on with RSSWARDEN_ENDURANCE only.
		"", "--context spawn --workers 2 --break-at 20", "--workers 1", "--generator", "--dataset pipe", "--dataset pipe --break-at 9", "--context forkserver --workers 2",
	}
	torchtest.EachCase(t, shapes[:wardentest.Few(len(shapes), 2)], nil, func(t *testing.T, on *stand, args string) {
		want := streamBare(t, on, args)
		tr := stream(t, on, args)
		for range wardentest.Few(100, 2) {
			before := tr.workers()
			renewed := tr.renew()
			for _, s := range renewed {
				if slices.Contains(before, s.New) || s.Exit != 0 || s.Reason != string(event.ReasonDeferred) || s.Before == 0 || s.After == 0 {
					t.Errorf("%+v", s)
				}
			}
			if renewed[0].Paused == 0 || len(renewed) > 1 && renewed[1].Paused != 0 {
				t.Errorf("pauses %+v", renewed)
			}
			if l := tr.ctl.Trainers()[0].Loaders; len(l) != 1 || !l[0].CanRecycle || l[0].Kind != "iterable" {
				t.Errorf("%+v", l)
			}
		}
		tr.moreEpochs(1)
		got := tr.finish()
		if got.Wrong != 0 || got.Checksum != want.Checksum || got.Main != want.Main || want.Wrong != 0 {
			t.Errorf("got %+v, bare %+v", got, want)
		}
		if got.Repeated != 0 {
			t.Errorf("%d random draws repeated", got.Repeated)
		}
		tr.notOff()
	})
}

// TestIterableRefused asks where no next epoch comes, or where a fresh worker
// would not have what the dataset keeps from one epoch to the next.
func TestIterableRefused(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	for args, why := range map[string]string{
		"--plain":                     "end with the epoch",
		"--keeping --dataset forever": "keeps one iterator",
		"--dataset counting":          "__iter__ sets .epochs",
		"--dataset own":               "its own iterator",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			tr := stream(t, torch113, args)
			tr.have(3)
			l := tr.ctl.Trainers()[0].Loaders[0]
			if known := !strings.Contains(args, "keeping"); known && (l.CanRecycle || !strings.Contains(l.Why, why)) {
				t.Errorf("%+v", l)
			}
			if _, err := tr.ctl.Recycle(1, event.Swap); err == nil {
				t.Error("recycling process 1 was asked for")
			}
			for {
				id, err := tr.ctl.Recycle(tr.workers()[0], event.Swap)
				must(t, err)
				tr.until("an answer", func() bool { _, ok := tr.last(id); return ok && len(tr.workers()) > 0 })
				s, _ := tr.last(id)
				if s.What == event.LoaderRefused && strings.Contains(s.Reason, why) {
					break
				}
				// Its epoch may have ended meanwhile.
				if s.What != event.LoaderRefused || !strings.Contains(args, "plain") {
					t.Fatalf("%+v", s)
				}
			}
			tr.right()
		})
	}
}

// TestIterableTakenBack cancels a request before the next epoch: nothing is
// replaced, and workers can be asked for again.
func TestIterableTakenBack(t *testing.T) {
	torch113.Need(t)
	t.Parallel()
	tr := stream(t, torch113, "")
	pids := tr.have(3)
	id, err := tr.ctl.Recycle(pids[0], event.Swap)
	must(t, err)
	tr.until("a word", func() bool {
		return slices.ContainsFunc(tr.said, func(s Said) bool { return s.Request == id })
	})
	if slices.Equal(tr.workers(), pids) && tr.ctl.Trainers()[0].Loaders[0].CanRecycle {
		t.Errorf("a second worker may be asked for: %+v", tr.ctl.Trainers()[0].Loaders)
	}
	must(t, tr.ctl.Cancel(id))
	tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
	// It may have been too late to take it back.
	if s, _ := tr.last(id); s.What == event.LoaderRefused && (s.Reason != "taken back" || !slices.Equal(tr.workers(), pids)) {
		t.Errorf("%+v, workers %v, were %v", s, tr.workers(), pids)
	}
	tr.renew()
	tr.right()
}

// TestIterableForkRefused has fork fail while the workers are restarted: it is tried again
// until it works.
func TestIterableForkRefused(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	for _, args := range []string{"--refuse-fork 4 3", "--refuse-fork 4 3 --refuse-oddly"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			want := streamBare(t, torch113, "")
			tr := stream(t, torch113, args)
			if renewed := tr.renew(); renewed[0].Paused < 0.5 {
				t.Errorf("%+v", renewed)
			}
			tr.renew()
			if got := tr.like(want); got.Main != want.Main {
				t.Errorf("got %+v, bare %+v", got, want)
			}
			tr.quiet()
		})
	}
}
