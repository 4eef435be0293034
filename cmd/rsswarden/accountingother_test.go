package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestSeveralSteps is row 15: each step has its limit, the job's binds them
// all, and slurmstepd sums the steps apart.
func TestSeveralSteps(t *testing.T) {
	s := startAccounting(t, slurmtest.Cgroup)
	run := s.Submit(t, fmt.Sprintf(`%[1]s batch 200 %[2]s &
srun -n1 --overlap --mem=300 bash -c '%[1]s step 120 %[2]s & until [ -e batch ] && [ -e step ]; do sleep 0.05; done; %[3]s limits --json >limits; kill %%%%; true'`,
		s.hold, s.file, s.rsswarden), "--mem=600", "--no-requeue")
	run.Wait(t)
	b, err := os.ReadFile(filepath.Join(run.Dir, "limits"))
	var r reported
	if err != nil || json.Unmarshal(b, &r) != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	want := kernel(600, 300)
	want[0].used = [2]rss.Bytes{320, 400} // both steps
	want[1].source = "/step_0/memory.limit_in_bytes"
	r.check(t, want, memTotal(t))
}

// TestLimitShrinksUnderAJob is row 14: Slurm 26.05 can lower the limit of a
// running job. The watcher reads it anew, says so, and acts by it.
func TestLimitShrinksUnderAJob(t *testing.T) {
	s := startAccounting(t, slurmtest.Cgroup)
	run := s.Submit(t, fmt.Sprintf("exec %s run --interval 200ms --events $PWD/events -- %s held 120 %s", s.rsswarden, s.hold, s.file), "--mem=900", "--no-requeue")
	held := filepath.Join(run.Dir, "held")
	run.Until(t, time.Minute, func(r slurmtest.Result) bool {
		_, err := os.Stat(held)
		return err == nil || r.Over()
	})
	for _, dir := range []string{run.MemoryCgroup("batch"), run.MemoryCgroup("")} {
		if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("160M"), 0); err != nil {
			t.Fatal(err)
		}
	}
	got := run.Until(t, time.Minute, func(r slurmtest.Result) bool {
		return r.Over() || strings.Contains(r.Stderr, "the limit cgroup was 900 MiB and is 160 MiB now") && strings.Contains(r.Stderr, "memory 8")
	})
	s.Cancel(t, run.ID)
	run.Wait(t)
	if got.Over() {
		t.Fatalf("%s %d:%d\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
	}
	found := false
	for _, e := range events(t, filepath.Join(run.Dir, "events"))[event.NameLimit] {
		found = found || e["limit"] == "cgroup" && e["limit_bytes"] == float64(160<<20)
	}
	if !found {
		t.Errorf("no limit event\n%s", got.Stderr)
	}
}

// TestNoSlurm is row 13b: a plain cgroup, a container's view of one, and
// nothing but the node.
func TestNoSlurm(t *testing.T) {
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_JOBID"} {
		if os.Getenv(name) != "" {
			t.Skip("this is a Slurm job")
		}
	}
	if _, err := exec.LookPath("unshare"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and unshare")
	}
	const memory = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(memory + "/cgroup.procs"); err != nil {
		t.Skip("no cgroup v1:", err)
	}
	dir, err := rsstest.GroupDir(memory)
	if err != nil {
		t.Skip("cannot make a cgroup:", err)
	}
	inner := filepath.Join(dir, "docker", "0123abcd")
	t.Cleanup(func() {
		for _, d := range []string{inner, filepath.Dir(inner), dir} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for d, limit := range map[string]string{dir: "300M", inner: "500M"} {
		if err := os.WriteFile(filepath.Join(d, "memory.limit_in_bytes"), []byte(limit), 0); err != nil {
			t.Fatal(err)
		}
	}
	limits := func(t *testing.T, script string) reported {
		t.Helper()
		cmd := exec.Command("sh", "-c", script, "sh", binary, inner, memory)
		cmd.Stderr = os.Stderr
		b, err := cmd.Output()
		var r reported
		if err != nil || json.Unmarshal(b, &r) != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		return r
	}
	plain := func(mib rss.Bytes, source string) wanted {
		return wanted{event.LimitCgroup, event.ScopeCgroup, event.AccountingCgroup, mib, "kernel OOM killer", source, [2]rss.Bytes{0, 100}}
	}
	t.Run("nested cgroups", func(t *testing.T) {
		r := limits(t, `echo $$ >$2/cgroup.procs; $1 limits --json`)
		outer := plain(300, filepath.Base(dir)+"/memory.limit_in_bytes")
		if len(r.Limits) != 2 || r.Limits[0].Level != dir || r.Limits[1].Level != inner {
			t.Errorf("want the outer, then the inner: %+v", r.Limits)
		}
		reported{Limits: r.Limits[:1]}.check(t, []wanted{outer}, 0)
	})
	// As Docker has it on v1: the container's own directory is mounted over the
	// hierarchy, and mountinfo tells where it lies.
	t.Run("container", func(t *testing.T) {
		r := limits(t, `echo $$ >$2/cgroup.procs; exec unshare -m --propagation private sh -c 'mount --bind $2 $3 && $1 limits --json' sh "$@"`)
		hidden := plain(300, "memory.stat: hierarchical_memory_limit")
		if len(r.Limits) != 2 || r.Limits[0].Limit != 300*rss.MiB || r.Limits[1].Limit != 500*rss.MiB {
			t.Errorf("want the one that is hidden, then the container's own: %+v", r.Limits)
		}
		reported{Limits: r.Limits[:1]}.check(t, []wanted{hidden}, 0)
		if !strings.Contains(r.Limits[0].Note, "cannot be seen") {
			t.Errorf("note %q", r.Limits[0].Note)
		}
	})
	t.Run("node", func(t *testing.T) {
		r := limits(t, `echo $$ >$3/cgroup.procs; $1 limits --json`)
		r.check(t, []wanted{node}, memTotal(t))
	})
}

// TestVirtualMemoryOfOurs is row 12 for a job that is small beside the address
// space that two Go programs reserve: Slurm would count that as the job's.
func TestVirtualMemoryOfOurs(t *testing.T) {
	s := startAccounting(t, slurmtest.LinuxVSize)
	job := fmt.Sprintf("%s virtual 60 64 40 x", s.pool) // 3.75 GiB of 4.9 in the end
	bare := s.Submit(t, "exec "+job, "--mem=1250")
	got := s.Submit(t, "exec "+s.rsswarden+" run -- "+job, "--mem=1250").Wait(t)
	if r := bare.Wait(t); r.State != "COMPLETED" {
		t.Errorf("bare %s %d:%d: the test proves nothing\n%s", r.State, r.ExitCode, r.Signal, r.Stderr)
	}
	if got.State != "COMPLETED" || !strings.Contains(got.Stderr, "VSizeFactor") {
		t.Errorf("wrapped %s %d:%d\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
	}
}

// TestTrainingThatSharesItsPages: the job that slurmstepd kills where it sums
// RSS is far from its limit where it sums PSS, or leaves shared pages out.
// Nothing is decided then. A batch takes 20 ms, as of a real training: where four workers map
// a gigabyte a second each, that is before anything can have read their PSS.
func TestTrainingThatSharesItsPages(t *testing.T) {
	options := []string{"--persistent", "--workers", "4", "--epochs", "4", "--step-ms", "20"}
	want := ""
	modes := []slurmtest.Mode{slurmtest.LinuxPss, slurmtest.LinuxNoShared}
	for _, mode := range modes[:few(len(modes), 1)] {
		t.Run(string(mode), func(t *testing.T) {
			s := trainStand(t, mode)
			if want == "" {
				want = s.reference(t, options...)
			}
			path := filepath.Join(s.Dir(), "events-"+string(mode))
			s.carried(t, want, s.script(s.rsswarden+" run --events "+path+" --", options...), "--mem=3000")
			said := events(t, path)
			for _, d := range slices.Concat(said[event.NameDecision], said[event.NameOutcome]) {
				t.Errorf("decided on %v", d)
			}
			for _, e := range said[event.NameLoader] {
				if e["what"] == string(event.LoaderTrimmed) {
					t.Errorf("trimmed: %v", e)
				}
			}
			exit := said[event.NameExit][0]
			binding := exit["binding"].(map[string]any)
			if exit["verdict"] != string(event.VerdictFine) || binding["limit"] != string(event.LimitSlurm) {
				t.Errorf("verdict %v on %v, want fine on slurm", exit["verdict"], binding["limit"])
			}
		})
	}
}
