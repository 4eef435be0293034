//go:build endurance

package main_test

import (
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestEnduranceRequeue: 5 of 5 in each of two modes.
func TestEnduranceRequeue(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Cgroup, slurmtest.Linux} {
		t.Run(string(mode), func(t *testing.T) {
			s := newRequeueStand(t, mode, "")
			n, good := times(5), 0
			for i := range n {
				then := []string{"go-on", "exit"}[i%2]
				run, got, took := s.whole(t, s.script("exec", requeueOptions, then))
				told, err := carriedOn(run, got)
				if err != nil {
					t.Errorf("run %d: %v\n%s%s", i+1, err, got.Stdout, got.Stderr)
					continue
				}
				good++
				t.Logf("run %d: %s after %.0f s; %s", i+1, got.State, took.Seconds(), told)
			}
			t.Logf("%s: %d of %d COMPLETED from the checkpoint", mode, good, n)
		})
	}
}
