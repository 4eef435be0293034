package slurmtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestNewerSlurm: what a newer Slurm tells a job on cgroup v1, where it differs
// from 22.05 and where the cgroups are.
func TestNewerSlurm(t *testing.T) {
	t.Run("24.11", func(t *testing.T) { newerSlurm(t, debian.Trixie) })
	t.Run("26.05", func(t *testing.T) { newerSlurm(t, debian.Sid) })
}

func newerSlurm(t *testing.T, suite debian.Suite) {
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.CgroupKill, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) {
			c := slurmtest.Start(t, mode, slurmtest.Options{Suite: suite})
			version := c.Version(t)
			if suite == debian.Trixie && !strings.HasPrefix(version, "24.11.") || suite == debian.Sid && !(slurm.Release{26, 5, 3}).In(version) {
				t.Fatalf("%s has Slurm %s", suite, version)
			}
			byFiles, byScontrol := enforcements(t, c)
			if byScontrol.Version != version {
				t.Fatalf("by scontrol: %+v", byScontrol)
			}
			if mode == slurmtest.Linux && byScontrol.TaskPlugin == "" { // 24.11 shows task/none as (null)
				byScontrol.TaskPlugin = byFiles.TaskPlugin
			}
			byScontrol.Source = byFiles.Source
			if byFiles.String() != byScontrol.String() || byFiles.TaskPlugin != byScontrol.TaskPlugin || len(byScontrol.Open) > 0 ||
				byFiles.SelectMemory != byScontrol.SelectMemory || byFiles.ConstrainRAM != byScontrol.ConstrainRAM {
				t.Errorf("by files    %+v\nby scontrol %+v", byFiles, byScontrol)
			}

			run := c.Submit(t, "env -0 >env; cat /proc/self/cgroup >cgroup; touch ready; until [ -e go ]; do sleep 0.05; done", "--mem=300", "-t7")
			run.Until(t, time.Minute, func(r slurmtest.Result) bool {
				_, err := os.Stat(run.Dir + "/ready")
				return err == nil || r.Over()
			})
			limit := strings.TrimSpace(read(t, filepath.Join(run.MemoryCgroup("batch"), "memory.limit_in_bytes"), mode != slurmtest.Linux))
			if want := map[slurmtest.Mode]string{slurmtest.CgroupKill: "9223372036854771712", slurmtest.Cgroup: "314572800"}[mode]; limit != want {
				t.Errorf("limit of the step's cgroup %q, want %q", limit, want)
			}
			wardentest.NoError(t, os.WriteFile(run.Dir+"/go", nil, 0o644))
			if got := run.Wait(t); got.State != "COMPLETED" {
				t.Fatalf("%s, stderr %s", got.State, got.Stderr)
			}
			memory := ""
			for line := range strings.Lines(read(t, run.Dir+"/cgroup", true)) {
				if _, path, ok := strings.Cut(line, ":memory:"); ok {
					memory = strings.TrimSpace(path)
				}
			}
			if in := strings.HasSuffix(memory, "/job_"+run.ID+"/step_batch/task_0"); in != (mode != slurmtest.Linux) {
				t.Errorf("memory cgroup %s", memory)
			}
			env := lookup(read(t, run.Dir+"/env", true))
			if _, ok := env("SLURM_OOM_KILL_STEP"); !ok {
				t.Error("no SLURM_OOM_KILL_STEP, which is new")
			}
			sluid, _ := env("SLURM_JOB_SLUID")
			step, _ := env("SLURM_STEP_ID")
			if suite == debian.Sid && (len(sluid) != 14 || step != "-5") || suite == debian.Trixie && sluid+step != "" {
				t.Errorf("SLURM_JOB_SLUID %q, SLURM_STEP_ID %q", sluid, step)
			}
			job, ok := slurm.FromEnv(env)
			if !ok || job.StepID != slurm.StepBatch {
				t.Fatalf("FromEnv says %+v, %v", job, ok)
			}
			if left := time.Until(job.End); left < 5*time.Minute || left > 8*time.Minute {
				t.Errorf("the job ends in %v, want 7 minutes from its start", left)
			}
		})
	}
}

// read reads a file, of which there must be one where exists says so.
func read(t *testing.T, path string, exists bool) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if (err == nil) != exists {
		t.Fatalf("%s: %v", path, err)
	}
	return string(b)
}

// TestWorksWith holds the README's row on Slurm on cgroup v1 against what [eachSlurm] runs.
func TestWorksWith(t *testing.T) {
	var list []string
	eachSlurm(t, func(t *testing.T, o slurmtest.Options) {
		cmd := exec.Command("slurmd", "-V")
		if o.Suite != "" {
			cmd = debian.Need(t, o.Suite).Command("slurmd", "-V")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Skip("no Slurm: ", err)
		}
		_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // slurm-wlm 26.05.5
		list = append(list, version[:strings.LastIndex(version, ".")])
	})
	if len(list) == 3 {
		rsstest.WorksWith(t, "Slurm, cgroup v1", list)
	}
}
