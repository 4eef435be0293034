package limit_test

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// secondStep adds a step 0 of the same job to the made-up node: a slurmstepd
// with one task.
const (
	secondStepd = 5100
	secondTask  = 5101
)

func secondStep(fs rsstest.Tree) {
	fs.Put(rsstest.Process{PID: secondStepd, Parent: 1, Comm: "slurmstepd", Anon: 8 * rss.MiB})
	fs.Put(rsstest.Process{PID: secondTask, Parent: secondStepd, Comm: "python", Anon: 145 * rss.MiB})
}

// steps makes the limits of both steps.
func steps(t *testing.T, fs rsstest.Tree, conf string, change func(*limit.Config)) (batch, zero *stand) {
	t.Helper()
	batch = newStand(t, fs, inJob, conf, change)
	zero = newStand(t, fs, map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_MEM_PER_NODE": "100"}, conf, func(c *limit.Config) {
		c.PID = secondTask
		if change != nil {
			change(c)
			c.PID = secondTask
		}
	})
	return batch, zero
}

// whole reads all trees of the job.
func whole(t *testing.T, s *stand, u *limit.Union) *rss.Sample {
	t.Helper()
	procs, _, err := s.tree.Trees([]rss.ProcID{{PID: rsstest.Trainer}, {PID: secondTask}})
	wardentest.NoError(t, err)
	extra, _, err := u.Extra(s.tree, procs)
	wardentest.NoError(t, err)
	seen := map[rss.ProcID]bool{}
	for _, list := range [][]rss.Proc{procs, extra} {
		for _, p := range list {
			if seen[p.ID] {
				t.Errorf("process %v is there twice", p.ID)
			}
			seen[p.ID] = true
		}
	}
	return &rss.Sample{Seq: 1, Mono: 1, Procs: procs, Extra: extra}
}

// TestUnionOfSteps: slurmstepd holds each step to its own sum.
func TestUnionOfSteps(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	secondStep(fs)
	batch, zero := steps(t, fs, linuxKill, func(c *limit.Config) { c.User = rss.GiB })
	alone := get(t, batch.read(), event.LimitSlurm)

	u := limit.Join(limit.Part{Name: "7.batch", Set: batch.set}, limit.Part{Name: "7.0", Set: zero.set})
	sample := whole(t, batch, u)
	limits := u.Read(sample)
	of := map[string]event.Limit{}
	binding := 0
	for _, l := range limits {
		if l.Name == event.LimitSlurm {
			of[l.Level] = l
		}
		if l.Binding {
			binding++
		}
	}
	if got := of["7.batch"]; got.Used != alone.Used || got.Limit != 700*rss.MiB {
		t.Errorf("the batch step uses %v of %v, read alone %v", got.Used, got.Limit, alone.Used)
	}
	if got := of["7.0"]; got.Used != 145*rss.MiB || got.Limit != 100*rss.MiB || !got.Binding {
		t.Errorf("step 0: %+v", got)
	}
	if got := names(limits); got != "slurm/step slurm/step user/tree node/node" || binding != 1 {
		t.Errorf("limits %s, %d of them binding", got, binding)
	}
	if l := get(t, limits, event.LimitUser); l.Used != total(sample.Procs) {
		t.Errorf("--limit counts %v, all trees of the job have %v", l.Used, total(sample.Procs))
	}
	if !u.SumsByPPID() || u.NeedsPSS() || !u.LeftOpen() {
		t.Error("what follows from it")
	}
	if job, ok := u.Job(); !ok || job.ID != "7" {
		t.Errorf("job %v", job)
	}

	// The fast tick looks at the binding limit, which is step 0's.
	fast, ok := u.Fast(1, 150*rss.MiB, func() (rss.Bytes, error) { return total(sample.Procs) + 4*rss.MiB, nil })
	if !ok || fast.Level != "7.0" || fast.Used != 149*rss.MiB {
		t.Errorf("fast %+v, %v", fast, ok)
	}

	// Step 0 has ended, and none is known any more.
	u.Replace([]limit.Part{{Name: "7.batch", Set: batch.set}})
	for range 2 {
		limits = u.Read(whole(t, batch, u))
		if l := get(t, limits, event.LimitSlurm); l.Level != "7.batch" || strings.Count(names(limits), "slurm") != 1 {
			t.Errorf("without step 0: %s", names(limits))
		}
		u.Replace(nil)
	}
	u.SetEnforcement(slurm.Enforcement{Known: true, Source: "scontrol show config"}, nil)
	if got := names(u.Read(whole(t, batch, u))); strings.Contains(got, "slurm") {
		t.Errorf("no sum was expected: %s", got)
	}
	u.Close()
}

// TestUnionOfCgroups: a cgroup above both steps is listed once.
func TestUnionOfCgroups(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	secondStep(fs)
	fs.Write("proc/5101/cgroup", strings.ReplaceAll(fs.Read("proc/4102/cgroup"), "step_batch", "step_0"))
	fs.Write("proc/5101/limits", fs.Read("proc/4102/limits"))
	job := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	for _, file := range []string{"usage_in_bytes", "limit_in_bytes", "stat", "memsw.limit_in_bytes", "memsw.usage_in_bytes", "oom_control", "failcnt"} {
		fs.Write(job+"step_0/memory."+file, fs.Read(job+"step_batch/memory."+file))
	}
	fs.Write(job+"step_0/memory.limit_in_bytes", "262144000\n") // of srun --mem=250
	batch, zero := steps(t, fs, cgroupRAM, nil)
	u := limit.Join(limit.Part{Name: "7.batch", Set: batch.set}, limit.Part{Name: "7.0", Set: zero.set})
	limits := u.Read(whole(t, batch, u))
	levels := map[string]int{}
	for _, l := range limits {
		if l.Name == event.LimitCgroup {
			levels[l.Level[strings.LastIndex(l.Level, "/")+1:]]++
		}
	}
	if levels["job_7"] != 1 || levels["step_batch"] != 1 || levels["step_0"] != 1 {
		t.Errorf("levels %v", levels)
	}
	if l := limits[0]; !strings.HasSuffix(l.Level, "step_0") || !l.Binding || l.Limit != 250*rss.MiB {
		t.Errorf("binding %+v", l)
	}
	if fast, ok := u.Fast(1, rss.GiB, nil); !ok || !strings.HasSuffix(fast.Level, "step_0") {
		t.Errorf("fast %+v, %v", fast, ok)
	}
	fs.Replace(job+"step_0/memory.oom_control", "oom_kill 0", "oom_kill 2")
	seen := map[string]bool{}
	for _, k := range u.OOMKills() {
		if seen[k.Level] || (k.Kills > 0) == strings.Contains(k.Level, "step_batch") {
			t.Errorf("%d kills at %s", k.Kills, k.Level)
		}
		if k.Leaf != (strings.HasSuffix(k.Level, "step_0") || strings.HasSuffix(k.Level, "task_0")) {
			t.Errorf("%s is a leaf: %v", k.Level, k.Leaf)
		}
		seen[k.Level] = true
	}
}

// TestUnionStep: of which step a limit is.
func TestUnionStep(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	secondStep(fs)
	fs.Write("proc/5101/cgroup", strings.ReplaceAll(fs.Read("proc/4102/cgroup"), "step_batch", "step_0"))
	job := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	for _, file := range []string{"usage_in_bytes", "limit_in_bytes", "stat"} {
		fs.Write(job+"step_0/memory."+file, fs.Read(job+"step_batch/memory."+file))
	}
	batch, zero := steps(t, fs, linuxKill, func(c *limit.Config) { c.User = rss.GiB })
	u := limit.Join(limit.Part{Name: "7.batch", Set: batch.set}, limit.Part{Name: "7.0", Set: zero.set})
	got := map[string]string{}
	for _, l := range u.Read(whole(t, batch, u)) {
		got[string(l.Name)+" "+l.Level[strings.LastIndex(l.Level, "/")+1:]] = u.Step(&l)
	}
	for of, want := range map[string]string{
		"cgroup step_batch": "batch", "cgroup step_0": "0", "cgroup job_7": "",
		"slurm 7.batch": "batch", "slurm 7.0": "0", "user ": "",
	} {
		if step, there := got[of]; !there || step != want {
			t.Errorf("%s is of step %q (%v), want %q", of, step, there, want)
		}
	}
	task := event.Limit{Name: event.LimitCgroup, Scope: event.ScopeCgroup, Level: fs.Sys + strings.TrimPrefix(job, "sys") + "step_0/task_0"}
	if step := u.Step(&task); step != "0" {
		t.Errorf("a task's is of step %q", step)
	}
	if l := batch.read()[0]; limit.Join(limit.Part{Set: batch.set}).Step(&l) != "" {
		t.Error("one part alone is all there is")
	}
}

// TestStepEnds: a directory that went with its step is nothing to warn of; one
// that is there and cannot be read is.
func TestStepEnds(t *testing.T) {
	const job = "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7"
	for name, c := range map[string]struct {
		remove string
		warns  bool
	}{
		"the task":    {job + "/step_batch/task_0", false},
		"the step":    {job + "/step_batch", false},
		"the job":     {job, false},
		"all of them": {"sys/fs/cgroup/memory/slurm_n1", true},
		"a file only": {job + "/step_batch/memory.limit_in_bytes", true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v1")
			s := newStand(t, fs, inJob, cgroupRAM, nil)
			s.read()
			s.set.Warnings()
			fs.Remove(c.remove)
			s.set.Close() // the kernel's files end with the directory, these do not
			s.read()
			s.set.OOMKills()
			if w := s.set.Warnings(); (len(w) > 0) != c.warns {
				t.Errorf("warnings %v", w)
			}
		})
	}
}
