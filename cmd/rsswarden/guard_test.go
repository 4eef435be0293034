package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// guardJob takes memory at once, and holds it until it is told to end. Where it
// is to run in a cgroup of ours it waits for that first.
const guardJob = `
import mmap, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN) # only SIGKILL ends it early
size, where = int(sys.argv[1]) << 20, sys.argv[2]
def group():
    return [l.split(":")[2].strip() for l in open("/proc/self/cgroup") if ":memory:" in l][0]
while where not in group(): time.sleep(0.002)
print(group(), flush=True)
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
chunk = b"x" * (1 << 20)
for i in range(0, size, len(chunk)): m[i:i+len(chunk)] = chunk
print("full", flush=True)
while not os.path.exists("end"): time.sleep(0.01)
`

// guardStand is a cluster in which the kernel kills, and the job on it.
type guardStand struct {
	*slurmtest.Cluster
	job string // … behind a wrapper: its command line, without arguments
}

func newGuardStand(t *testing.T) guardStand {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skip(err)
	}
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{})
	wrap := "exec " + c.Install(t, binary) + " run --events events"
	return guardStand{c, wrap + "%s -- " + python + " " + pythonJob(t, c, "guarded.py", guardJob)}
}

// submit runs the job with and without a guard.
func (s guardStand) submit(t *testing.T, mib int) map[bool]*slurmtest.JobRun {
	t.Helper()
	return map[bool]*slurmtest.JobRun{
		false: s.start(t, "", mib, "task_0"),
		true:  s.start(t, " --guard-cgroup", mib, "task_0/rsswarden-"),
	}
}

// start runs the job. It waits until its cgroup has a name with where in it.
func (s guardStand) start(t *testing.T, flag string, mib int, where string) *slurmtest.JobRun {
	t.Helper()
	return s.Submit(t, fmt.Sprintf(s.job+" %d %s", flag, mib, where), "--mem=400", "--no-requeue")
}

// maxRSS is what Slurm has seen of the batch step so far.
func (s guardStand) maxRSS(t *testing.T, run *slurmtest.JobRun) rss.Bytes {
	t.Helper()
	out := s.Do(t, "sstat", "-j", run.ID+".batch", "-P", "-n", "-o", "MaxRSS")
	n, _ := rss.ParseBytes(strings.TrimSpace(out.Stdout))
	return n
}

// gone waits until a directory is no longer there.
func gone(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", dir)
		}
	}
}

// TestSlurmGuard: in a cgroup of ours a job meets the same limits and ends in
// the same way, and Slurm counts the same.
func TestSlurmGuard(t *testing.T) {
	s := newGuardStand(t)
	runs := s.submit(t, 345) // 320 are 80 %
	seen := map[bool]rss.Bytes{}
	for guard, run := range runs {
		var since time.Time // when what Slurm has seen changed last; it looks once a second
		run.Until(t, time.Minute, func(r slurmtest.Result) bool {
			if r.Over() {
				t.Fatalf("%s\n%s%s", r.State, r.Stdout, r.Stderr)
			}
			if most := s.maxRSS(t, run); most != seen[guard] {
				seen[guard], since = most, time.Now()
			}
			return seen[guard] >= 345*rss.MiB && time.Since(since) >= 2500*time.Millisecond
		})
		if err := os.WriteFile(filepath.Join(run.Dir, "end"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for guard, run := range runs {
		got := run.Wait(t)
		where, _, _ := strings.Cut(got.Stdout, "\n")
		if got.State != "COMPLETED" || strings.Contains(where, "rsswarden-") != guard {
			t.Errorf("guard %t: %s in %s\n%s", guard, got.State, where, got.Stderr)
		}
		all := events(t, filepath.Join(run.Dir, "events"))
		if faults := all[event.NameFault]; len(faults) > 0 {
			t.Errorf("guard %t: faults %v", guard, faults)
		}
		decisions := all[event.NameDecision]
		if len(decisions) == 0 {
			t.Fatalf("guard %t: no decision\n%s", guard, got.Stderr)
		}
		over := rss.Bytes(decisions[0]["used_bytes"].(float64) - decisions[0]["threshold_bytes"].(float64))
		t.Logf("guard %t: %s, MaxRSS %v, decision %v above its rung", guard, got.State, seen[guard], over)
		if over > 24*rss.MiB {
			t.Errorf("guard %t: the decision came %v above its rung", guard, over)
		}
		gone(t, run.MemoryCgroup(""))
	}
	if a, b := seen[false], seen[true]; max(a, b)-min(a, b) > 4*rss.MiB {
		t.Errorf("MaxRSS %v without a guard, %v with it", a, b)
	}
}

// TestSlurmGuardCosts: what the guard changes, as its documentation says. Slurm
// does not see that the kernel has killed in it, and who is killed with the
// whole job leaves it behind, to be removed by root.
func TestSlurmGuardCosts(t *testing.T) {
	s := newGuardStand(t)
	t.Run("kernel OOM kill", func(t *testing.T) {
		for guard, run := range s.submit(t, 900) {
			got := run.Wait(t)
			want := map[bool]string{false: "OUT_OF_MEMORY", true: "FAILED"}[guard]
			if got.State != want || !strings.Contains(got.Stderr, "verdict: oom") {
				t.Errorf("guard %t: %s %d:%d, want %s\n%s", guard, got.State, got.ExitCode, got.Signal, want, got.Stderr)
			}
			gone(t, run.MemoryCgroup(""))
		}
	})
	t.Run("SIGKILL", func(t *testing.T) {
		run := s.start(t, " --guard-cgroup", 100, "task_0/rsswarden-")
		run.Until(t, time.Minute, func(r slurmtest.Result) bool { return strings.Contains(r.Stdout, "full") || r.Over() })
		s.Cancel(t, run.ID) // TERM, then KILL to all
		run.Wait(t)
		left, _ := filepath.Glob(run.MemoryCgroup("batch") + "/task_0/rsswarden-*")
		if len(left) == 0 {
			t.Log("the watcher outlived the holder and removed the cgroup")
		}
		for _, dir := range left {
			if b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(b) > 0 {
				t.Errorf("in %s: %q, %v", dir, b, err)
			}
			sweep := "find " + run.MemoryCgroup("") + " -depth -type d -exec rmdir {} ';'"
			if out, err := exec.Command("sh", "-c", sweep).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", sweep, err, out)
			}
		}
		gone(t, run.MemoryCgroup(""))
	})
}
