package loader

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestUndelivered has batches that are of use only while the worker that made
// them lives, and that come before their turn: it lives until they were handed
// out.
func TestUndelivered(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, args := range []string{"--loader endless", "--break-at 7"} {
			if !s.turn(i, 2) {
				continue
			}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				tr := train(t, trainOptions{on: s, args: append(strings.Fields(args), "--dataset", "named", "--sampler", "sequential",
					"--workers", "2", "--part", "800", "--step", "0", "--until", "@stop")})
				for range 2 {
					tr.recycle(2, event.Swap)
					tr.recycle(2, event.Drain)
				}
				if r := tr.finish(); r.Wrong != 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	})
}

// TestWorkerStays has workers that do not end when they are told to: they are
// made to, that is said, and they do not stand in the way of the next.
func TestWorkerStays(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, loader := range []string{"endless", "persistent"} {
			if !s.turn(i, 2) {
				continue
			}
			t.Run(loader, func(t *testing.T) {
				t.Parallel()
				tr := train(t, trainOptions{on: s, args: []string{"--dataset", "threaded", "--loader", loader, "--workers", "2", "--part", "400",
					"--told", "1", "--until", "@stop"}})
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
				if r := tr.finish(); r.Wrong != 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	})
}

// TestDescriptors holds that recycling leaves no descriptor behind, and that
// every worker that was replaced ended by itself.
func TestDescriptors(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, args := range []string{"--loader endless", "--pin"} {
			if !s.turn(i, 2) {
				continue
			}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				descriptors(t, s, args)
			})
		}
	})
}

func descriptors(t *testing.T, s *stand, args string) {
	tr := train(t, trainOptions{on: s, args: append(strings.Fields(args), "--workers", "2", "--part", "400", "--until", "@stop")})
	tr.until("an epoch", func() bool { return tr.seen() > 0 })
	var paused []float64
	for _, s := range tr.recycle(endurance(30, 500), event.Swap) {
		if s.Exit != 0 {
			t.Errorf("worker %d exited with %d", s.Worker, s.Exit)
		}
		paused = append(paused, s.Paused*1e3)
	}
	slices.Sort(paused)
	t.Logf("%d recycles, trainer paused %.1f ms (median), %.1f ms (most)", len(paused), paused[len(paused)/2], paused[len(paused)-1])
	seen := tr.seen()
	tr.until("another epoch", func() bool { return tr.seen() > seen })
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
	eachTorch(t, func(t *testing.T, s *stand) {
		run := func(t *testing.T, extra ...string) result {
			args := append([]string{"--dataset", "plain", "--workers", "2", "--part", "1000", "--step", "0",
				"--main-reads", "--until", "@stop"}, extra...)
			tr := train(t, trainOptions{on: s, args: args})
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			tr.recycle(6, event.Swap)
			seen := tr.seen()
			tr.until("another epoch", func() bool { return tr.seen() > seen })
			return tr.finish()
		}
		if s.turn(0, 1) {
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
			for range endurance(2, 50) {
				if r := run(t); r.Wrong != 0 {
					t.Errorf("%d records wrong", r.Wrong)
				}
			}
		})
	})
}

// TestSharedOffset holds that a file that is open for writing too stays shared,
// and one that is only a place stays as it is.
func TestSharedOffset(t *testing.T) {
	_, dir := hooked(t)
	out := runPython(t, nil, "-c", `
import os, sys
sys.path.insert(0, sys.argv[1])
from _rsswarden import offsets
folder = sys.argv[2]
log = open(folder + "/log", "w+b", buffering=0)
log.write(b"before\n")
read = open(folder + "/log", "rb", buffering=0)
read.seek(3)
place = os.open(folder + "/log", os.O_PATH)
found = offsets.positions()
print(found == {read.fileno(): 3})
pid = os.fork()
if not pid:
    offsets.reopen(found)
    log.write(b"child\n")
    read.read()
    os._exit(0)
os.waitpid(pid, 0)
log.write(b"parent\n")
print(read.tell(), open(folder + "/log").read().split())
`, dir, t.TempDir())
	if want := "True\n3 ['before', 'child', 'parent']\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// seen returns how many epochs the training has finished.
func (tr *training) seen() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.epochs
}
