package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const jobDir = "sys/fs/cgroup/memory/slurm/uid_1/job_46/"

// jobStand is a watcher of job 46, whose steps have cgroups with 1000 MiB each.
type jobStand struct {
	*stand
	job population.Job
}

// newJob makes one with these rules and no step yet. It is not opened.
func newJob(t *testing.T, asked string, rules ...string) *jobStand {
	j := &jobStand{job: population.Job{Name: "46", Roots: []rss.ProcID{{PID: theCommand}}, StepOf: map[rss.ProcID]string{}}}
	if asked != population.Extern {
		j.job.Excluded = []string{population.Extern}
	}
	j.stand = newStand(t, attachedToJob(&j.job))
	j.job.Roots = nil
	j.Settings.Rules, j.Settings.Limit, j.Settings.Grace = mustRules(rules...), 0, time.Minute
	j.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n")
	j.uses("", 0)
	return j
}

// uses says what the cgroup of a step, or of the job, has.
func (j *jobStand) uses(step string, mib rss.Bytes) {
	dir := jobDir
	if step != "" {
		dir += "step_" + step + "/"
	}
	j.fs.Write(dir+"memory.usage_in_bytes", fmt.Sprintln(uint64(mib<<20)))
	j.fs.Write(dir+"memory.limit_in_bytes", fmt.Sprintln(1000<<20))
	j.fs.Write(dir+"memory.stat", fmt.Sprintf("total_rss %d\n", mib<<20))
	j.fs.Write(dir+"memory.oom_control", "oom_kill 0\n")
}

// add puts a process into a step, as a task or as a child of another.
func (j *jobStand) add(step string, id rss.ProcID, parent int) {
	j.fs.Put(rsstest.Process{PID: id.PID, Start: id.Start, Parent: parent, Comm: "python", Anon: rss.MiB})
	j.fs.Write(fmt.Sprintf("proc/%d/cgroup", id.PID), fmt.Sprintf("4:memory:/slurm/uid_1/job_46/step_%s\n", step))
	if parent != 1 {
		return // it is found below its parent
	}
	if !slices.Contains(j.job.Steps, step) {
		j.uses(step, 10)
		j.job.Steps = append(j.job.Steps, step)
	}
	j.job.Roots = append(j.job.Roots, id)
	j.job.StepOf[id] = step
	if !slices.Contains(j.job.Excluded, step) {
		j.job.Tasks = append(j.job.Tasks, id)
	}
}

// ends takes a process out of the job.
func (j *jobStand) ends(id rss.ProcID) {
	gone := func(other rss.ProcID) bool { return other == id }
	j.fs.End(id.PID)
	j.job.Roots, j.job.Tasks = slices.DeleteFunc(slices.Clone(j.job.Roots), gone), slices.DeleteFunc(slices.Clone(j.job.Tasks), gone)
}

// endedBy waits for a process and returns the signal that ended it.
func endedBy(t *testing.T, c *exec.Cmd) syscall.Signal {
	t.Helper()
	_ = c.Wait()
	return c.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

// running says that no signal has ended a process.
func running(c *exec.Cmd) bool {
	time.Sleep(50 * time.Millisecond) // as long as the kernel may take for one
	pid, err := syscall.Wait4(c.Process.Pid, nil, syscall.WNOHANG, nil)
	return err == nil && pid == 0
}

// TestStopSparesExtern: neither TERM nor KILL goes to a login shell or to what
// runs in it, and the stop is done without them.
func TestStopSparesExtern(t *testing.T) {
	j := newJob(t, "", "90%:stop")
	task, taskID := rsstest.Sleeper(t)
	deaf := catcher(t) // TERM does not end it
	shell, shellID := rsstest.Sleeper(t)
	inShell, inShellID := rsstest.Sleeper(t)
	orphan, orphanID := rsstest.Sleeper(t) // its parent was in the shell and was never sampled
	j.add(population.Extern, shellID, 1)
	j.add(population.Extern, inShellID, shellID.PID)
	j.add(population.Extern, orphanID, inShellID.PID)
	j.add("0", taskID, 1)
	j.add("0", deaf, 1)
	j.open(j.holder.begin)
	j.uses("", 950)
	j.full()
	if want := "stopping job 46 but for step extern: SIGTERM now"; !strings.Contains(j.stderr(), want) {
		t.Fatalf("%q is not in\n%s", want, j.stderr())
	}
	if got := endedBy(t, task); got != unix.SIGTERM {
		t.Errorf("the task was ended by %v", got)
	}
	j.ends(taskID)
	j.fs.Put(rsstest.Process{PID: orphanID.PID, Start: orphanID.Start, Parent: 1, Comm: "python", Anon: rss.MiB})
	j.full()
	if j.acts.InFlight() == nil {
		t.Fatal("done, and a task lives")
	}
	j.later(2 * time.Minute)
	j.full() // KILL
	dead(t, deaf)
	j.ends(deaf)
	j.full()
	j.full()
	j.does("")
	for name, c := range map[string]*exec.Cmd{"shell": shell, "in the shell": inShell, "orphan": orphan} {
		if !running(c) {
			t.Errorf("%s was ended", name)
		}
	}
	j.told("stopped job 46 but for step extern")
	if err := j.acts.Kill(shellID, unix.SIGTERM); err == nil || errors.Is(err, unix.ESRCH) {
		t.Errorf("a signal by another way: %v", err)
	}
	if j.acts.Ladder.Stopped() {
		t.Error("the ladder watches no more, and the job goes on")
	}
}

// TestStopOfExtern: unless it was asked for.
func TestStopOfExtern(t *testing.T) {
	j := newJob(t, population.Extern, "90%:stop")
	shell, id := rsstest.Sleeper(t)
	j.add(population.Extern, id, 1)
	j.open(j.holder.begin)
	j.uses("", 950)
	j.full()
	if got := endedBy(t, shell); got != unix.SIGTERM {
		t.Errorf("ended by %v", got)
	}
}

// TestStopWithoutProcess: there is only a login shell.
func TestStopWithoutProcess(t *testing.T) {
	j := newJob(t, "", "90%:stop", "85%:signal=USR2")
	shell, id := rsstest.Sleeper(t)
	j.add(population.Extern, id, 1)
	j.catches(id.PID, usr2)
	j.open(j.holder.begin)
	j.uses("", 950)
	j.full()
	j.full()
	if !running(shell) {
		t.Error("the shell was ended")
	}
	if j.acts.InFlight() != nil || j.tell.Sum.Stopped {
		t.Error("something was stopped")
	}
	j.told(
		"stop failed: the process has ended (no task of job 46 but for step extern)\n",
		"signal=USR2 skipped: the process has ended\n",
	)
}

// TestStopOfOneStep: what one step's limit asks for is done to that step.
func TestStopOfOneStep(t *testing.T) {
	j := newJob(t, "", "90%:stop")
	zero, zeroID := rsstest.Sleeper(t)
	one, oneID := rsstest.Sleeper(t)
	child, childID := rsstest.Sleeper(t)
	j.add("0", zeroID, 1)
	j.add("1", oneID, 1)
	j.add("1", childID, oneID.PID)
	j.open(j.holder.begin)
	j.uses("1", 950)
	j.full()
	if want := "cgroup 95 %: stopping step 46.1: SIGTERM now"; !strings.Contains(j.stderr(), want) {
		t.Fatalf("%q is not in\n%s", want, j.stderr())
	}
	if got := endedBy(t, one); got != unix.SIGTERM {
		t.Errorf("the task was ended by %v", got)
	}
	j.ends(oneID) // its child is an orphan now
	j.fs.Put(rsstest.Process{PID: childID.PID, Start: childID.Start, Parent: 1, Comm: "python", Anon: rss.MiB})
	j.later(2 * time.Minute)
	j.full()
	if got := endedBy(t, child); got != unix.SIGKILL {
		t.Errorf("its child was ended by %v", got)
	}
	j.ends(childID)
	j.uses("1", 10)
	j.full()
	j.full()
	if !running(zero) || j.acts.InFlight() != nil || j.tell.Sum.Stopped {
		t.Errorf("the other step, flight %v, stopped %v", j.acts.InFlight(), j.tell.Sum.Stopped)
	}
	j.told("stopped step 46.1\n")
	// The other step is watched on.
	j.later(2 * time.Minute)
	j.uses("0", 950)
	j.full()
	if got := endedBy(t, zero); got != unix.SIGTERM {
		t.Errorf("the other step was ended by %v", got)
	}
	if !j.tell.Sum.Stopped {
		t.Error("nothing goes on now")
	}
}

// TestSignalOfOneStep: the signal goes to processes of the step whose limit it is, of all
// steps where the limit is the job's.
func TestSignalOfOneStep(t *testing.T) {
	for name, c := range map[string]struct {
		step string
		asks []int // steps
		says string
	}{
		"a step": {"1", []int{1}, "; only step 46.1 is meant"},
		"all":    {"", []int{0, 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, "", "90%:signal=TERM")
			ids := []rss.ProcID{catcher(t), catcher(t)}
			// They are listed by PID, and PIDs may have wrapped around in between.
			slices.SortFunc(ids, func(a, b rss.ProcID) int { return a.PID - b.PID })
			shell := catcher(t)
			j.add("0", ids[0], 1)
			j.add("1", ids[1], 1)
			j.add(population.Extern, shell, 1)
			for _, id := range append(ids, shell) {
				j.catches(id.PID, "0000000000004000")
			}
			j.open(j.holder.begin)
			j.uses(c.step, 950)
			var want []int
			for _, i := range c.asks {
				want = append(want, ids[i].PID)
			}
			// No process is signalled before every environment was read for a rank.
			j.says("TERM sent to " + text.Named("process", want) + c.says + "\n")
		})
	}
}

// TestRecycleOfOneStep: nor is a worker of another step recycled.
func TestRecycleOfOneStep(t *testing.T) {
	j := newJob(t, "", "99%:recycle")
	zero, one, shell := rss.ProcID{PID: worker1, Start: 7}, rss.ProcID{PID: worker2, Start: 7}, rss.ProcID{PID: worker3, Start: 7}
	j.add("0", zero, 1)
	j.add("1", one, 1)
	j.add(population.Extern, shell, 1)
	j.open(j.holder.begin)
	var all []event.Trainer
	for _, id := range []rss.ProcID{zero, one, shell} {
		all = append(all, event.Trainer{ID: rss.ProcID{PID: 1}, CanRecycle: true, Loaders: []event.DataLoader{{CanRecycle: true, Workers: []int{id.PID}}}})
	}
	j.observe.Workers.SetTrainers(all)
	j.observe.Workers.Update(&j.view.Sample, nil)
	for i := range j.view.Limits {
		l := j.view.Limits[i]
		var pids []int
		for _, u := range j.acts.Recyclable(&l) {
			pids = append(pids, u.ID.PID)
		}
		want := fmt.Sprint([]int{worker1, worker2})
		switch {
		case strings.HasSuffix(l.Level, "step_0"):
			want = fmt.Sprint([]int{worker1})
		case strings.HasSuffix(l.Level, "step_1"):
			want = fmt.Sprint([]int{worker2})
		case strings.HasSuffix(l.Level, "step_extern"):
			want = "[]"
		}
		if got := fmt.Sprint(pids); got != want {
			t.Errorf("%s %s: of %s, want %s", l.Name, l.Level, got, want)
		}
	}
}

// twoSteps are a leader in step 0 and a follower in step 1, with these commands, where a
// limit of the cgroup of one step is nearly full.
func twoSteps(t *testing.T, ours, theirs rss.ProcID, full string) (s, other *rankStand) {
	t.Helper()
	dir := runtimeDir(t)
	s = newRank(t, nil, dir, 0, "0", ours, "90%:stop")
	s.leads()
	other = newRank(t, s, dir, 1, "1", theirs, "90%:stop")
	other.follows()
	s.meets(1, 1)
	s.uses(full, 950)
	s.full()
	return s, other
}

// TestStopOfAnotherRanksStep: a stop of a step that only other ranks are in is an
// order to them, and KILL to what has not ended; ours goes on, whatever its end.
func TestStopOfAnotherRanksStep(t *testing.T) {
	ours, oursID := rsstest.Sleeper(t)
	deaf := catcher(t)
	s, other := twoSteps(t, oursID, deaf, "1")
	s.told("stopping step 46.1: SIGTERM now, SIGKILL in 1 min 00 s (90%:stop)")
	if o := other.ordered(); !o.Stop || o.StopStatus != 137 || o.Grace != time.Minute {
		t.Errorf("ordered %+v", o)
	}
	if s.tell.Sum.Stopped || len(s.holder.overrides) > 0 {
		t.Errorf("ours counts as stopped: %v", s.holder.overrides)
	}
	s.later(2 * time.Minute)
	s.full()
	dead(t, deaf)
	s.fs.End(deaf.PID)
	s.uses("1", 10)
	s.full()
	s.full()
	s.told("stopped step 46.1\n")
	if !running(ours) {
		t.Error("ours was ended")
	}
}

// TestStopOfOurStepAlone: where ranks of another step go on, the end of our command
// is by rsswarden all the same.
func TestStopOfOurStepAlone(t *testing.T) {
	ours, oursID := rsstest.Sleeper(t)
	theirs, theirsID := rsstest.Sleeper(t)
	s, other := twoSteps(t, oursID, theirsID, "0")
	if got := endedBy(t, ours); got != unix.SIGTERM {
		t.Errorf("ours was ended by %v", got)
	}
	if !slices.Equal(s.holder.overrides, []int{137}) {
		t.Errorf("the holder is to end with %v", s.holder.overrides)
	}
	if o := other.ordered(); o.Stop || !running(theirs) {
		t.Errorf("the other step was stopped: %+v", o)
	}
	s.ended(15)
	wardentest.Has(t, s.last(event.NameExit), "by", "rsswarden", "code", 137.0)
}

// TestEndBesideStopOfOthers: a stop of other ranks is not told as done when our
// command ends before they do.
func TestEndBesideStopOfOthers(t *testing.T) {
	_, oursID := rsstest.Sleeper(t)
	s, _ := twoSteps(t, oursID, catcher(t), "1")
	s.ended(9)
	wardentest.Has(t, only(t, s.events(), event.NameOutcome), "ok", false, "reason", string(event.ReasonVanished))
	wardentest.Has(t, s.last(event.NameExit), "by", "command", "signal", "SIGKILL")
}

// preferring is a stand with --oom-prefer workers below a cgroup's limit, with a
// trainer, two workers and another process.
func preferring(t *testing.T, change func(*Options)) *stand {
	t.Helper()
	s := opened(t, func(o *Options) {
		o.Settings.OOMPrefer = true
		if change != nil {
			change(o)
		}
	})
	s.view.Sample.Procs = []rss.Proc{
		process(theCommand, rss.RoleTrainer, rss.GiB, rss.GiB), process(worker1, rss.RoleWorker, rss.MiB, rss.MiB),
		process(worker2, rss.RoleWorker, rss.MiB, rss.MiB), process(worker3, rss.RoleOther, rss.MiB, rss.MiB),
	}
	for i := range s.view.Sample.Procs {
		s.score(s.view.Sample.Procs[i].ID.PID, "0\n")
	}
	s.fs.Write("sys/fs/cgroup/job/memory.max", "1000\n")
	s.view.Limits = []event.Limit{s.level("sys/fs/cgroup/job")}
	return s
}

// level is a reading of a cgroup's limit.
func (s *stand) level(name string) event.Limit {
	dir := s.fs.Path(name)
	return event.Limit{Name: event.LimitCgroup, Level: dir, LimitSource: dir + "/memory.max", Used: 100, Limit: 1000}
}

func (s *stand) score(pid int, score string) {
	s.fs.Write(fmt.Sprintf("proc/%d/oom_score_adj", pid), score)
}

// scores are those of trainer, workers and the other.
func (s *stand) scores() string {
	var all []string
	for _, pid := range []int{theCommand, worker1, worker2, worker3} {
		all = append(all, strings.TrimSpace(s.fs.Read(fmt.Sprintf("proc/%d/oom_score_adj", pid))))
	}
	return strings.Join(all, " ")
}

// TestOOMPrefer is whose score is raised, and when.
func TestOOMPrefer(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		set    func(*stand)
		want   string
		cures  int
	}{
		{"workers alone", nil, func(*stand) {}, "0 1000 1000 0", 2},
		{"not asked for", func(o *Options) { o.Settings.OOMPrefer = false }, func(*stand) {}, "0 0 0 0", 0},
		{"dry run", func(o *Options) { o.Settings.DryRun = true }, func(*stand) {}, "0 0 0 0", 0},
		{"no limit but the node's", nil, func(s *stand) { s.view.Limits = []event.Limit{{Name: event.LimitNode, Limit: 900}} }, "0 0 0 0", 0},
		{"as much as the node has", nil, func(s *stand) {
			s.view.Limits = append(s.view.Limits, event.Limit{Name: event.LimitNode, Limit: 900})
		}, "0 0 0 0", 0},
		{"a cgroup without a limit", nil, func(s *stand) { s.view.Limits[len(s.view.Limits)-1].Limit = 0 }, "0 0 0 0", 0},
		{"from what the user has set", nil, func(s *stand) { s.score(worker1, "-500\n"); s.score(worker2, "300\n") }, "0 1000 1000 0", 2},
		{"as high already", nil, func(s *stand) { s.score(worker1, "1000\n") }, "0 1000 1000 0", 1},
		{"a worker that has ended", nil, func(s *stand) { s.view.Sample.Procs[1].State = 'Z' }, "0 0 1000 0", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := preferring(t, c.change)
			c.set(s)
			s.oom.Raise()
			if got := s.scores(); got != c.want {
				t.Errorf("scores %s, want %s", got, c.want)
			}
			cures := named(s.events(), event.NameCure)
			if len(cures) != c.cures {
				t.Errorf("cures %v", cures)
			}
			for _, e := range cures {
				wardentest.Has(t, e, "remedy", "oom-prefer", "ok", true, "after", 1000.0)
			}
			s.times(min(c.cures, 1), "--oom-prefer")
		})
	}
}

// TestOOMPreferOnce: each worker is asked for once, one with the PID of another is
// a worker of its own, and one that has lowered it again is left alone.
func TestOOMPreferOnce(t *testing.T) {
	s := preferring(t, nil)
	s.oom.Raise()
	s.score(worker1, "0\n")
	for range 5 {
		s.oom.Raise()
	}
	if got := s.scores(); got != "0 0 1000 0" {
		t.Errorf("scores %s", got)
	}
	s.view.Sample.Procs[1].ID.Start++
	s.oom.Raise()
	s.oom.Raise()
	if got := s.scores(); got != "0 1000 1000 0" {
		t.Errorf("scores %s", got)
	}
	if cures := named(s.events(), event.NameCure); len(cures) != 3 {
		t.Errorf("cures %v", cures)
	}
	s.times(1, "--oom-prefer")
}

// TestOOMPreferFails: a failure is reported once, for whichever process, and ends
// nothing.
func TestOOMPreferFails(t *testing.T) {
	s := preferring(t, nil)
	for _, pid := range []int{worker1, worker2} {
		name := fmt.Sprintf("proc/%d/oom_score_adj", pid)
		s.fs.Remove(name)
		s.fs.Write(name+"/in the way", "")
	}
	for range 3 {
		s.oom.Raise()
	}
	// A worker that ended between the two looks is no failure.
	s.view.Sample.Procs = append(s.view.Sample.Procs, process(worker3+1, rss.RoleWorker, rss.MiB, rss.MiB))
	s.oom.Raise()
	wardentest.Has(t, only(t, s.events(), event.NameCure), "ok", false, "pid", float64(worker1))
	s.times(1, "--oom-prefer: cannot read oom_score_adj")
	s.told("directory")
}

// TestOOMGroup: where the kernel kills all of a cgroup at once, a preference is of
// little use, and a line says so.
func TestOOMGroup(t *testing.T) {
	const warning = "but memory.oom.group in "
	for _, c := range []struct {
		name  string
		set   []string // levels that have it
		other []string // … and those that have it not
		want  string   // empty for no warning
	}{
		{"nowhere", nil, []string{"job", "job/step"}, ""},
		{"at the limit", []string{"job"}, []string{"job/step"}, "cgroup/job kills"},
		{"below it", []string{"job/step/task"}, []string{"job", "job/step"}, "step/task kills"},
		{"the topmost counts", []string{"job/step", "job/step/task"}, []string{"job"}, "job/step kills"},
		{"above the limit", []string{"."}, []string{"job", "job/step"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := preferring(t, nil)
			s.fs.Write(fmt.Sprintf("proc/%d/cgroup", theCommand), "0::/job/step/task\n")
			s.fs.Write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
			for _, dir := range []string{"job", "job/step", "job/step/task"} {
				s.fs.Write("sys/fs/cgroup/"+dir+"/memory.current", "100\n")
			}
			for _, dir := range c.set {
				s.fs.Write("sys/fs/cgroup/"+dir+"/memory.oom.group", "1\n")
			}
			for _, dir := range c.other {
				s.fs.Write("sys/fs/cgroup/"+dir+"/memory.oom.group", "0\n")
			}
			s.oom.Raise()
			said := s.stderr()
			if !strings.Contains(said, "--oom-prefer: workers are killed first (oom_score_adj 1000, was 0)") {
				t.Errorf("said\n%s", said)
			}
			if c.want == "" && strings.Contains(said, warning) || !strings.Contains(said, warning+c.want) && c.want != "" {
				t.Errorf("want %q\n%s", c.want, said)
			}
		})
	}
}

// TestLeafLimit is the innermost level that limits.
func TestLeafLimit(t *testing.T) {
	s := preferring(t, nil)
	s.view.Limits = append(s.view.Limits, s.level("sys/fs/cgroup/job/step"), event.Limit{Name: event.LimitThrottle, Level: "/sys/fs/cgroup/job/step/task", Limit: 5})
	if l := s.acts.LeafLimit(); l == nil || l.Level != s.fs.Path("sys/fs/cgroup/job/step") {
		t.Errorf("%+v", l)
	}
}

// TestKernelTakesAWorker: in a real cgroup that is full the kernel ends a worker,
// and not the trainer, which is larger; without the preference it is the trainer.
func TestKernelTakesAWorker(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a memory cgroup takes root")
	}
	for _, preferred := range []bool{false, true} {
		t.Run(fmt.Sprint("preferred ", preferred), func(t *testing.T) {
			g := rsstest.NewGroup(t, 256*rss.MiB)
			s := opened(t, func(o *Options) { o.Settings.OOMPrefer = preferred })
			s.Proc, s.acts.Proc = "/proc", "/proc"
			s.view.Limits = []event.Limit{{Name: event.LimitCgroup, Level: g.Dir, LimitSource: filepath.Join(g.Dir, "memory.limit_in_bytes"), Limit: 256 * rss.MiB}}
			s.view.Sample.Procs = nil
			tree := proctree.New("/proc")
			defer tree.Close()
			var eaters []*rsstest.Eater
			for _, role := range []rss.Role{rss.RoleTrainer, rss.RoleWorker, rss.RoleWorker} {
				e := rsstest.StartEater(t)
				g.Join(e.PID)
				p, err := tree.One(e.PID)
				wardentest.NoError(t, err)
				p.Role = role
				s.view.Sample.Procs = append(s.view.Sample.Procs, p)
				eaters = append(eaters, e)
			}
			trainer, worker := eaters[0], eaters[1]
			if !trainer.Anon(140*rss.MiB) || !worker.Anon(60*rss.MiB) {
				t.Fatal("it was full too soon")
			}
			s.oom.Raise()
			alive := worker.Anon(100 * rss.MiB)
			told := trainer.Anon(4096)
			if told != preferred || preferred && alive {
				t.Errorf("the worker lives: %v, the trainer: %v\n%s", alive, told, s.stderr())
			}
		})
	}
}

// TestOOMPreferFollowsWorkers in whole looks: a worker that comes later has it with
// the look that sees it.
func TestOOMPreferFollowsWorkers(t *testing.T) {
	s := newStand(t, withLoader(t), func(o *Options) {
		o.Settings.OOMPrefer = true
	})
	id := s.trainer(20*rss.MiB, worker1)
	s.fs.Write(fmt.Sprintf("proc/%d/cgroup", theCommand), "0::/job\n")
	s.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), "0::/job\n")
	s.fs.Write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	s.fs.Write("sys/fs/cgroup/cgroup.controllers", "memory\n")
	s.fs.Write("sys/fs/cgroup/job/memory.current", "104857600\n")
	s.fs.Write("sys/fs/cgroup/job/memory.max", "1048576000\n")
	s.fs.Write("sys/fs/cgroup/job/memory.stat", "anon 104857600\nfile 0\ninactive_file 0\nactive_file 0\n")
	for _, pid := range []int{theCommand, id.PID, worker1} {
		s.score(pid, "0\n")
	}
	s.open(s.holder.begin)
	if s.acts.LeafLimit() == nil {
		t.Fatalf("no limit of a cgroup in %+v", s.view.Limits)
	}
	s.put(worker1, id.PID, 20*rss.MiB, 0)
	s.later(time.Second)
	s.full()
	for pid, want := range map[int]string{theCommand: "0", id.PID: "0", worker1: "1000"} {
		if got := strings.TrimSpace(s.fs.Read(fmt.Sprintf("proc/%d/oom_score_adj", pid))); got != want {
			t.Errorf("process %d has %s, want %s", pid, got, want)
		}
	}
}
