package loader

import (
	"slices"
	"testing"
)

// TestGrown: each worker says what it has after 8 batches, and each time their number
// has doubled; a trainer that loads for itself says nothing.
func TestGrown(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		// 128 batches an epoch, 64 of them each worker's; the epochs' workers are others.
		said := train(t, trainOptions{on: s, args: []string{"--loader", "plain", "--workers", "2", "--part", "2048", "--batch", "16", "--epochs", "2", "--step", "0"}})
		if r := said.finish(); r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
		batches := map[int][]int{}
		for _, s := range said.said {
			if s.What == Grown {
				batches[s.Worker] = append(batches[s.Worker], s.Batches)
				if s.PID != s.Worker {
					t.Errorf("%+v: a worker tells of itself", s)
				}
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
		alone := train(t, trainOptions{on: s, args: []string{"--workers", "0", "--part", "512", "--epochs", "1", "--step", "0"}})
		alone.finish()
		if slices.ContainsFunc(alone.said, func(s Said) bool { return s.What == Grown }) {
			t.Error("a trainer that loads for itself told")
		}
	})
}
