package torch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// nonmemoryRun is what a training that runs out of something else than memory went
// through.
type nonmemoryRun struct {
	code   int
	failed time.Time // when PyTorch raised its error
	ok     bool      // it did not
	error  string
	events []map[string]any
	stderr string
}

// runSides runs a script of testdata/sides under rsswarden; before are words of a
// command line that rsswarden is started by, @events among args is the file of events.
func runSides(t *testing.T, before, options []string, script string, args ...string) nonmemoryRun {
	t.Helper()
	wardentest.NeedTorch(t)
	dir := t.TempDir()
	list, file := filepath.Join(dir, "events"), filepath.Join(dir, "result")
	line := append(slices.Clone(before), binary, "run", "--record", "none", "--events", list)
	line = append(append(line, options...), "--", python, filepath.Join("testdata", "sides", script))
	for _, arg := range append(args, file) {
		line = append(line, strings.ReplaceAll(arg, "@events", list))
	}
	cmd := exec.Command(line[0], line[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := nonmemoryRun{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	var result struct {
		OK    bool
		Time  float64
		Error string
	}
	wardentest.NoError(t, json.Unmarshal(b, &result))
	r.ok, r.error = result.OK, result.Error
	r.failed = time.UnixMicro(int64(result.Time * 1e6))
	r.events = wardentest.ReadLog(t, list)
	return r
}

// first returns when an event that fits was told first, zero for never.
func (r *nonmemoryRun) first(fits func(e map[string]any) bool) time.Time {
	for _, e := range r.events {
		if fits(e) {
			at, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(e["time"]))
			return at
		}
	}
	return time.Time{}
}

// warned is when the rule on a limit warned, told when the hook said what was
// about to be sent.
func (r *nonmemoryRun) warned(l event.LimitName) time.Time {
	return r.first(func(e map[string]any) bool {
		return e["event"] == string(event.NameDecision) && e["limit"] == string(l) && e["action"] == "warn"
	})
}

func (r *nonmemoryRun) told() time.Time {
	return r.first(func(e map[string]any) bool { return e["what"] == string(event.LoaderPickling) })
}

// exhausted checks that a run failed, and that its last words name the cause and
// the cure.
func (r *nonmemoryRun) exhausted(t *testing.T, words ...string) {
	t.Helper()
	if r.ok || r.code != 1 {
		t.Fatalf("it ended with %d: %s\n%s", r.code, r.error, r.stderr)
	}
	last := r.events[len(r.events)-1]
	wardentest.Has(t, last, "outcome", string(event.RunExhausted))
	_, summary, _ := strings.Cut(r.stderr, "✖ ran out of ")
	wardentest.Says(t, summary, words...)
}

// before checks that a warning came, and came before the failure.
func (r *nonmemoryRun) before(t *testing.T, what string, at time.Time) {
	t.Helper()
	switch {
	case at.IsZero():
		t.Errorf("%s did not warn: %s\n%s", what, r.error, r.stderr)
	case at.After(r.failed):
		t.Errorf("%s warned %v after it had failed", what, at.Sub(r.failed))
	default:
		t.Logf("%s warned %.1f s before", what, r.failed.Sub(at).Seconds())
	}
}

// TestSmallTensors is what users report: a training in a process of its own, which
// fails when its loader starts, in each way of starting and sharing. That the counts keep
// up with it when they are alone is for endurance.
func TestSmallTensors(t *testing.T) { t.Parallel(); smallTensors(t, 1) }

func smallTensors(t *testing.T, times int) {
	wardentest.NeedTorch(t)
	for _, method := range []string{"spawn", "forkserver"} {
		for range times {
			t.Run(method+"/file_system", func(t *testing.T) {
				t.Parallel()
				r := runSides(t, nil, nil, "tensors.py", method, "file_system", "80000")
				r.before(t, "the hook", r.told())
				r.before(t, "the count", r.warned(event.LimitMaps))
				r.exhausted(t, "memory mappings", `set_start_method("fork")`)
			})
			t.Run(method+"/file_system without the hook", func(t *testing.T) {
				t.Parallel()
				args := []string{method, "file_system", "80000"}
				if times == 1 {
					args = append(args, "@events")
				}
				r := runSides(t, nil, []string{"--loader", "off"}, "tensors.py", args...)
				r.before(t, "the count", r.warned(event.LimitMaps))
				r.exhausted(t, "memory mappings", `set_start_method("fork")`)
			})
			t.Run(method+"/file_descriptor", func(t *testing.T) {
				t.Parallel()
				r := runSides(t, nil, nil, "tensors.py", method, "file_descriptor", "80000")
				r.before(t, "the hook", r.told())
				r.exhausted(t, `set_start_method("fork")`)
			})
		}
	}
}

// TestSmallTensorsCured: with what is advised the same script passes.
func TestSmallTensorsCured(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"file_system", "file_descriptor"} {
		t.Run("fork/"+strategy, func(t *testing.T) {
			t.Parallel()
			r := runSides(t, nil, nil, "tensors.py", "fork", strategy, "80000")
			if !r.ok || r.code != 0 || !r.told().IsZero() || !r.warned(event.LimitMaps).IsZero() {
				t.Errorf("it ended with %d: %s\n%s", r.code, r.error, r.stderr)
			}
		})
	}
	t.Run("spawn/file_descriptor with --nofile", func(t *testing.T) {
		t.Parallel()
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Max < 6000 {
			t.Skipf("the hard RLIMIT_NOFILE is %d: %v", l.Max, err)
		}
		few := []string{"prlimit", "--nofile=1024:"}
		bare := runSides(t, few, nil, "tensors.py", "spawn", "file_descriptor", "4000")
		bare.before(t, "the hook", bare.told())
		bare.exhausted(t, "raise ulimit -n")
		cured := runSides(t, few, []string{"--nofile", "65536"}, "tensors.py", "spawn", "file_descriptor", "4000")
		if !cured.ok || cured.code != 0 {
			t.Fatalf("it ended with %d: %s\n%s", cured.code, cured.error, cured.stderr)
		}
		at := cured.first(func(e map[string]any) bool {
			return e["event"] == string(event.NameCure) && e["remedy"] == string(event.RemedyNoFile) && e["ok"] == true && e["before"] == 1024.0
		})
		if at.IsZero() || !strings.Contains(cured.stderr, "1,024 before") {
			t.Errorf("no event of the cure\n%s", cured.stderr)
		}
	})
}

// TestFullShm: in a mount namespace with a /dev/shm of 96 MiB batches that were
// loaded ahead fill it, and a line says so before the kernel sends SIGBUS, with the
// processes that hold it.
func TestFullShm(t *testing.T) {
	t.Parallel()
	wardentest.NeedRoot(t, "a mount namespace takes root")
	before := []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=96m rsswarden-test /dev/shm && exec "$@"`, "sh"}
	r := runSides(t, before, nil, "shm.py")
	r.before(t, "the rule", r.warned(event.LimitSHM))
	r.exhausted(t, "/dev/shm", "prefetch_factor")
	wardentest.Says(t, r.stderr, "this job holds")
}

// leakRun runs it in a cgroup; workers wait until their oom_score_adj is least.
func leakRun(t *testing.T, g rsstest.Group, least string, options ...string) (code int, checkpoint string, all map[event.Name][]map[string]any, stderr string) {
	t.Helper()
	dir := t.TempDir()
	list, file := filepath.Join(dir, "events"), filepath.Join(dir, "checkpoint")
	line := []string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.Dir, binary, "run", "--record", "none", "--at", "none", "--events", list}
	line = append(append(line, options...), "--", python, "testdata/nonmemory_leak.py", least, file)
	cmd := exec.Command("sh", line...)
	cmd.Env = wardentest.Env("OMP_NUM_THREADS=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run()
	b, _ := os.ReadFile(file)
	return cmd.ProcessState.ExitCode(), string(b), wardentest.Events(t, list), errs.String()
}

// TestOOMPreferSavesTheTrainer: in a full cgroup the kernel ends a worker that is
// smaller than the trainer, which gets PyTorch's error and writes its checkpoint.
// Without the option the trainer is killed and writes nothing.
func TestOOMPreferSavesTheTrainer(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	wardentest.NeedRoot(t, "a memory cgroup takes root")
	const limit = 1000 * rss.MiB
	t.Run("workers", func(t *testing.T) {
		code, checkpoint, all, stderr := leakRun(t, rsstest.NewGroup(t, limit), "1000", "--oom-prefer", "workers")
		var got struct {
			Type, Error string
			Model       int
		}
		if err := json.Unmarshal([]byte(checkpoint), &got); err != nil || code != 3 || got.Model != 500<<20 {
			t.Fatalf("exit status %d, checkpoint %q: %v\n%s", code, checkpoint, err, stderr)
		}
		switch {
		case got.Type == "RuntimeError" && strings.HasPrefix(got.Error, "DataLoader worker"):
		case got.Type == "ConnectionResetError", got.Type == "EOFError", got.Type == "ConnectionRefusedError":
		default:
			t.Errorf("%s: %s\nis not what the end of a worker makes", got.Type, got.Error)
		}
		workers := map[any]bool{}
		for _, e := range all[event.NameCure] {
			wardentest.Has(t, e, "remedy", string(event.RemedyOOMPrefer), "ok", true, "after", 1000.0)
			workers[e["pid"]] = true
		}
		if len(workers) != 2 || len(all[event.NameCure]) != 2 {
			t.Errorf("cures %v", all[event.NameCure])
		}
		if n := strings.Count(stderr, "--oom-prefer: workers are killed first"); n != 1 || !strings.Contains(stderr, "out of memory: the kernel killed ") {
			t.Errorf("said %d times\n%s", n, stderr)
		}
		if last := all[event.NameExit]; len(last) != 1 || last[0]["kernel_oom_kills"] == nil {
			t.Errorf("exit %v", last)
		}
	})
	t.Run("none", func(t *testing.T) {
		code, checkpoint, all, stderr := leakRun(t, rsstest.NewGroup(t, limit), "-1000")
		if code != -1 || checkpoint != "" || len(all[event.NameCure]) != 0 {
			t.Errorf("exit status %d, checkpoint %q: it does not show that the option is of use\n%s", code, checkpoint, stderr)
		}
	})
}
