package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// attached is an attach that runs.
type attached struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	events         string
}

// attach starts an attach, by way of a command in front of it.
func attach(t *testing.T, c *slurmtest.Cluster, warden string, before, args []string) *attached {
	t.Helper()
	a := &attached{events: filepath.Join(c.Dir(), fmt.Sprintf("attach-%d.jsonl", time.Now().UnixNano()))}
	line := append(append(before, warden, "attach", "--events", a.events), args...)
	a.cmd = c.Command(t.Context(), line[0], line[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	wardentest.NoError(t, a.cmd.Start())
	return a
}

// wait waits for the end of the attach, which must be a good one.
func (a *attached) wait(t *testing.T) map[event.Name][]map[string]any {
	t.Helper()
	if err := a.cmd.Wait(); err != nil {
		t.Fatalf("attach: %v\n%s", err, &a.stderr)
	}
	t.Logf("%s", &a.stderr)
	return wardentest.Events(t, a.events)
}

// TestAttachSlurmLinux: slurmstepd sums the RSS of a step that srun started in
// a batch job. Attached from outside the job, and with another job's
// environment around it.
func TestAttachSlurmLinux(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	job := "/usr/bin/python3 " + c.Install(t, "testdata/jobs/grow.py")
	other := []string{"env", "SLURM_JOB_ID=999", "SLURM_STEP_ID=7", "SLURM_MEM_PER_NODE=100", "SLURM_JOB_END_TIME=1"}

	run := c.Submit(t, "srun "+job+" 115", "--mem=300", "-n2")
	run.Until(t, time.Minute, func(r slurmtest.Result) bool { return r.Over() || strings.Count(r.Stdout, "\n") == 2 })
	a := attach(t, c, warden, other, []string{"--at", "75%:signal=USR1", "--job", run.ID})
	all := a.wait(t)
	got := run.Wait(t)
	if got.State != "COMPLETED" || strings.Count(got.Stdout, "asked to end") != 2 {
		t.Errorf("%s, stdout %q, stderr %s", got.State, got.Stdout, got.Stderr)
	}
	start := all[event.NameStart][0]
	wardentest.Has(t, start, "attached", true, "job", run.ID)
	step := wardentest.Reading(t, all, event.LimitSlurm, run.ID+".0")
	if step["limit_bytes"] != float64(300<<20) || step["accounting"] != "rss" || step["scope"] != "step" ||
		!strings.HasPrefix(step["enforcer"].(string), "slurmstepd") || step["used_bytes"].(float64) < 220<<20 || step["used_bytes"].(float64) > 300<<20 {
		t.Errorf("of step 0: %v", step)
	}
	batch := wardentest.Reading(t, all, event.LimitSlurm, run.ID+".batch")
	if used := batch["used_bytes"].(float64); used > 60<<20 || used == 0 {
		t.Errorf("of the batch step, which is a shell and srun: %v", batch)
	}
	wardentest.Says(t, a.stderr.String(),
		"watching job "+run.ID+" here: steps 0 and batch, ",
		"slurm, Slurm kills at summed RSS", "slurm step "+run.ID+".0 ", "of 300 MiB",
		": USR1 sent to processes ", "job "+run.ID+" has no process left on this node", "attached: ",
	)
	wardentest.Has(t, all[event.NameExit][0], "by", "command", "code", nil, "signal", nil)
}

// TestAttachSlurmCgroup: the kernel kills at the job's cgroup. Attached to the
// process and to the job, from outside and from a step within the job.
func TestAttachSlurmCgroup(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	job := "/usr/bin/python3 " + c.Install(t, "testdata/jobs/grow.py")
	for name, how := range map[string]struct {
		before []string
		what   []string
	}{
		"process":           {nil, []string{"PID"}},
		"job":               {nil, []string{"--job", "ID"}},
		"step":              {nil, []string{"--job", "ID.batch"}},
		"job, from a step":  {wardentest.Beside(t), []string{"--job", "ID"}},
		"process from step": {wardentest.Beside(t), []string{"PID"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := c.Submit(t, "exec "+job+" 250", "--mem=300", "--no-requeue")
			r := run.Until(t, time.Minute, func(r slurmtest.Result) bool { return r.Over() || strings.HasSuffix(r.Stdout, "\n") })
			fill := strings.NewReplacer("NODE", c.Node(), "ID", run.ID, "PID", strings.TrimSpace(r.Stdout))
			before, what := []string{}, []string{"--at", "75%:signal=USR1"}
			for _, s := range how.before {
				before = append(before, fill.Replace(s))
			}
			for _, s := range how.what {
				if s == "PID" {
					s = strings.TrimSpace(r.Stdout)
				}
				what = append(what, fill.Replace(s))
			}
			a := attach(t, c, warden, before, what)
			all := a.wait(t)
			if got := run.Wait(t); got.State != "COMPLETED" || !strings.Contains(got.Stdout, "asked to end") {
				t.Errorf("%s, stdout %q, stderr %s", got.State, got.Stdout, got.Stderr)
			}
			l := wardentest.Reading(t, all, event.LimitCgroup, "job_"+run.ID)
			if l["limit_bytes"] != float64(300<<20) || l["enforcer"] != "kernel OOM killer" || l["scope"] != "job" || l["used_bytes"].(float64) < 220<<20 {
				t.Errorf("the job's: %v", l)
			}
		})
	}
}

// TestAttachSlurmOnce: typed in a batch script, whose environment tells srun of
// several tasks, the command of the hint starts one attach; it does not count
// what it starts itself.
func TestAttachSlurmOnce(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	command := strings.NewReplacer("NODE", c.Node(), "ID", "$SLURM_JOB_ID").Replace(strings.Join(wardentest.Beside(t), " "))
	run := c.Submit(t, command+" "+warden+" attach --at none --at 'slurm 1%:exec=sleep 3' --job $SLURM_JOB_ID &\nsrun --overlap --mem=0 -N1 -n1 sleep 6", "--mem=300", "-n3", "--ntasks-per-node=3")
	got := run.Wait(t)
	if n := strings.Count(got.Stderr, " watching job "+run.ID); got.State != "COMPLETED" || n != 1 {
		t.Errorf("%s, %d attaches\n%s", got.State, n, got.Stderr)
	}
}

// TestTrimSlurm: typed in a job's script and in a step beside it, it finds the
// job's processes and no others.
func TestTrimSlurm(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	for name, how := range map[string]string{
		"script": warden,
		"step":   "srun --overlap --mem=0 -N1 -n1 " + warden,
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(c.Dir(), "trim-"+name)
			other := wardentest.StartMapper(t, wardentest.MapFile(t), "futex", nil)
			had := other.Resident()
			run := c.Submit(t, fmt.Sprintf(`dd if=/dev/urandom of=%[1]s bs=1M count=64 status=none && sync %[1]s
mkfifo %[1]s.in %[1]s.out
%[2]s %[3]s %[1]s futex < %[1]s.in > %[1]s.out &
exec 3> %[1]s.in 4< %[1]s.out
read -r before <&4
%[4]s trim --drop --json || exit 1
echo >&3
read -r after <&4
exec 3>&-
wait $!
[ "$before" = "$after" ]`, data, python, c.Install(t, wardentest.Path(t, "supervisor/wardentest/testdata/map.py")), how), "--mem=300")
			r := run.Wait(t)
			var got wardentest.Trimming
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.State != "COMPLETED" {
				t.Fatalf("%v, %s, stdout %q\n%s", err, r.State, r.Stdout, r.Stderr)
			}
			freed, pythons := 0, 0
			for _, p := range got.Processes {
				if p.Freed != nil {
					freed += *p.Freed
				}
				if p.Comm == "python3" {
					pythons++
				}
			}
			if freed < wardentest.MappedBytes-1<<20 || pythons != 1 || len(got.Dropped) != 1 || got.Dropped[0].After == nil || *got.Dropped[0].After > 1<<20 {
				t.Errorf("%s", r.Stdout)
			}
			if now := other.Resident(); now < had-1<<20 {
				t.Errorf("RssFile of one outside of the job fell from %d to %d", had, now)
			}
		})
	}
}
