//go:build endurance

package examples_test

import (
	"strings"
	"testing"
)

// TestEnduranceRequeueResumes waits for the second turn of a job that
// checkpoints and requeues itself: Slurm lets two minutes pass in between.
func TestEnduranceRequeueResumes(t *testing.T) {
	s := newStand(t)
	want := s.bare(t)
	got := s.requeued(t).Wait(t)
	if got.State != "COMPLETED" {
		t.Fatalf("%s, exit status %d\n%s%s", got.State, got.ExitCode, got.Stdout, got.Stderr)
	}
	for _, say := range []string{"turn 1\n", "checkpoint at epoch ", "turn 2\n", "resumed from "} {
		if !strings.Contains(got.Stdout, say) {
			t.Errorf("the output has no %q:\n%s", say, got.Stdout)
		}
	}
	if sum := checksum(t, got.Stdout); sum != want {
		t.Errorf("checksum %s after a requeue, in one run %s", sum, want)
	}
}
