//go:build endurance

package slurm

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// again runs a wrapped job n times and counts those that end as they should.
func (s stand) again(t *testing.T, n int, want, script string, check func(slurmtest.Result) error, args ...string) {
	t.Helper()
	good := 0
	for i := range n {
		got := s.Submit(t, script, args...).Wait(t)
		err := check(got)
		if got.State != "COMPLETED" || wardentest.Checksum(got.Stdout) != want {
			err = fmt.Errorf("%s %d:%d, checksum %s: %v", got.State, got.ExitCode, got.Signal, wardentest.Checksum(got.Stdout), err)
		}
		if err != nil {
			t.Errorf("run %d: %v\n%s", i+1, err, got.Stderr)
			continue
		}
		good++
	}
	t.Logf("%d of %d COMPLETED 0:0 with checksum %s", good, n, want)
}

func fine(slurmtest.Result) error { return nil }

func TestEnduranceSlurmLinux(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	for _, shape := range []string{"--persistent", "--endless"} {
		t.Run(shape, func(t *testing.T) {
			options := []string{shape, "--workers", "4", "--epochs", "4"}
			s.again(t, wardentest.Times(20), s.reference(t, options...), s.script(s.rsswarden+" run --", options...), fine, memory(3000, 1700))
		})
	}
}

func TestEnduranceSlurmCgroup(t *testing.T) {
	s := trainStand(t, slurmtest.Cgroup)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4", "--leak-worker", "60"}
	// oom_kill of a job's cgroup is gone with it; Slurm says OUT_OF_MEMORY for
	// one, and our summary names it.
	check := func(r slurmtest.Result) error {
		if strings.Contains(r.Stderr, "OOM killer ended") {
			return fmt.Errorf("an OOM kill")
		}
		return nil
	}
	s.again(t, wardentest.Times(20), s.reference(t, options...), s.script(s.rsswarden+" run --", options...), check, memory(1500, 800), "--no-requeue")
}

// TestEnduranceWatcherKilled kills the watcher at random moments of a job that
// nothing limits.
func TestEnduranceWatcherKilled(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4"}
	want := s.reference(t, options...)
	n, good, struck := wardentest.Times(50), 0, 0
	for i := range n {
		run := s.Submit(t, s.script(s.rsswarden+" run --", options...), "--mem=15000")
		run.Running(t)
		stop, count := make(chan struct{}), make(chan int)
		go func() {
			kills := 0
			defer func() { count <- kills }()
			for {
				select {
				case <-stop:
					return
				case <-time.After(rand.N(6 * time.Second)):
				}
				for _, pid := range run.Processes("batch") {
					if wardentest.IsWatcher(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
						kills++
					}
				}
			}
		}()
		got := run.Wait(t)
		close(stop)
		struck += <-count
		if got.State != "COMPLETED" || got.ExitCode != 0 || wardentest.Checksum(got.Stdout) != want {
			t.Errorf("run %d: %s %d:%d, checksum %s, want %s\n%s", i+1, got.State, got.ExitCode, got.Signal, wardentest.Checksum(got.Stdout), want, got.Stderr)
			continue
		}
		good++
	}
	t.Logf("%d of %d with the right status and checksum; %d watchers killed", good, n, struck)
	if struck < n/2 {
		t.Errorf("only %d watchers were killed: the test proves little", struck)
	}
}

// TestEnduranceCheckpoint: a trainer that leaks is asked in time, every time.
func TestEnduranceCheckpoint(t *testing.T) {
	for name, mode := range map[string]slurmtest.Mode{"linux": slurmtest.Linux, "cgroup": slurmtest.Cgroup} {
		t.Run(name, func(t *testing.T) {
			s := leakyStand(t, mode)
			s.bare(t)
			n, good := wardentest.Times(20), 0
			for i := range n {
				checkpoint := filepath.Join(s.Dir(), fmt.Sprintf("checkpoint-%s-%d", name, i))
				done, got, err := s.turn(t, checkpoint)
				if done || err != nil {
					t.Errorf("run %d: done %v, %v\n%s", i+1, done, err, got.Stderr)
					continue
				}
				good++
			}
			t.Logf("%d of %d asked by USR2 once, with a checkpoint and exit status %d", good, n, askedStatus)
		})
	}
}

// TestMemAdviceEndurance: the same for ten jobs in each mode.
func TestMemAdviceEndurance(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) { advised(t, mode, 10) })
	}
}

// TestEnduranceTwoNodes is TestTwoNodesFourRanks ten times, and as often without a kill.
func TestEnduranceTwoNodes(t *testing.T) {
	s := rankNodes(t)
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { s.train(t, i%2 == 1) })
	}
}

// TestEnduranceSlurmPtrace: jobs that no hook reaches, under a limit that kills
// them bare.
func TestEnduranceSlurmPtrace(t *testing.T) {
	for name, build := range map[string]func(*testing.T) silent{
		"python -I": func(t *testing.T) silent { return isolated(t, "--persistent") },
		"lmdbload":  compiled,
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t)
			s.again(t, wardentest.Times(20), s.want, s.wrapped(""), fine, s.args...)
		})
	}
}

// TestEnduranceRequeue: 5 of 5 in each of two modes.
func TestEnduranceRequeue(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Cgroup, slurmtest.Linux} {
		t.Run(string(mode), func(t *testing.T) {
			s := newRequeueStand(t, mode, "")
			n, good := wardentest.Times(5), 0
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

// TestEnduranceSlurm2411 is every mode by Slurm 24.11, and five runs of the
// trainer by PyTorch 2.6 in each of the two that end most trainings.
func TestEnduranceSlurm2411(t *testing.T) {
	accountingsOn(t, debian.Trixie, slurmtest.Modes)
	for _, c := range newerTrainings {
		t.Run("train, "+string(c.mode), func(t *testing.T) {
			s := trainStandOn(t, c.mode, slurmtest.Options{Suite: debian.Trixie})
			s.again(t, wardentest.Times(5), s.reference(t, c.options...), s.script(s.rsswarden+" run --", c.options...), fine, c.mem, "--no-requeue")
		})
	}
}
