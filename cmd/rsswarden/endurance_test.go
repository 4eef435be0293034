//go:build endurance

package main_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// times is how often each job is run; RSSWARDEN_TIMES shortens a trial.
func times(n int) int {
	if v, err := strconv.Atoi(os.Getenv("RSSWARDEN_TIMES")); err == nil {
		return min(v, n)
	}
	return n
}

// again runs a wrapped job n times and counts those that end as they should.
func (s stand) again(t *testing.T, n int, want, script string, check func(slurmtest.Result) error, args ...string) {
	t.Helper()
	good := 0
	for i := range n {
		got := s.Submit(t, script, args...).Wait(t)
		err := check(got)
		if got.State != "COMPLETED" || checksum(got.Stdout) != want {
			err = fmt.Errorf("%s %d:%d, checksum %s: %v", got.State, got.ExitCode, got.Signal, checksum(got.Stdout), err)
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
			s.again(t, times(20), s.reference(t, options...), s.script(s.rsswarden+" run --", options...), fine, "--mem=3000")
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
	s.again(t, times(20), s.reference(t, options...), s.script(s.rsswarden+" run --", options...), check, "--mem=1500", "--no-requeue")
}

// TestEnduranceWatcherKilled kills the watcher at random moments of a job that
// nothing limits.
func TestEnduranceWatcherKilled(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4"}
	want := s.reference(t, options...)
	n, good, struck := times(50), 0, 0
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
					if isWatcher(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
						kills++
					}
				}
			}
		}()
		got := run.Wait(t)
		close(stop)
		struck += <-count
		if got.State != "COMPLETED" || got.ExitCode != 0 || checksum(got.Stdout) != want {
			t.Errorf("run %d: %s %d:%d, checksum %s, want %s\n%s", i+1, got.State, got.ExitCode, got.Signal, checksum(got.Stdout), want, got.Stderr)
			continue
		}
		good++
	}
	t.Logf("%d of %d with the right status and checksum; %d watchers killed", good, n, struck)
	if struck < n/2 {
		t.Errorf("only %d watchers were killed: the test proves little", struck)
	}
}

// TestEnduranceRecycles has one training recycle its workers 500 times, on each torch.
func TestEnduranceRecycles(t *testing.T) {
	for _, torch := range torches {
		t.Run("torch "+torch.name, func(t *testing.T) {
			enduranceRecycles(t, torch.command(t))
		})
	}
}

func enduranceRecycles(t *testing.T, command func(string, ...string) *exec.Cmd) {
	data := filepath.Join(t.TempDir(), "train.lmdb")
	epochs := strconv.Itoa(160 * times(500) / 500)
	run := func(leak string, wrap ...string) (string, string) {
		args := append(wrap, python, "../../examples/train/train.py", "--data", data, "--records", "4000", "--record-bytes", "20000",
			"--workers", "4", "--persistent", "--leak-worker", leak, "--epochs", epochs)
		var out, errs bytes.Buffer
		cmd := command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &errs)
		}
		return checksum(out.String()), errs.String()
	}
	// Bare, the leak would fill the machine before the last epoch.
	want, _ := run("0")
	events1 := filepath.Join(t.TempDir(), "events")
	got, said := run("100", binary, "run", "--limit", "4G", "--accounting", "noshared", "--at", "none", "--at", "20%:recycle", "--events", events1, "--")
	if got != want {
		t.Errorf("checksum %s, want %s", got, want)
	}
	recycled, badExit := 0, 0
	for _, e := range events(t, events1)[event.NameLoader] {
		if e["what"] == string(event.LoaderRecycled) {
			recycled++
			if e["exit"] != nil {
				badExit++
			}
		}
	}
	t.Logf("%d recycles in one training, checksum %s\n%s", recycled, got, said)
	if recycled < times(500) || badExit > 0 {
		t.Errorf("%d recycles, %d of them with a worker that did not exit with 0; want %d", recycled, badExit, times(500))
	}
}

// TestEnduranceCheckpoint: a trainer that leaks is asked in time, every time.
func TestEnduranceCheckpoint(t *testing.T) {
	for name, mode := range map[string]slurmtest.Mode{"linux": slurmtest.Linux, "cgroup": slurmtest.Cgroup} {
		t.Run(name, func(t *testing.T) {
			s := leakyStand(t, mode)
			s.bare(t)
			n, good := times(20), 0
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
