package loader

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// copied runs testdata/copies.py until all its workers have told what is their own, or,
// where they are forked, have all been there, and returns their loader.
func copied(t *testing.T, s *stand, args string) (l Loader) {
	t.Helper()
	tr := train(t, trainOptions{on: s, script: "copies.py", args: args})
	tr.until("the workers to tell", func() bool {
		for _, one := range tr.ctl.Trainers() {
			for _, d := range one.Loaders {
				if l = d; d.Unforked == nil || len(d.Unforked.Own) == d.NumWorkers {
					return true
				}
			}
		}
		return false
	})
	tr.finish()
	tr.notOff()
	return l
}

// TestUnforked has workers of each start method tell what they cost.
func TestUnforked(t *testing.T) {
	const mib = 100
	for _, c := range []struct {
		name, args string
		start, by  string // by is empty where workers are forked
		sent, own  bool   // the data set was pickled; each worker has it in private memory
		often      bool
	}{
		{"default", "", "fork", "", false, false, true},
		{"fork", "--context fork", "fork", "", false, false, false},
		{"spawn", "--context spawn", "spawn", "multiprocessing_context", true, true, true},
		{"forkserver for the program", "--set forkserver", "forkserver", "set_start_method", true, true, true},
		{"in a child of spawn", "--child spawn", "spawn", "parent", true, true, false},
		{"list", "--set spawn --shape list", "spawn", "set_start_method", true, true, false},
		{"tensor: in shared memory", "--context spawn --shape tensor", "spawn", "multiprocessing_context", false, false, true},
		{"opened in the worker", "--context spawn --shape opened", "spawn", "multiprocessing_context", false, true, false},
		{"one worker", "--context forkserver --workers 1", "forkserver", "multiprocessing_context", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i, s := range []*stand{torch113, torch26} {
				if wardentest.Few(1, 0) == 0 && (!c.often || i == 1 && c.start != "forkserver") {
					continue // with RSSWARDEN_ENDURANCE
				}
				t.Run(s.Name, func(t *testing.T) {
					l := copied(t, s, c.args)
					u := l.Unforked
					if l.Start != c.start || (u != nil) != (c.by != "") {
						t.Fatalf("%+v", l)
					}
					if u == nil {
						return
					}
					t.Logf("%+v", *u)
					if u.By != c.by || u.Took <= 0 && c.sent || u.Took > 5*time.Minute || u.CUDA || u.Registered != "" {
						t.Errorf("%+v", *u)
					}
					if got := u.Sent >= mib<<20*9/10 && u.Sent < mib<<20*3/2; got != c.sent || u.Sent < 0 {
						t.Errorf("%d bytes were sent to each", u.Sent)
					}
					for _, own := range u.Own {
						// Beside the data that is what Python and torch write until the first batch.
						if least := rss.Bytes(mib) * rss.MiB; c.own != (own >= least) || own > least+64*rss.MiB {
							t.Errorf("a worker has %v of its own", own)
						}
					}
				})
			}
		})
	}
}

// TestGrown: each worker says what it has after 8 batches, and each time their number
// has doubled; a trainer that loads for itself says nothing.
func TestGrown(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		// 128 batches an epoch, 64 of them each worker's; the epochs' workers are others.
		tr := train(t, trainOptions{on: s, args: "--loader plain --workers 2 --part 2048 --batch 16 --epochs 2 --step 0", ends: true})
		tr.right()
		batches := map[int][]int{}
		for _, s := range tr.heard(Grown, 0) {
			batches[s.Worker] = append(batches[s.Worker], s.Batches)
			if s.PID != s.Worker {
				t.Errorf("%+v: a worker tells of itself", s)
			}
		}
		if len(batches) != 4 {
			t.Errorf("%d workers told, want those of two epochs: %v", len(batches), batches)
		}
		for pid, got := range batches {
			// After the last batch nothing is asked for.
			if !slices.Equal(got, []int{8, 16, 32}) {
				t.Errorf("worker %d told after %v batches", pid, got)
			}
		}
		alone := train(t, trainOptions{on: s, args: "--workers 0 --part 512 --epochs 1 --step 0", ends: true})
		if alone.finish(); len(alone.heard(Grown, 0)) > 0 {
			t.Error("a trainer that loads for itself told")
		}
	})
}
