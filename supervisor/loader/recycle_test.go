package loader

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// endurance multiplies the counts of the tests that look for rare faults.
func endurance(short, long int) int {
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		return long
	}
	return short
}

// bareRuns are results of trainings without us, each run once for all tests that ask for
// it, and again where the test that ran it ended meanwhile.
var bareRuns sync.Map

type bareRun struct {
	sync.Mutex
	done   bool
	result result
}

func bareOnce(t *testing.T, o trainOptions) result {
	t.Helper()
	kept, _ := bareRuns.LoadOrStore(fmt.Sprintf("%s %s %q", o.on.name, o.script, o.args), new(bareRun))
	run := kept.(*bareRun)
	run.Lock()
	defer run.Unlock()
	if !run.done {
		o.bare = true
		run.result = train(t, o).finish()
		run.done = true
	}
	return run.result
}

// bare returns the result of a training without us on this machine's torch.
// The same arguments are run once for all tests.
func bare(t *testing.T, args ...string) result {
	t.Helper()
	return bareOn(t, torch113, args...)
}

func bareOn(t *testing.T, s *stand, args ...string) result {
	t.Helper()
	return bareOnce(t, trainOptions{on: s, args: args})
}

// TestNoRequest holds that without a request nothing differs, random draws in
// the workers and in the trainer included.
func TestNoRequest(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, args := range []string{
			"--loader persistent --workers 2 --fail 7 900", "--loader plain --workers 2 --break-at 20",
			"--loader endless --workers 2", "--workers 0", "--dataset stream --workers 2", "--pin --sampler weighted --workers 2",
		} {
			if !s.turn(i, 6) {
				continue
			}
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
				// The batches on their way hold some; a leak would hold one for each of 20.
				if got.FDs[1] > max(want.FDs[0], want.FDs[1])+8 {
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
		for i, mode := range []event.Mode{event.Swap, event.Drain} {
			for j, kind := range []string{"persistent", "plain"} {
				if !s.turn(2*i+j, 4) {
					continue
				}
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
		args := []string{"--workers", "2", "--part", "1200", "--fail", "5", "77", "500", "1234", "3000", "--epochs", "2"}
		tr := train(t, trainOptions{on: s, args: append(slices.Clone(args), "--until", "@stop")})
		tr.recycle(8, event.Swap)
		tr.recycle(8, event.Drain)
		r := tr.finish()
		want := bareOn(t, s, args...)
		if want.Errors == 0 {
			t.Error("no record failed")
		}
		if r.Wrong != 0 || r.Errors != want.Errors || r.Checksum != want.Checksum {
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
