package main_test

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// The ways in which a site's Slurm kills, by Slurm 24.11 with cgroup/v1: the
// rest of [slurmtest.Modes] is in the endurance tests.
var modes2411 = []slurmtest.Mode{slurmtest.Linux, slurmtest.CgroupKill, slurmtest.Cgroup, slurmtest.CgroupLinux}

// TestSlurm2411 is [TestAccountings] with Slurm 24.11 and Python 3.13: the same
// rows, the same limits, counters and enforcers, the same jobs that die bare
// and end well wrapped.
func TestSlurm2411(t *testing.T) { accountingsOn(t, debian.Trixie, modes2411) }

func accountingsOn(t *testing.T, suite debian.Suite, modes []slurmtest.Mode) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			startAccountingOn(t, mode, slurmtest.Options{Suite: suite}).rows(t, mode)
		})
	}
}

// newerTrainings are trainings that die bare.
var newerTrainings = []struct {
	mode    slurmtest.Mode
	mem     string
	options []string
	bare    string
}{
	{slurmtest.Linux, "--mem=3000", []string{"--persistent", "--workers", "4", "--epochs", "2"}, "FAILED"},
	{slurmtest.Cgroup, "--mem=1500", []string{"--persistent", "--workers", "4", "--epochs", "3", "--leak-worker", "60"}, "OUT_OF_MEMORY"},
}

// TestSlurm2411Torch26 trains with PyTorch 2.6 in a job of Slurm 24.11.
func TestSlurm2411Torch26(t *testing.T) { trainingsOn(t, debian.Trixie) }

func trainingsOn(t *testing.T, suite debian.Suite) {
	for _, c := range newerTrainings[:few(len(newerTrainings), 1)] {
		t.Run(string(c.mode), func(t *testing.T) {
			s := trainStandOn(t, c.mode, slurmtest.Options{Suite: suite})
			want := s.reference(t, c.options...)
			if bare := s.Submit(t, s.script("", c.options...), c.mem, "--no-requeue").Wait(t); bare.State != c.bare {
				t.Errorf("bare: %s, want %s: the test proves nothing", bare.State, c.bare)
			}
			s.carried(t, want, s.script(s.rsswarden+" run --", c.options...), c.mem, "--no-requeue")
		})
	}
}
