//go:build endurance

package main_test

import (
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestMemAdviceEndurance: the same for ten jobs in each mode.
func TestMemAdviceEndurance(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) { advised(t, mode, 10) })
	}
}
