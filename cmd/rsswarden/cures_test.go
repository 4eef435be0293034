package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// leakJob is a trainer of 500 MiB of its own, with two workers that leak until the
// kernel ends somebody, which a trainer that lives writes down. They wait until
// their own oom_score_adj is as wanted: a worker may leak faster than we look.
const leakJob = `
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import torch

class Leak(torch.utils.data.Dataset):
    kept = []
    def __len__(self):
        return 100000
    def __getitem__(self, i):
        end = time.monotonic() + 60
        while int(open("/proc/self/oom_score_adj").read()) < int(sys.argv[1]) and time.monotonic() < end:
            time.sleep(0.02)
        self.kept.append(b"x" * (4 << 20))
        return i

try:
    # Workers that are forked have all that the trainer had, and are larger with what they add.
    batches = iter(torch.utils.data.DataLoader(Leak(), batch_size=1, num_workers=2, prefetch_factor=2))
    model = b"m" * (500 << 20)
    for batch in batches:
        pass
except (RuntimeError, OSError, EOFError) as e: # a batch may be on its way from the worker that was killed
    with open(sys.argv[2], "w") as f:
        json.dump({"type": type(e).__name__, "error": str(e), "model": len(model)}, f)
    sys.exit(3)
`

// leakRun runs it in a cgroup; workers wait until their oom_score_adj is least.
func leakRun(t *testing.T, g rsstest.Group, least string, options ...string) (code int, checkpoint string, all map[event.Name][]map[string]any, stderr string) {
	t.Helper()
	dir := t.TempDir()
	list, file := filepath.Join(dir, "events"), filepath.Join(dir, "checkpoint")
	line := []string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.Dir, binary, "run", "--record", "none", "--at", "none", "--events", list}
	line = append(append(line, options...), "--", python, "-c", leakJob, least, file)
	cmd := exec.Command("sh", line...)
	cmd.Env = append(withoutSlurm(), "OMP_NUM_THREADS=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run()
	b, _ := os.ReadFile(file)
	return cmd.ProcessState.ExitCode(), string(b), events(t, list), errs.String()
}

// TestOOMPreferSavesTheTrainer: in a full cgroup the kernel ends a worker that is
// smaller than the trainer, which gets PyTorch's error and writes its checkpoint.
// Without the option the trainer is killed and writes nothing.
func TestOOMPreferSavesTheTrainer(t *testing.T) {
	needTorch(t)
	if os.Geteuid() != 0 {
		t.Skip("a memory cgroup takes root")
	}
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
			if e["remedy"] != string(event.RemedyOOMPrefer) || e["ok"] != true || e["after"] != 1000.0 {
				t.Errorf("event %v", e)
			}
			workers[e["pid"]] = true
		}
		if len(workers) != 2 || len(all[event.NameCure]) != 2 {
			t.Errorf("cures %v", all[event.NameCure])
		}
		if n := strings.Count(stderr, "--oom-prefer: should "); n != 1 || !strings.Contains(stderr, "verdict: oom") {
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

// TestReplayOfMappings: a run with a warning of mappings is decided again as it
// was.
func TestReplayOfMappings(t *testing.T) {
	list := filepath.Join(t.TempDir(), "seen")
	job := fmt.Sprintf(`
import mmap, os, time
most = int(open("/proc/sys/vm/max_map_count").read())
kept = [mmap.mmap(-1, 4096) for i in range(most * 92 // 100)]
end = time.monotonic() + 60
while '"limit":"maps","action":"warn"' not in open(%q).read() and time.monotonic() < end:
    time.sleep(0.05)
`, list)
	if b, err := os.ReadFile("/proc/sys/vm/max_map_count"); err != nil || len(strings.TrimSpace(string(b))) > 5 {
		t.Skipf("vm.max_map_count is %s: %v", b, err)
	}
	dir := filepath.Join(t.TempDir(), "records")
	cmd := exec.Command(binary, "run", "--record", dir, "--events", list, "--", python, "-c", job)
	cmd.Env = withoutSlurm()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := lived{dir: dir, events: events(t, list)}
	r.again = r.replay(t)
	r.same(t, 1, event.ActionWarn)
	n := 0
	for _, d := range r.again.Decisions {
		if d.Limit == event.LimitMaps {
			n++
		}
	}
	if n != 1 {
		t.Errorf("decisions of the replay %+v", r.again.Decisions)
	}
	out, errs, err := output([]string{binary, "replay", dir})
	if err != nil || !strings.Contains(out, "maps") {
		t.Errorf("%v %s\n%s", err, errs, out)
	}
}
