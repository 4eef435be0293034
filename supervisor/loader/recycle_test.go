package loader

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestNoRequest holds that without a request nothing differs, random draws in
// the workers and in the trainer included.
func TestNoRequest(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{
		"--loader persistent --workers 2 --fail 7 900", "--loader plain --workers 2 --break-at 20",
		"--loader endless --workers 2", "--workers 0", "--dataset stream --workers 2", "--pin --sampler weighted --workers 2",
	}, nil, func(t *testing.T, s *stand, args string) {
		args += " --part 1000 --epochs 2 --step 0"
		want := bareOn(t, s, args)
		tr := train(t, trainOptions{on: s, args: args, ends: true})
		got := tr.finish()
		if got.Checksum != want.Checksum || got.Main != want.Main || got.Wrong != want.Wrong || got.Errors != want.Errors {
			t.Errorf("got %+v, bare %+v", got, want)
		}
		// Which worker's batch comes when differs from run to run, not what it draws.
		if got.Draws != want.Draws {
			t.Errorf("random draws differ: %+v, bare %+v", got, want)
		}
		// The batches on their way hold some; a leak would hold one for each of 20.
		if got.FDs[1] > max(want.FDs[0], want.FDs[1])+8 {
			t.Errorf("descriptors %v, bare %v", got.FDs, want.FDs)
		}
		tr.notOff()
	})
}

// TestRecycleFailingDataset has records that raise: the trainer catches that
// and goes on, and so does the recycling.
func TestRecycleFailingDataset(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		t.Parallel()
		const args = "--workers 2 --part 1200 --fail 5 77 500 1234 3000 --epochs 2"
		tr := train(t, trainOptions{on: s, args: args})
		tr.recycle(wardentest.Few(100, 8), event.Swap)
		tr.recycle(wardentest.Few(100, 8), event.Drain)
		r := tr.finish()
		want := bareOn(t, s, args)
		if want.Errors == 0 {
			t.Error("no record failed")
		}
		if r.Wrong != 0 || r.Errors != want.Errors || r.Checksum != want.Checksum {
			t.Errorf("got %+v, bare %+v", r, want)
		}
	})
}

// TestWorkerStays has workers that do not end on request: they are made to, that is
// reported, and they do not block the next.
func TestWorkerStays(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"endless", "persistent"}, nil, func(t *testing.T, s *stand, loader string) {
		tr := train(t, trainOptions{on: s, args: "--dataset threaded --workers 2 --part 400 --told 1 --loader " + loader})
		for _, mode := range []event.Mode{event.Swap, event.Drain} {
			for _, said := range tr.recycle(2, mode) {
				// torch's workers take a SIGTERM of their trainer's for a word to end, with 0.
				if said.Exit != 0 || !strings.Contains(said.Reason, "terminated") {
					t.Errorf("%+v", said)
				}
				if err := unix.Kill(said.Worker, 0); err != unix.ESRCH {
					t.Errorf("worker %d: %v", said.Worker, err)
				}
			}
		}
		tr.right()
	})
}

// TestDescriptors holds that recycling leaves no descriptor behind, and that
// every worker that was replaced ended by itself.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"--loader endless", "--pin"}, nil, func(t *testing.T, s *stand, args string) {
		descriptors(t, train(t, trainOptions{on: s, args: args + " --workers 2 --part 400"}))
	})
}

func descriptors(t *testing.T, tr *training) {
	tr.until("an epoch", func() bool { return tr.seen() > 0 })
	var paused []float64
	for _, s := range tr.recycle(wardentest.Few(500, 30), event.Swap) {
		if s.Exit != 0 {
			t.Errorf("worker %d exited with %d", s.Worker, s.Exit)
		}
		paused = append(paused, s.Paused*1e3)
	}
	slices.Sort(paused)
	t.Logf("%d recycles, trainer paused %.1f ms (median), %.1f ms (most)", len(paused), paused[len(paused)/2], paused[len(paused)-1])
	tr.moreEpochs(1)
	r := tr.finish()
	// Two workers may have been on their way at the last look, with six descriptors each.
	if r.Wrong != 0 || r.FDs[1] > r.FDs[0]+12 {
		t.Errorf("%+v", r)
	}
}

// TestInheritedOffset has a dataset that opens a plain file at its first use,
// and a trainer that reads a record itself: a forked replacement would share
// the trainer's file offset, and read wrong records without a word.
func TestInheritedOffset(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		run := func(t *testing.T, extra string) result {
			tr := train(t, trainOptions{on: s, args: "--dataset plain --workers 2 --part 1000 --step 0 --main-reads " + extra})
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			tr.recycle(6, event.Swap)
			tr.moreEpochs(1)
			return tr.finish()
		}
		if s.Turn(0, 1) {
			t.Run("without the cure", func(t *testing.T) {
				t.Parallel()
				for range 10 {
					if r := run(t, "--no-cure"); r.Wrong > 0 {
						t.Logf("%d records wrong", r.Wrong)
						return
					}
				}
				t.Error("no record was wrong: the test does not show what it is for")
			})
		}
		t.Run("with the cure", func(t *testing.T) {
			t.Parallel()
			for range wardentest.Few(50, 1) {
				if r := run(t, ""); r.Wrong != 0 {
					t.Errorf("%d records wrong", r.Wrong)
				}
			}
		})
	})
}

// TestReplacementFails has every replacement be killed, fail or hang at its
// birth. With swap the old worker stays; with drain it is gone, and the others
// carry on, also over the end of an epoch.
func TestReplacementFails(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for i, c := range []struct {
			args, why, says string
			mode            event.Mode
			often           bool // without RSSWARDEN_ENDURANCE too
		}{
			{"--init birth", "did not come up: status -9", "", event.Swap, true},
			{"--init birth", "did not come up: status -9", "", event.Drain, true},
			{"--init raise", "did not come up: status 1", "no more licences", event.Swap, true},
			{"--init raise --loader endless", "did not come up: status 1", "no more licences", event.Drain, true},
			{"--init raise --context spawn", "did not come up: status 1", "no more licences", event.Swap, true},
			{"--init raise --context spawn", "did not come up: status 1", "no more licences", event.Drain, false},
			{"--init raise --context forkserver", "did not come up: status 1", "no more licences", event.Drain, true},
			{"--init hang --patience 2", "did not come up: in 2 s", "", event.Swap, false},
			{"--init hang --patience 2", "did not come up: in 2 s", "", event.Drain, true},
			{"--init hang --patience 2 --loader endless", "did not come up: in 2 s", "", event.Drain, false},
		} {
			if !(c.often && s.Turn(i, 10)) && wardentest.Few(1, 0) == 0 {
				continue
			}
			t.Run(string(c.mode)+"/"+c.args, func(t *testing.T) {
				t.Parallel()
				want := bareOn(t, s, brief)
				tr := train(t, trainOptions{on: s, args: brief + " --workers 2 " + c.args})
				tries := 3
				if c.mode == event.Drain || strings.Contains(c.args, "patience") {
					tries = 1
				}
				for range tries {
					tr.until("an epoch", func() bool { return tr.seen() > 0 && len(tr.workers()) == 2 })
					before := tr.workers()
					said := tr.ask(before[0], c.mode)
					if said.What != event.LoaderRefused || !strings.Contains(said.Reason, c.why) {
						t.Errorf("%+v", said)
					}
					if after := tr.workers(); c.mode == event.Swap && after[0] != before[0] {
						t.Errorf("worker %d was replaced by %d", before[0], after[0])
					}
					if c.mode == event.Drain {
						// The last one is not risked.
						if said := tr.ask(before[1], c.mode); said.What != event.LoaderRefused {
							t.Errorf("%+v", said)
						}
					}
				}
				tr.moreEpochs(2)
				tr.like(want)
				if text := tr.stderr.String(); !strings.Contains(text, c.says) || c.says == "" && text != "" {
					t.Errorf("stderr: %s", text)
				}
				tr.notOff()
			})
		}
	})
}

// TestLoaderEndsFirst lets go of a loader whose replacement has not come up: no
// process is left of it, and no file.
func TestLoaderEndsFirst(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []event.Mode{event.Swap, event.Drain}, nil, func(t *testing.T, s *stand, mode event.Mode) {
		// It comes up while torch ends the loader's workers, or not at all.
		init := map[event.Mode]string{event.Swap: "dally", event.Drain: "hang"}[mode]
		tr := train(t, trainOptions{on: s, args: "--loader plain --workers 2 --part 800 --step 0.01 --init " + init})
		var started Said
		for tries := 0; started.New == 0; tries++ {
			if tries == 50 {
				t.Fatal("the replacement was up before the loader's end 50 times")
			}
			id, err := tr.ctl.Recycle(tr.have(2)[0], mode)
			must(t, err)
			tr.until("a start", func() bool {
				if all := tr.heard(event.LoaderStarted, id); len(all) > 0 {
					started = all[0]
				}
				_, ok := tr.last(id)
				return ok || started.New != 0
			})
			tr.until("the loader's end", func() bool {
				said, ok := tr.last(id)
				switch {
				case ok && said.What == event.LoaderRecycled:
					started = Said{} // it was up before: once more
				case ok && (said.What != event.LoaderRefused || said.Reason != "loader ended"):
					t.Fatalf("%+v", said)
				}
				return ok
			})
		}
		tr.until("the replacement's end", func() bool { return unix.Kill(started.New, 0) == unix.ESRCH })
		tr.right()
		if left, _ := filepath.Glob(filepath.Join(tr.dir, "ready.*")); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}

// TestReadyLeft has files lie there that say of every PID that it has come up.
func TestReadyLeft(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		t.Parallel()
		// A replacement is up before the trainer looks.
		tr := train(t, trainOptions{on: s, args: "--workers 2 --part 160 --step 0.3"})
		first := tr.have(2)[0]
		for pid := first; pid < first+5000; pid++ {
			must(t, os.WriteFile(filepath.Join(tr.dir, "ready."+strconv.Itoa(pid)), nil, 0o600))
		}
		tr.recycle(2, event.Swap)
		tr.right()
	})
}

// TestUnpicklable has a dataset that can no longer be pickled when a worker is
// to be replaced: it stays.
func TestUnpicklable(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []event.Mode{event.Swap, event.Drain}, nil, func(t *testing.T, s *stand, mode event.Mode) {
		train(t, trainOptions{on: s, args: "--context spawn --unpicklable --workers 2 --part 400"}).keepsWorkers(mode)
	})
	torchtest.Each(t, func(t *testing.T, s *stand) {
		t.Run("iterable", func(t *testing.T) {
			t.Parallel()
			stream(t, s, "--context spawn --workers 1 --unpicklable").keepsWorkers(event.Swap)
		})
	})
}

// keepsWorkers ends a training after a recycle was refused because the dataset cannot be pickled.
func (tr *training) keepsWorkers(mode event.Mode) {
	tr.t.Helper()
	tr.until("an epoch", func() bool { return tr.seen() > 0 })
	before := tr.workers()
	if said := tr.ask(before[0], mode); said.What != event.LoaderRefused || !strings.HasPrefix(said.Reason, string(event.ReasonForkRefused)+": TypeError") {
		tr.t.Errorf("%+v", said)
	}
	tr.moreEpochs(2)
	if after := tr.workers(); !slices.Equal(after, before) {
		tr.t.Errorf("workers were %v, are %v", before, after)
	}
	tr.right()
	if tr.out.Held {
		tr.t.Error("the refusal keeps the iterator from its end")
	}
	tr.quiet()
}

// TestForkRefused has fork fail as under a full pids.max: recycling stops and
// says so; where the old worker has ended already, the others carry on.
func TestForkRefused(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for i, kind := range []string{"persistent", "endless"} {
			if !s.Turn(i, 2) {
				continue
			}
			for _, mode := range []event.Mode{event.Swap, event.Drain}[wardentest.Few(0, 1):] {
				t.Run(kind+"/"+string(mode), func(t *testing.T) {
					t.Parallel()
					want := bareOn(t, s, brief)
					args := brief + " --workers 3 --refuse-fork 4 --loader " + kind
					if kind == "endless" {
						args += " --refuse-oddly"
					}
					tr := train(t, trainOptions{on: s, args: args})
					tr.recycle(1, mode)
					for range 2 {
						s := tr.ask(tr.workers()[1], mode)
						if s.What != event.LoaderRefused || !strings.Contains(s.Reason, "fork refused") &&
							s.Reason != string(event.ReasonVanished) && s.Reason != "no such worker" {
							t.Errorf("%+v", s)
						}
					}
					tr.moreEpochs(2)
					tr.like(want)
				})
			}
		}
	})
}

// TestLeavingWorkerKilled kills a worker that was replaced and still owes
// batches: the training ends with torch's own error, as it does bare.
func TestLeavingWorkerKilled(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: "--workers 1 --slow 0.02 --step 0"})
		old := tr.have(1)[0]
		_, err := tr.ctl.Recycle(old, event.Swap)
		must(t, err)
		tr.until("the takeover", func() bool {
			swapped := tr.heard(event.LoaderSwapped, 0)
			return len(swapped) > 0 && swapped[0].Count > 0
		})
		must(t, unix.Kill(old, unix.SIGKILL))
		select {
		case <-tr.done:
		case <-time.After(30 * time.Second):
			t.Fatal("training hangs")
		}
		text := tr.stderr.String()
		if tr.err == nil || !strings.Contains(text, "RuntimeError: DataLoader worker (pid") {
			t.Errorf("ended with %v: %s", tr.err, text)
		}
	})
}
