package limit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const (
	version26 = "SLURM_VERSION=26.05.5\n"
	freezer   = "sys/fs/cgroup/freezer/slurm/uid_1000/job_7/"
	scope26   = "sys/fs/cgroup/system.slice/n1_slurmstepd.scope/s46HM84SHMGW00/"
)

// freezerStep puts processes into a step by proctrack/cgroup on v1.
func freezerStep(fs rsstest.Tree, step string, pids ...int) {
	text := ""
	for _, pid := range pids {
		text += fmt.Sprintln(pid)
		fs.Write(fmt.Sprintf("proc/%d/cgroup", pid), "7:freezer:/slurm/uid_1000/job_7/step_"+step+"\n")
	}
	fs.Write(freezer+"step_"+step+"/cgroup.procs", text)
}

// jobOfSteps is the job of section "killed" of the facts on a node of v1 with gather/linux:
// the batch step has 265 MiB, step 0, which srun --overlap of another shell started, 252.
//
//	slurmstepd 100 ─ batch 4102      slurmstepd 200 ─ task 201 ─ child 202
//	slurmstepd 300 ─ sleep 301 (extern), and 203, an orphan of step 0
func jobOfSteps(t *testing.T) rsstest.Tree {
	fs := rsstest.Empty(t)
	put := func(pid, parent int, comm string, anon, file rss.Bytes) {
		fs.Put(rsstest.Process{PID: pid, Parent: parent, Comm: comm, Start: uint64(pid), Anon: anon, File: file})
	}
	put(1, 0, "systemd", 10*rss.MiB, 0)
	put(100, 1, "slurmstepd", 20*rss.MiB, 0)
	put(rsstest.Trainer, 100, "hog", 260*rss.MiB, 5*rss.MiB)
	put(200, 1, "slurmstepd", 20*rss.MiB, 0)
	put(201, 200, "sh", 2*rss.MiB, 0)
	put(202, 201, "hog", 250*rss.MiB+rss.MiB/2, 0)
	put(203, 1, "daemon", 600*rss.MiB, 0)
	put(300, 1, "slurmstepd", 20*rss.MiB, 0)
	put(301, 300, "sleep", rss.MiB/4, 0)
	fs.Write("proc/meminfo", "MemTotal: 8192000 kB\nMemFree: 4096000 kB\nMemAvailable: 6144000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	fs.Write("proc/self/mountinfo", "41 31 0:37 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n")
	fs.Write("proc/4102/limits", "Limit                     Soft Limit           Hard Limit           Units     \nMax resident set          419430400            419430400            bytes     \n")
	freezerStep(fs, "batch", 100, rsstest.Trainer)
	freezerStep(fs, "0", 200, 201, 202, 203)
	return fs
}

// TestJobSum: from 26.05.3 on slurmd cancels a job whose steps on the node have more than
// its memory together, and each step is counted as its slurmstepd does.
func TestJobSum(t *testing.T) {
	for _, c := range []struct {
		name, conf string
		want       rss.Bytes
	}{
		{"linux", linuxKill, 265 + 252},
		{"noshared", strings.Replace(linuxKill, "OverMemoryKill", "OverMemoryKill,NoShared", 1), 260 + 252},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := jobOfSteps(t)
			s := newStand(t, fs, inJob, c.conf+version26, nil)
			limits := s.read()
			l := scoped(t, limits, event.LimitSlurm, event.ScopeJob)
			if l.Used != c.want*rss.MiB || l.UsedMax != l.Used || l.Limit != 400*rss.MiB || l.LimitSource != "RLIMIT_RSS" || !l.ByJobSum() || !l.Binding {
				t.Errorf("got %+v", l)
			}
			if step := scoped(t, limits, event.LimitSlurm, event.ScopeStep); step.Used > 265*rss.MiB || step.ByJobSum() {
				t.Errorf("the step: %+v", step)
			}
			if s.set.LeftOpen() {
				t.Error("the version is known")
			}

			// A step that just began counts 1 MiB, and is found within some seconds.
			fs.Write(freezer+"step_1/cgroup.procs", "")
			freezerStep(fs, "extern", 300, 301)
			for range 5 {
				l = scoped(t, s.read(), event.LimitSlurm, event.ScopeJob)
			}
			if l.Used != (c.want+2)*rss.MiB {
				t.Errorf("with two small steps: %v", l.Used)
			}
		})
	}
}

// TestJobSumPSS: what was not read of another step lies between its private pages and RSS.
func TestJobSumPSS(t *testing.T) {
	fs := jobOfSteps(t)
	conf := strings.Replace(linuxKill, "OverMemoryKill", "OverMemoryKill,UsePss", 1) + version26
	l := scoped(t, newStand(t, fs, inJob, conf, nil).read(), event.LimitSlurm, event.ScopeJob)
	if l.Used > l.UsedMax || l.UsedMax != (265+252)*rss.MiB {
		t.Errorf("nothing was read: %v to %v", l.Used, l.UsedMax)
	}
	fs.Write("proc/202/smaps_rollup", "00400000-7fff00000000 ---p 00000000 00:00 0    [rollup]\nRss: 256512 kB\nPss: 102400 kB\n")
	fs.Write("proc/201/smaps_rollup", "00400000-7fff00000000 ---p 00000000 00:00 0    [rollup]\nRss: 2048 kB\nPss: 1024 kB\n")
	l = scoped(t, newStand(t, fs, inJob, conf, nil).read(), event.LimitSlurm, event.ScopeJob)
	if l.UsedMax != (265+101)*rss.MiB {
		t.Errorf("with the PSS of step 0: %v to %v", l.Used, l.UsedMax)
	}
}

// TestJobSumVersions: which Slurm kills by it, and what is shown where that is not known.
func TestJobSumVersions(t *testing.T) {
	for version, kills := range map[string]bool{
		"20.02.7": true, "20.11.0": false, "22.05.8": false, "24.11.5": false, "25.11.7": false,
		"26.05.0": false, "26.05.2": false, "26.05.3": true, "26.05.5": true, "26.11.0": true,
	} {
		s := newStand(t, jobOfSteps(t), inJob, linuxKill+"SLURM_VERSION="+version+"\n", nil)
		if got := strings.Contains(names(s.read()), "slurm/job"); got != kills {
			t.Errorf("%s: the limit is there: %v, want %v", version, got, kills)
		}
	}
	s := newStand(t, jobOfSteps(t), inJob, linuxKill, nil)
	if got := names(s.read()); strings.Contains(got, "slurm/job") || !s.set.LeftOpen() {
		t.Errorf("scontrol may still say the version, and there is %s", got)
	}
	e := s.set.Enforcement()
	s.set.SetEnforcement(e, errors.New("no scontrol"))
	l := scoped(t, s.read(), event.LimitSlurm, event.ScopeJob)
	if !strings.HasPrefix(l.Enforcer, "slurmd perhaps") || !strings.Contains(l.Note, "26.05.2 only write") || !l.ByJobSum() {
		t.Errorf("got %+v", l)
	}
	for sluid, want := range map[string]bool{"": false, "s46HM84SHMGW00": true} {
		env := map[string]string{"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_JOB_NODELIST": "n1"}
		if sluid != "" {
			env["SLURM_JOB_SLUID"] = sluid
		}
		s := newStand(t, jobOfSteps(t), env, linuxKill, nil)
		s.set.SetEnforcement(s.set.Enforcement(), nil)
		if got := strings.Contains(names(s.read()), "slurm/job"); got != want {
			t.Errorf("SLURM_JOB_SLUID %q: %s", sluid, names(s.read()))
		}
	}
	e.Version = "26.05.5"
	s.set.SetEnforcement(e, nil)
	if l := scoped(t, s.read(), event.LimitSlurm, event.ScopeJob); !strings.HasPrefix(l.Enforcer, "slurmd, ") {
		t.Errorf("got %+v", l)
	}
}

// TestJobMemory: the memory of the job counts, not what srun --mem gave a step.
func TestJobMemory(t *testing.T) {
	step := map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "batch", "SLURM_MEM_PER_NODE": "900"}
	s := newStand(t, jobOfSteps(t), step, linuxKill+version26, nil)
	if l := scoped(t, s.read(), event.LimitSlurm, event.ScopeJob); l.Limit != 400*rss.MiB {
		t.Errorf("of a stale environment: %+v", l)
	}
	fs := jobOfSteps(t)
	freezerStep(fs, "2", 100, rsstest.Trainer)
	step["SLURM_STEP_ID"] = "2"
	s = newStand(t, fs, step, linuxKill+version26, nil)
	if l := scoped(t, s.read(), event.LimitSlurm, event.ScopeJob); l.Limit != 900*rss.MiB || l.LimitSource != "SLURM_MEM_PER_NODE" {
		t.Errorf("a step by srun --mem=400M: %+v", l)
	}
}

// TestJobSumOfCgroups has the numbers that 26.05.5 logged: 504>400 on v1, 235>180 on v2,
// where jobs are named by SLUIDs.
func TestJobSumOfCgroups(t *testing.T) {
	conf := strings.Replace(linuxKill, "gather/linux", "gather/cgroup", 1) + version26
	t.Run("v1", func(t *testing.T) {
		fs := jobOfSteps(t)
		fs.Write("proc/self/mountinfo", "41 31 0:37 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
		fs.Write("proc/4102/cgroup", "7:memory:/slurm/uid_1000/job_7/step_batch/task_0\n")
		write := func(dir string, anon int) {
			dir = "sys/fs/cgroup/memory/slurm/uid_1000/job_7/" + dir
			fs.Write(dir+"memory.usage_in_bytes", fmt.Sprintln(anon+1<<20))
			fs.Write(dir+"memory.limit_in_bytes", "9223372036854771712\n")
			fs.Write(dir+"memory.stat", fmt.Sprintf("total_cache 1048576\ntotal_rss %d\n", anon))
		}
		write("", 529059840)
		write("step_batch/", 266506240)
		write("step_batch/task_0/", 266506240)
		write("step_0/", 262553600)
		write("step_0/task_0/", 262553600)
		l := scoped(t, newStand(t, fs, inJob, conf, nil).read(), event.LimitSlurm, event.ScopeJob)
		if l.Used != 504*rss.MiB || l.UsedMax != l.Used || l.Limit != 400*rss.MiB {
			t.Errorf("got %+v", l)
		}
	})
	t.Run("v2", func(t *testing.T) {
		fs := jobOfSteps(t)
		fs.Write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
		fs.Write("proc/4102/cgroup", "0::/system.slice/n1_slurmstepd.scope/s46HM84SHMGW00/step_batch/user/task_0\n")
		write := func(dir string, charge int) {
			fs.Write(scope26+dir+"memory.current", fmt.Sprintln(charge))
			fs.Write(scope26+dir+"memory.max", "max\n")
			fs.Write(scope26+dir+"memory.stat", fmt.Sprintf("anon %d\nfile 4096\nswapcached 0\n", charge-4096))
		}
		for _, dir := range []string{"", "step_batch/", "step_batch/user/", "step_0/", "step_0/user/"} {
			write(dir, 300_000_000)
		}
		write("step_batch/user/task_0/", 115_781_632)
		write("step_0/user/task_0/", 131_629_056)
		write("step_0/slurm/", 50_000_000)
		l := scoped(t, newStand(t, fs, inJob, conf, nil).read(), event.LimitSlurm, event.ScopeJob)
		if l.Used != 235*rss.MiB || l.Charged != l.Used || l.UsedMax != l.Used {
			t.Errorf("got %+v", l)
		}
	})
}

// TestJobSumOfUnion: of a job that is watched as a whole the sum is there once, of all
// steps, whichever is asked for.
func TestJobSumOfUnion(t *testing.T) {
	fs := jobOfSteps(t)
	batch := newStand(t, fs, inJob, linuxKill+version26, nil)
	zero := newStand(t, fs, map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_MEM_PER_NODE": "400"}, linuxKill+version26,
		func(c *limit.Config) { c.PID = 201 })
	u := limit.Join(limit.Part{Name: "7.0", Set: zero.set}, limit.Part{Name: "7.batch", Set: batch.set})
	procs, _, err := batch.tree.Trees([]rss.ProcID{{PID: rsstest.Trainer}, {PID: 201}})
	wardentest.NoError(t, err)
	limits := u.Read(&rss.Sample{Seq: 1, Mono: time.Second, Procs: procs})
	if got := names(limits); strings.Count(got, "slurm/job") != 1 || strings.Count(got, "slurm/step") != 2 {
		t.Fatalf("limits %s", got)
	}
	if l := scoped(t, limits, event.LimitSlurm, event.ScopeJob); l.Used != 517*rss.MiB || l.Level != "" || u.Step(&l) != "" {
		t.Errorf("got %+v of step %q", l, u.Step(&l))
	}
}

// TestJobSumNoCgroups: without a cgroup of Slurm's only our own step is known.
func TestJobSumNoCgroups(t *testing.T) {
	fs := jobOfSteps(t)
	fs.Remove("proc/4102/cgroup")
	l := scoped(t, newStand(t, fs, inJob, linuxKill+version26, nil).read(), event.LimitSlurm, event.ScopeJob)
	if l.Used != 265*rss.MiB || !strings.Contains(l.Note, "other steps of the job are not counted") {
		t.Errorf("got %+v", l)
	}
}
