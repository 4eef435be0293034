//go:build endurance

package main_test

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestEnduranceSlurm2411 is every mode by Slurm 24.11, and five runs of the
// trainer by PyTorch 2.6 in each of the two that end most trainings.
func TestEnduranceSlurm2411(t *testing.T) {
	accountingsOn(t, debian.Trixie, slurmtest.Modes)
	for _, c := range newerTrainings {
		t.Run("train, "+string(c.mode), func(t *testing.T) {
			s := trainStandOn(t, c.mode, slurmtest.Options{Suite: debian.Trixie})
			s.again(t, times(5), s.reference(t, c.options...), s.script(s.rsswarden+" run --", c.options...), fine, c.mem, "--no-requeue")
		})
	}
}
