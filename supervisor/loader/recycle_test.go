package loader

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// endurance multiplies the counts of the tests that look for rare faults.
func endurance(short, long int) int {
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		return long
	}
	return short
}

var bareRuns struct {
	sync.Mutex
	of map[string]func() result
}

// bare returns the result of a training without us on this machine's torch.
// The same arguments are run once for all tests.
func bare(t *testing.T, args ...string) result {
	t.Helper()
	return bareOn(t, torch113, args...)
}

func bareOn(t *testing.T, s *stand, args ...string) result {
	t.Helper()
	key := s.name + " " + strings.Join(args, " ")
	bareRuns.Lock()
	run, ok := bareRuns.of[key]
	if !ok {
		if bareRuns.of == nil {
			bareRuns.of = make(map[string]func() result)
		}
		run = sync.OnceValue(func() result { return train(t, trainOptions{on: s, bare: true, args: args}).finish() })
		bareRuns.of[key] = run
	}
	bareRuns.Unlock()
	return run()
}

// TestNoRequest holds that without a request nothing differs, random draws in
// the workers and in the trainer included.
func TestNoRequest(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for _, args := range []string{
			"--loader persistent --workers 2 --fail 7 900", "--loader plain --workers 2 --break-at 20",
			"--loader endless --workers 2", "--workers 0", "--dataset stream --workers 2", "--pin --sampler weighted --workers 2",
		} {
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				a := append(strings.Fields(args), "--part", "1000", "--epochs", "2", "--step", "0")
				want := bareOn(t, s, a...)
				tr := train(t, trainOptions{on: s, args: a})
				got := tr.finish()
				if got.Checksum != want.Checksum || got.Main != want.Main || got.Wrong != want.Wrong || got.Errors != want.Errors {
					t.Errorf("got %+v, bare %+v", got, want)
				}
				// Which worker's batch comes when differs from run to run, not what it draws.
				if got.Draws != want.Draws {
					t.Errorf("random draws differ: %+v, bare %+v", got, want)
				}
				// The batches on their way hold some.
				if got.FDs[1] > max(want.FDs[0], want.FDs[1])+4 {
					t.Errorf("descriptors %v, bare %v", got.FDs, want.FDs)
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

// TestRecycleBreak leaves each epoch early while workers are being replaced:
// the first prototype hung there, or met old batches in the new epoch.
func TestRecycleBreak(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for _, mode := range []event.Mode{event.Swap, event.Drain} {
			for _, kind := range []string{"persistent", "plain"} {
				t.Run(string(mode)+"/"+kind, func(t *testing.T) {
					t.Parallel()
					tr := train(t, trainOptions{on: s, args: []string{"--loader", kind, "--workers", "3", "--break-at", "25", "--until", "@stop"}})
					tr.recycle(endurance(8, 200), mode)
					if r := tr.finish(); r.Wrong != 0 || r.Repeated != 0 {
						t.Errorf("%+v", r)
					}
				})
			}
		}
	})
}

// TestRecycleFailingDataset has records that raise: the trainer catches that
// and goes on, and so does the recycling.
func TestRecycleFailingDataset(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		args := []string{"--workers", "2", "--part", "1200", "--epochs", "2", "--fail", "5", "77", "500", "1234", "3000"}
		want := bareOn(t, s, args...)
		if want.Errors == 0 {
			t.Fatal("no record failed")
		}
		tr := train(t, trainOptions{on: s, args: append(args, "--until", "@stop")})
		tr.recycle(8, event.Swap)
		tr.recycle(8, event.Drain)
		if r := tr.finish(); r.Wrong != 0 || r.Checksum != want.Checksum {
			t.Errorf("got %+v, bare %+v", r, want)
		}
	})
}

// TestRecycleInit holds that worker_init_fn runs in each replacement, with the
// id of the worker it replaces.
func TestRecycleInit(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: []string{"--workers", "2", "--init", "started", "--until", "@stop"}})
		said := tr.recycle(4, event.Swap)
		r := tr.finish()
		data, err := os.ReadFile(strings.TrimSuffix(tr.stop, "stop") + "started")
		if err != nil {
			t.Fatal(err)
		}
		id := make(map[int]string)
		for line := range strings.Lines(string(data)) {
			worker, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, _ := strconv.Atoi(pid)
			id[n] = worker
		}
		for _, s := range said {
			if id[s.New] == "" || id[s.New] != id[s.Worker] {
				t.Errorf("replacement %d ran as worker %q, the old one %d as %q", s.New, id[s.New], s.Worker, id[s.Worker])
			}
		}
		if r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestReplacementDies kills every replacement at its birth: the old worker
// stays, and the training does not notice.
func TestReplacementDies(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: []string{"--workers", "2", "--init", "birth", "--until", "@stop", "--epochs", "2"}})
		for range 3 {
			tr.until("workers", func() bool { return len(tr.workers()) == 2 })
			before := tr.workers()
			id, err := tr.ctl.Recycle(before[0], event.Swap)
			if err != nil {
				t.Fatal(err)
			}
			tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
			s, _ := tr.last(id)
			if s.What != event.LoaderRefused || !strings.Contains(s.Reason, "did not come up") {
				t.Errorf("%+v", s)
			}
			if after := tr.workers(); after[0] != before[0] {
				t.Errorf("worker %d was replaced by %d", before[0], after[0])
			}
		}
		if r := tr.finish(); r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestForkRefused has fork fail as under a full pids.max: recycling stops and
// says so; where the old worker has ended already, the others carry on.
func TestForkRefused(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for _, kind := range []string{"persistent", "endless"} {
			for _, mode := range []event.Mode{event.Swap, event.Drain}[endurance(1, 0):] {
				t.Run(kind+"/"+string(mode), func(t *testing.T) {
					t.Parallel()
					args := []string{"--part", "800", "--epochs", "2"}
					want := bareOn(t, s, args...)
					tr := train(t, trainOptions{on: s, args: append(args, "--loader", kind, "--workers", "3", "--refuse-fork", "4", "--until", "@stop")})
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

// TestDescriptors holds that recycling leaves no descriptor behind, and that
// every worker that was replaced ended by itself.
func TestDescriptors(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		t.Parallel()
		tr := train(t, trainOptions{on: s, args: []string{"--loader", "endless", "--workers", "2", "--part", "400", "--until", "@stop"}})
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
		// A worker or two may have been on its way at either look.
		if r.Wrong != 0 || r.FDs[1] > r.FDs[0]+8 {
			t.Errorf("%+v", r)
		}
	})
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

// seen returns how many epochs the training has finished.
func (tr *training) seen() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.epochs
}
