package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
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
	wardentest.NoError(tr.t, err)
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

// statefulTraining starts testdata/stateful.py; statefulBare is the result of it without us.
func statefulTraining(t *testing.T, on *stand, args string) *training {
	return train(t, trainOptions{on: on, script: "stateful.py", args: args})
}

func statefulBare(t *testing.T, on *stand, args string) result {
	t.Helper()
	return bareOnce(t, trainOptions{on: on, script: "stateful.py", args: args})
}

// statefulShapes are the loaders whose workers are replaced. TORCHDATA=DIR names
// a checkout of torchdata to run them with, in place of the stand-in.
var statefulShapes = []string{
	"--dataset map --count 700 --every 7 --save 61", "--dataset stream --count 700 --save 61",
	"--dataset shards --count 700 --persistent --every 7", "--dataset bare --persistent --break-at 40",
	// From here on with RSSWARDEN_ENDURANCE or TORCHDATA only.
	"--dataset map --save 29", "--dataset stream --every 7 --save 29", "--dataset shards --save 29", "--dataset bare --every 7 --save 29",
	"--dataset map --persistent --break-at 40", "--dataset stream --persistent --break-at 33",
	"--dataset stream --workers 1 --save 29", "--dataset map --workers 1 --prefetch 1",
	"--dataset stream --context spawn --workers 2 --save 61", "--dataset map --context forkserver --workers 2",
	"--dataset stream --pin --save 29", "--dataset map --pin --persistent", "--dataset numpy --every 3", "--dataset slow --timeout 60",
	"--dataset map --fail 5 77 500 777 1100", "--dataset stream --fail 5 77 500 777 1100",
}

// sameAs ends the training and compares it with one without us.
func (tr *training) sameAs(want result) {
	tr.t.Helper()
	if tr.like(want); want.Wrong != 0 || want.Batches == 0 {
		tr.t.Errorf("bare %+v", want)
	}
	tr.quiet()
	tr.notOff()
}

// refused asks for a worker until that is refused in the middle of an epoch; it
// returns the workers that were there, too.
func (tr *training) refused() ([]int, Said) {
	tr.t.Helper()
	for {
		before := tr.some()
		s := tr.ask(before[0], event.Drain)
		if s.What != event.LoaderRefused {
			tr.t.Fatalf("%+v", s)
		}
		if !slices.Contains(passing, s.Reason) {
			return before, s
		}
	}
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

func descriptors(t *testing.T, tr *training) {
	tr.until("an epoch", func() bool { return tr.seen() > 0 })
	var paused []float64
	for _, s := range tr.recycle(wardentest.Few(500, 20), event.Swap) {
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

func hookFails(t *testing.T, script, args string, faults []fault) {
	torch113.Need(t)
	for _, f := range faults {
		t.Run(f.kind+"/"+f.in, func(t *testing.T) {
			t.Parallel()
			want := bareOnce(t, trainOptions{on: torch113, script: script, args: args})
			tr := train(t, trainOptions{script: script, args: args, hook: f.put(t)})
			wardentest.NoError(t, tr.ctl.SetLeft(rss.TiB))
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			wardentest.NoError(t, tr.ctl.SetPrivate(true))
			for n := range 4 {
				if pids := tr.workers(); len(pids) > 1 {
					tr.ctl.Trim()
					tr.ctl.GC()
					tr.ctl.Recycle(pids[n%2], []event.Mode{event.Swap, event.Drain}[n/2])
				}
				tr.moreEpochs(1)
			}
			// Some are met where a reason is given for the loader alone.
			why := fmt.Sprintf("%+v", tr.ctl.Trainers())
			if got := tr.like(want); got.Main != want.Main {
				t.Errorf("got %+v, bare %+v", got, want)
			}
			tr.quiet()
			off := strings.Contains(why, "injected into "+f.in) || slices.ContainsFunc(tr.said, func(s Said) bool {
				// What fails in a fork helper ends it.
				return (s.What == event.LoaderOff || s.What == event.LoaderRefused) && strings.Contains(s.Reason, "injected into "+f.in) ||
					strings.HasPrefix(f.in, "fork_helper.") && strings.HasPrefix(s.Reason, helperEnds)
			})
			if tr.reached() && !off {
				t.Errorf("that the hook is off was not said: %+v", tr.said)
			}
			if !tr.reached() && wardentest.Few(1, 0) == 0 {
				t.Errorf("%s was not reached: %+v", f.in, tr.said)
			}
		})
	}
}

// TestNoRequest holds that without a request nothing differs, random draws in
// the workers and in the trainer included.
func TestNoRequest(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{
		"--loader plain --workers 2 --fail 7 900",
		// From here on with RSSWARDEN_ENDURANCE only.
		"--pin --sampler weighted --workers 2", "--workers 0",
		"--loader persistent --workers 2 --break-at 20", "--loader endless --workers 2", "--dataset stream --workers 2",
	}[:wardentest.Few(6, 1)], nil, func(t *testing.T, s *stand, args string) {
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
	torchtest.On(t, torch26, func(t *testing.T, s *stand) {
		t.Parallel()
		const args = "--workers 2 --part 1200 --fail 5 77 500 1234 3000 --epochs 2"
		tr := train(t, trainOptions{on: s, args: args})
		tr.recycle(wardentest.Few(100, 3), event.Swap)
		tr.recycle(wardentest.Few(100, 3), event.Drain)
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
	torchtest.EachCase(t, []string{"endless", "persistent"}[:wardentest.Few(2, 1)], nil, func(t *testing.T, s *stand, loader string) {
		tr := train(t, trainOptions{on: s, args: "--dataset threaded --workers 2 --part 400 --told 3 --loader " + loader})
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
	torchtest.EachCase(t, []string{"--pin --loader endless", "--pin", "--loader endless"}[:wardentest.Few(3, 1)], nil, func(t *testing.T, s *stand, args string) {
		descriptors(t, train(t, trainOptions{on: s, args: args + " --workers 2 --part 400"}))
	})
}

// TestInheritedOffset has a dataset that opens a plain file at its first use,
// and a trainer that reads a record itself: a forked replacement would share
// the trainer's file offset, and read wrong records without a word.
func TestInheritedOffset(t *testing.T) {
	t.Parallel()
	torchtest.On(t, torch113, func(t *testing.T, s *stand) {
		run := func(t *testing.T, extra string) result {
			tr := train(t, trainOptions{on: s, args: "--dataset plain --workers 2 --part 1000 --step 0 --main-reads " + extra})
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			tr.recycle(6, event.Swap)
			tr.moreEpochs(1)
			return tr.finish()
		}
		t.Run("without the cure", func(t *testing.T) {
			wardentest.Long(t)
			t.Parallel()
			for range 10 {
				if r := run(t, "--no-cure"); r.Wrong > 0 {
					t.Logf("%d records wrong", r.Wrong)
					return
				}
			}
			t.Error("no record was wrong: the test does not show what it is for")
		})
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

// TestPipeOfTheProgram has a program that reads a pipe of the trainer's to its end, as
// subprocess.Popen(stdin=PIPE) starts one: no replacement has the pipe open.
func TestPipeOfTheProgram(t *testing.T) {
	t.Parallel()
	for _, mode := range []event.Mode{event.Swap, event.Drain} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			tr := train(t, trainOptions{on: torch113, args: "--workers 2 --part 1000 --reader"})
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			tr.recycle(2, mode)
			tr.moreEpochs(1)
			if r := tr.finish(); r.Wrong+r.Errors != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
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
			{"--init birth", "did not come up: status -9", "", event.Swap, false},
			{"--init birth", "did not come up: status -9", "", event.Drain, true},
			{"--init raise", "did not come up: status 1", "no more licences", event.Swap, true},
			{"--init raise --loader endless", "did not come up: status 1", "no more licences", event.Drain, false},
			{"--init raise --context spawn", "did not come up: status 1", "no more licences", event.Swap, false},
			{"--init raise --context spawn", "did not come up: status 1", "no more licences", event.Drain, false},
			{"--init raise --context forkserver", "did not come up: status 1", "no more licences", event.Drain, false},
			{"--init hang --patience 2", "did not come up: in 2 s", "", event.Swap, false},
			{"--init hang --patience 2", "did not come up: in 2 s", "", event.Drain, true},
			{"--init hang --patience 2 --loader endless", "did not come up: in 2 s", "", event.Drain, false},
		} {
			if !(c.often && s.Turn(i)) && wardentest.Few(1, 0) == 0 {
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

// TestDrainOverEpochs: the next epoch begins while a worker that drains has no replacement yet.
func TestDrainOverEpochs(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"--helper --pin", "", "--workers 2"}[:wardentest.Few(3, 1)], nil, func(t *testing.T, s *stand, args string) {
		tr := train(t, trainOptions{on: s, args: "--workers 3 --part 100 --init dally " + args,
			before: func(c *Control) error { return c.SetLeft(rss.TiB) }})
		tr.until("an epoch", func() bool { return tr.seen() > 0 })
		seen := tr.seen()
		said := tr.ask(tr.some()[1], event.Drain)
		if epochs := tr.seen() - seen; said.What != event.LoaderRecycled || epochs < 2 || said.Paused > 2 { // the replacement dallies for 4 s
			t.Errorf("%d epochs, %+v", epochs, said)
		}
		tr.moreEpochs(1)
		if r := tr.finish(); r.Wrong != 0 || r.Repeated != 0 {
			t.Errorf("%+v", r)
		}
		tr.notOff()
	})
}

// TestLoaderEndsFirst lets go of a loader whose replacement has not come up: no
// process is left of it, and no file.
func TestLoaderEndsFirst(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []event.Mode{event.Swap, event.Drain}[:wardentest.Few(2, 1)], nil, func(t *testing.T, s *stand, mode event.Mode) {
		// It comes up while torch ends the loader's workers, or not at all.
		init := map[event.Mode]string{event.Swap: "dally", event.Drain: "hang"}[mode]
		tr := train(t, trainOptions{on: s, args: "--loader plain --workers 2 --part 800 --step 0.01 --init " + init})
		var started Said
		for tries := 0; started.New == 0; tries++ {
			if tries == 50 {
				t.Fatal("the replacement was up before the loader's end 50 times")
			}
			id, err := tr.ctl.Recycle(tr.have(2)[0], mode)
			wardentest.NoError(t, err)
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
	wardentest.Long(t)
	t.Parallel()
	torchtest.On(t, torch113, func(t *testing.T, s *stand) {
		t.Parallel()
		// A replacement is up before the trainer looks.
		tr := train(t, trainOptions{on: s, args: "--workers 2 --part 160 --step 0.3"})
		first := tr.have(2)[0]
		for pid := first; pid < first+5000; pid++ {
			wardentest.NoError(t, os.WriteFile(filepath.Join(tr.dir, "ready."+strconv.Itoa(pid)), nil, 0o600))
		}
		tr.recycle(2, event.Swap)
		tr.right()
	})
}

// TestUnpicklable has a dataset that can no longer be pickled when a worker is
// to be replaced: it stays.
func TestUnpicklable(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []event.Mode{event.Swap, event.Drain}[wardentest.Few(0, 1):], nil, func(t *testing.T, s *stand, mode event.Mode) {
		train(t, trainOptions{on: s, args: "--context spawn --unpicklable --workers 2 --part 400"}).keepsWorkers(mode)
	})
	torchtest.On(t, torch113, func(t *testing.T, s *stand) {
		t.Run("iterable", func(t *testing.T) {
			wardentest.Long(t)
			t.Parallel()
			stream(t, s, "--context spawn --workers 1 --unpicklable").keepsWorkers(event.Swap)
		})
	})
}

// TestForkRefused has fork fail as under a full pids.max: recycling stops and
// says so; where the old worker has ended already, the others carry on.
func TestForkRefused(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for i, kind := range []string{"persistent", "endless"}[wardentest.Few(0, 1):] {
			if !s.Turn(i) {
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
	torchtest.On(t, newest, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: "--workers 1 --slow 0.02 --step 0"})
		old := tr.have(1)[0]
		_, err := tr.ctl.Recycle(old, event.Swap)
		wardentest.NoError(t, err)
		tr.until("the takeover", func() bool {
			swapped := tr.heard(event.LoaderSwapped, 0)
			return len(swapped) > 0 && swapped[0].Count > 0
		})
		wardentest.NoError(t, unix.Kill(old, unix.SIGKILL))
		select {
		case <-tr.done:
		case <-time.After(rsstest.Patience):
			t.Fatal("training hangs")
		}
		text := tr.stderr.String()
		if tr.err == nil || !strings.Contains(text, "RuntimeError: DataLoader worker (pid") {
			t.Errorf("ended with %v: %s", tr.err, text)
		}
	})
}

// TestIterable replaces the workers of persistent loaders over iterable
// datasets, some several epochs in a row: every record comes once an epoch, in
// the order in which it comes bare, and main draws what it draws bare.
func TestIterable(t *testing.T) {
	t.Parallel()
	shapes := []string{
		"--break-at 20",
		// From here on with RSSWARDEN_ENDURANCE only.
		"--dataset pipe --generator", "", "--context spawn --workers 2 --break-at 20", "--workers 1", "--generator", "--dataset pipe", "--dataset pipe --break-at 9", "--context forkserver --workers 2",
	}
	torchtest.EachCase(t, shapes[:wardentest.Few(len(shapes), 1)], nil, func(t *testing.T, on *stand, args string) {
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
	for _, c := range [][2]string{
		{"--keeping --dataset forever", "keeps one iterator"},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--dataset own", "its own iterator"},
		{"--plain", "end with the epoch"},
		{"--dataset counting", "__iter__ sets .epochs"},
	}[:wardentest.Few(4, 1)] {
		args, why := c[0], c[1]
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
				wardentest.NoError(t, err)
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
	wardentest.NoError(t, err)
	tr.until("a word", func() bool {
		return slices.ContainsFunc(tr.said, func(s Said) bool { return s.Request == id })
	})
	if slices.Equal(tr.workers(), pids) && tr.ctl.Trainers()[0].Loaders[0].CanRecycle {
		t.Errorf("a second worker may be asked for: %+v", tr.ctl.Trainers()[0].Loaders)
	}
	wardentest.NoError(t, tr.ctl.Cancel(id))
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
	for _, args := range []string{"--refuse-fork 4 3", "--refuse-fork 4 3 --refuse-oddly"}[:wardentest.Few(2, 1)] {
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

// TestStateful replaces workers of StatefulDataLoaders in the middle of their
// epochs. Batches come as bare, and each checkpoint taken meanwhile resumes with
// the rest of its epoch.
func TestStateful(t *testing.T) {
	t.Parallel()
	shapes := statefulShapes
	if os.Getenv("TORCHDATA") == "" {
		shapes = shapes[:wardentest.Few(len(shapes), 1)]
	}
	torchtest.Each(t, func(t *testing.T, on *stand) {
		for i, args := range shapes {
			if os.Getenv("TORCHDATA") == "" && !on.Turn(i) {
				continue
			}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				want := statefulBare(t, on, args)
				tr := statefulTraining(t, on, args)
				said := tr.recycle(wardentest.Few(60, 6), event.Swap)
				for _, s := range said {
					if s.Exit != 0 || s.Before == 0 || s.After == 0 || s.Worker == s.New {
						t.Errorf("%+v", s)
					}
				}
				for _, l := range tr.ctl.Trainers()[0].Loaders {
					if !l.CanRecycle || !strings.HasPrefix(l.Kind, "stateful ") {
						t.Errorf("%+v", l)
					}
				}
				tr.moreEpochs(1)
				tr.sameAs(want)
				t.Logf("%d recycled, %d checkpoints resumed", len(said), tr.out.Saved)
			})
		}
	})
}

// TestStatefulReplacementFails has every replacement die, hang, fail or come back
// with another state than it was given: the worker stays, and no batch differs.
func TestStatefulReplacementFails(t *testing.T) {
	t.Parallel()
	type kase struct{ args, why string }
	torchtest.EachCase(t, []kase{
		{"--dataset broken", "replacement cannot load the worker's state: KeyError: 'no such shard'"},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--dataset forgetful --persistent", "another state after load_state_dict"},
		{"--dataset hung --waits 1", "the training waited 1 s"},
		{"--dataset ended", "replacement did not come up: status -9"},
		{"--dataset hung --timeout 10", "within the loader's timeout"},
		{"--dataset stream --unpicklable --persistent --context spawn", "fork refused: TypeError"},
		{"--dataset map --unpicklable --persistent --context forkserver", "fork refused: TypeError"},
	}[:wardentest.Few(7, 1)], func(c kase) string { return c.args }, func(t *testing.T, on *stand, c kase) {
		args := c.args + " --workers 2 --count 400"
		want := statefulBare(t, on, strings.Replace(args, " --unpicklable", "", 1))
		tr := statefulTraining(t, on, args)
		tr.until("an epoch", func() bool { return tr.seen() > 0 })
		for range 2 {
			before, said := tr.refused()
			if !strings.Contains(said.Reason, c.why) {
				t.Fatalf("%+v", said)
			}
			if after := tr.workers(); strings.Contains(c.args, "persistent") && !slices.Equal(before, after) {
				t.Errorf("workers were %v, are %v", before, after)
			}
		}
		tr.moreEpochs(2)
		tr.sameAs(want)
	})
}

// TestStatefulRefused has loaders whose workers' states do not tell their place,
// and a torchdata that starts its workers in another way.
func TestStatefulRefused(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	changed := t.TempDir()
	wardentest.NoError(t, os.CopyFS(changed, os.DirFS("testdata/standin")))
	const module = "torchdata/stateful_dataloader/stateful_dataloader.py"
	text, err := os.ReadFile(filepath.Join(changed, module))
	wardentest.NoError(t, err)
	other := strings.Replace(string(text), "worker_states[self._worker_key(i)]", "worker_states.get(self._worker_key(i))", 1)
	if other == string(text) {
		t.Fatal("nothing changed")
	}
	wardentest.NoError(t, os.WriteFile(filepath.Join(changed, module), []byte(other), 0o600))
	for _, c := range []struct{ args, torchdata, why string }{
		{"--dataset unstated", "", "no state_dict"},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--dataset map", changed, "worker_states.get(self._worker_key(i))"},
		{"--dataset hugging", "", "shuffle buffer"},
		{"--dataset stream --every 0", "", "snapshot_every_n_steps is 0"},
		{"--dataset counting", "", "__iter__ sets .epochs"},
	}[:wardentest.Few(5, 1)] {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			args := c.args + " --count 400 --persistent"
			want := statefulBare(t, torch113, args)
			o := trainOptions{script: "stateful.py", args: args}
			if c.torchdata != "" {
				o.env = []string{"TORCHDATA=" + c.torchdata}
			}
			tr := train(t, o)
			tr.have(3)
			l := tr.ctl.Trainers()[0].Loaders[0]
			if l.CanRecycle || !strings.Contains(l.Why, c.why) {
				t.Errorf("%+v", l)
			}
			if c.torchdata == "" {
				if _, said := tr.refused(); !strings.Contains(said.Reason, c.why) {
					t.Errorf("%+v", said)
				}
			}
			// They are trimmed all the same.
			id, asked, err := tr.ctl.Trim()
			if err != nil || len(asked) != 3 {
				t.Fatalf("%v asked, %v", asked, err)
			}
			tr.until("trims", func() bool { return len(tr.heard(event.LoaderTrimmed, id)) > 0 })
			tr.sameAs(want)
		})
	}
}

// TestStatefulHookFails has functions of the hook raise while a worker is being replaced: the
// training goes on with the right batches.
func TestStatefulHookFails(t *testing.T) {
	t.Parallel()
	faults := []fault{
		{"raise", "stateful.Recycler._settle"}, {"raise", "stateful.Recycler.wait"}, {"raise:2", "recycle.Recycler._take_over"},
	}[:wardentest.Few(3, 1)]
	if wardentest.Few(1, 0) == 1 {
		for name, statements := range hookFunctions(t) {
			if strings.HasPrefix(name, "stateful.") || strings.HasPrefix(name, "recycle.Recycler._take_over") {
				for k := range statements {
					faults = append(faults, fault{fmt.Sprintf("raise:%d", k), name})
				}
			}
		}
	}
	hookFails(t, "stateful.py", "--dataset stream --workers 2 --count 400 --persistent", faults)
}

// TestForkHelperFails is the same where a fork helper starts the replacements: in it, and in
// the trainer, which forks them then.
func TestForkHelperFails(t *testing.T) {
	t.Parallel()
	faults := []fault{{"raise:6", "fork_helper.Helper.ask"}, {"raise", "fork_helper._Serving._worker"}, {"raise:1", "fork_helper.Helper.answer"}}[:wardentest.Few(3, 1)]
	if wardentest.Few(1, 0) == 1 {
		for name, statements := range hookFunctions(t) {
			if strings.HasPrefix(name, "fork_helper.") || strings.HasPrefix(name, "changes.") ||
				slices.Contains([]string{"recycle.Recycler.answered", "recycle.Recycler.unhelp", "recycle.Recycler._start", "recycle.Recycler._started"}, name) {
				for k := range statements {
					faults = append(faults, fault{fmt.Sprintf("raise:%d", k), name})
				}
			}
		}
	}
	hookFails(t, "", "--helper --workers 2 --part 400 --epochs 2", faults)
}

// TestIterableHookFails is the same over an iterable dataset, with requests of all kinds.
func TestIterableHookFails(t *testing.T) {
	t.Parallel()
	hookFails(t, "stream.py", "", []fault{
		{"raise", "iterable.Renewal.__init__"}, {"raise", "iterable.Renewal.report"},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"raise", "iterable.Held.take"}, {"raise", "iterable.begin"}, {"raise", "iterable.due"},
		{"raise", "collect.Collector.requests"}, {"raise", "private.trim"},
	}[:wardentest.Few(7, 1)])
}
