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
)

// TestReplacementFails has every replacement be killed, fail or hang at its
// birth. With swap the old worker stays; with drain it is gone, and the others
// carry on, also over the end of an epoch.
func TestReplacementFails(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
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
			if !(c.often && s.turn(i, 10)) && endurance(0, 1) == 0 {
				continue
			}
			t.Run(string(c.mode)+"/"+c.args, func(t *testing.T) {
				t.Parallel()
				args := []string{"--part", "400", "--epochs", "2"}
				want := bareOn(t, s, args...)
				tr := train(t, trainOptions{on: s, args: append(append(args, "--workers", "2", "--until", "@stop"), strings.Fields(c.args)...)})
				tries := 3
				if c.mode == event.Drain || strings.Contains(c.args, "patience") {
					tries = 1
				}
				for range tries {
					tr.until("an epoch", func() bool { return tr.seen() > 0 && len(tr.workers()) == 2 })
					before := tr.workers()
					id, err := tr.ctl.Recycle(before[0], c.mode)
					if err != nil {
						t.Fatal(err)
					}
					tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
					said, _ := tr.last(id)
					if said.What != event.LoaderRefused || !strings.Contains(said.Reason, c.why) {
						t.Errorf("%+v", said)
					}
					if after := tr.workers(); c.mode == event.Swap && after[0] != before[0] {
						t.Errorf("worker %d was replaced by %d", before[0], after[0])
					}
					if c.mode == event.Drain {
						// The last one is not risked.
						id, err := tr.ctl.Recycle(before[1], c.mode)
						if err != nil {
							t.Fatal(err)
						}
						tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
						if said, _ := tr.last(id); said.What != event.LoaderRefused {
							t.Errorf("%+v", said)
						}
					}
				}
				seen := tr.seen()
				tr.until("two more epochs", func() bool { return tr.seen() > seen+1 })
				if r := tr.finish(); r.Wrong != 0 || r.Checksum != want.Checksum {
					t.Errorf("got %+v, bare %+v", r, want)
				}
				if text := tr.stderr.String(); !strings.Contains(text, c.says) || c.says == "" && text != "" {
					t.Errorf("stderr: %s", text)
				}
				for _, said := range tr.said {
					if said.What == event.LoaderOff {
						t.Errorf("hook is off: %s", said.Reason)
					}
				}
			})
		}
	})
}

// TestLoaderEndsFirst lets go of a loader whose replacement has not come up: no
// process is left of it, and no file.
func TestLoaderEndsFirst(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, mode := range []event.Mode{event.Swap, event.Drain} {
			if !s.turn(i, 2) {
				continue
			}
			t.Run(string(mode), func(t *testing.T) {
				t.Parallel()
				// It comes up while torch ends the loader's workers, or not at all.
				init := map[event.Mode]string{event.Swap: "dally", event.Drain: "hang"}[mode]
				tr := train(t, trainOptions{on: s, args: []string{"--init", init, "--loader", "plain", "--workers", "2", "--part", "800", "--step", "0.01", "--until", "@stop"}})
				var started Said
				for tries := 0; started.New == 0; tries++ {
					if tries == 50 {
						t.Fatal("the replacement was up before the loader's end 50 times")
					}
					tr.until("workers", func() bool { return len(tr.workers()) == 2 })
					id, err := tr.ctl.Recycle(tr.workers()[0], mode)
					if err != nil {
						t.Fatal(err)
					}
					tr.until("a start", func() bool {
						i := slices.IndexFunc(tr.said, func(s Said) bool { return s.Request == id && s.What == event.LoaderStarted })
						if i >= 0 {
							started = tr.said[i]
						}
						_, ok := tr.last(id)
						return ok || i >= 0
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
				if r := tr.finish(); r.Wrong != 0 {
					t.Errorf("%+v", r)
				}
				if left, _ := filepath.Glob(filepath.Join(tr.dir, "ready.*")); len(left) > 0 {
					t.Errorf("left %v", left)
				}
			})
		}
	})
}

// TestReadyLeft has files lie there that say of every PID that it has come up.
func TestReadyLeft(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		// A replacement is up before the trainer looks.
		tr := train(t, trainOptions{on: s, args: []string{"--workers", "2", "--part", "160", "--step", "0.3", "--until", "@stop"}})
		tr.until("workers", func() bool { return len(tr.workers()) == 2 })
		for pid := tr.workers()[0]; pid < tr.workers()[0]+5000; pid++ {
			if err := os.WriteFile(filepath.Join(tr.dir, "ready."+strconv.Itoa(pid)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tr.recycle(2, event.Swap)
		if r := tr.finish(); r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestUnpicklable has a dataset that can no longer be pickled when a worker is
// to be replaced: it stays.
func TestUnpicklable(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, mode := range []event.Mode{event.Swap, event.Drain} {
			if !s.turn(i, 2) {
				continue
			}
			t.Run(string(mode), func(t *testing.T) {
				t.Parallel()
				tr := train(t, trainOptions{on: s, args: []string{"--context", "spawn", "--unpicklable", "--workers", "2", "--part", "400", "--until", "@stop"}})
				tr.until("an epoch", func() bool { return tr.seen() > 0 })
				before := tr.workers()
				id, err := tr.ctl.Recycle(before[0], mode)
				if err != nil {
					t.Fatal(err)
				}
				tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
				if said, _ := tr.last(id); said.What != event.LoaderRefused || !strings.HasPrefix(said.Reason, string(event.ReasonForkRefused)+": TypeError") {
					t.Errorf("%+v", said)
				}
				seen := tr.seen()
				tr.until("an epoch", func() bool { return tr.seen() > seen })
				if after := tr.workers(); !slices.Equal(after, before) {
					t.Errorf("workers were %v, are %v", before, after)
				}
				if r := tr.finish(); r.Wrong != 0 || tr.stderr.Len() > 0 {
					t.Errorf("%+v\n%s", r, tr.stderr.String())
				}
			})
		}
	})
}

// TestForkRefused has fork fail as under a full pids.max: recycling stops and
// says so; where the old worker has ended already, the others carry on.
func TestForkRefused(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, kind := range []string{"persistent", "endless"} {
			if !s.turn(i, 2) {
				continue
			}
			for _, mode := range []event.Mode{event.Swap, event.Drain}[endurance(1, 0):] {
				t.Run(kind+"/"+string(mode), func(t *testing.T) {
					t.Parallel()
					args := []string{"--part", "800", "--epochs", "2"}
					want := bareOn(t, s, args...)
					more := []string{"--loader", kind, "--workers", "3", "--refuse-fork", "4", "--until", "@stop"}
					if kind == "endless" {
						more = append(more, "--refuse-oddly")
					}
					tr := train(t, trainOptions{on: s, args: append(args, more...)})
					tr.recycle(1, mode)
					for range 2 {
						id, err := tr.ctl.Recycle(tr.workers()[1], mode)
						if err != nil {
							t.Fatal(err)
						}
						tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
						s, _ := tr.last(id)
						if s.What != event.LoaderRefused || !strings.Contains(s.Reason, "fork refused") &&
							s.Reason != string(event.ReasonVanished) && s.Reason != "no such worker" {
							t.Errorf("%+v", s)
						}
					}
					seen := tr.seen()
					tr.until("two more epochs", func() bool { return tr.seen() >= seen+2 })
					r := tr.finish()
					if r.Wrong != 0 || r.Checksum != want.Checksum {
						t.Errorf("got %+v, bare %+v", r, want)
					}
				})
			}
		}
	})
}

// TestLeavingWorkerKilled kills a worker that was replaced and still owes
// batches: the training ends with torch's own error, as it does bare.
func TestLeavingWorkerKilled(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: []string{"--workers", "1", "--slow", "0.02", "--step", "0", "--until", "@stop"}})
		tr.until("workers", func() bool { return len(tr.workers()) == 1 })
		old := tr.workers()[0]
		if _, err := tr.ctl.Recycle(old, event.Swap); err != nil {
			t.Fatal(err)
		}
		tr.until("the takeover", func() bool {
			i := slices.IndexFunc(tr.said, func(s Said) bool { return s.What == event.LoaderSwapped })
			return i >= 0 && tr.said[i].Count > 0
		})
		if err := unix.Kill(old, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
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

// TestRefused asks for what cannot be.
func TestRefused(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: []string{"--dataset", "stream", "--loader", "plain", "--workers", "2", "--until", "@stop"}})
		tr.until("workers", func() bool { return len(tr.workers()) == 2 })
		l := tr.ctl.Trainers()[0].Loaders[0]
		if l.Kind != "iterable" || l.CanRecycle || l.Why == "" {
			t.Errorf("%+v", l)
		}
		if _, err := tr.ctl.Recycle(1, event.Swap); err == nil {
			t.Error("recycling process 1 was asked for")
		}
		tr.finish()
	})
}
