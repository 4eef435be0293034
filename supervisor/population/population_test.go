package population

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// followedJob is an attach to job 46 with a login shell, a task in each of two steps and
// their children. It runs in the login shell.
func followedJob(t *testing.T) (jobTree, *Population) {
	n := jobTree{t, rsstest.Empty(t)}
	in := func(step string) string { return fmt.Sprintf(v1, "46", step) }
	n.put(21, 1, "bash", in(Extern))
	n.put(22, 21, "vi", in(Extern))
	n.put(31, 1, "python", in("0"))
	n.put(32, 31, "python", in("0"))
	n.put(41, 1, "python", in("1"))
	n.put(50, 21, "rsswarden", in(Extern))
	n.put(51, 50, "sh", in(Extern))
	j := jobOf("46", "", []Member{
		{ID: procID(21), Step: Extern, Task: true}, {ID: procID(31), Step: "0", Task: true}, {ID: procID(41), Step: "1", Task: true},
	}, rss.ProcID{})
	return n, New(Options{Proc: n.Proc, Tree: proctree.New(n.Proc), Followed: func() Job { return j }, Self: 50})
}

func (p *Population) sample(t *testing.T) *rss.Sample {
	t.Helper()
	procs, _, err := p.Read()
	wardentest.NoError(t, err)
	return &rss.Sample{Procs: procs}
}

// TestFollowedJob: each process is in the step of who started it, also when that has ended,
// and a rule acts on those of the step that it is about and on none of extern.
func TestFollowedJob(t *testing.T) {
	n, p := followedJob(t)
	if p.Command != procID(31) || p.Name != "46" || !p.IsJob() || !p.FollowsJob() || !p.Attached() {
		t.Errorf("%+v", p)
	}
	for range 2 {
		s := p.sample(t)
		steps := map[int]string{}
		for _, q := range s.Procs {
			steps[q.ID.PID] = p.Step(q.ID)
		}
		if got, want := fmt.Sprint(steps), "map[21:extern 22:extern 31:0 32:0 41:1]"; got != want {
			t.Errorf("the steps are %s, want %s", got, want)
		}
		for step, want := range map[string]struct {
			all, commands string
			isAll         bool
			target        string
		}{
			"":  {"[31@31 32@32 41@41]", "[31 41]", true, "job 46 but for step extern"},
			"0": {"[31@31 32@32]", "[31]", false, "step 46.0"},
			"1": {"[41@41]", "[41]", false, "step 46.1"},
		} {
			var commands []int
			for _, q := range p.Commands(s, step) {
				commands = append(commands, q.ID.PID)
			}
			if got := fmt.Sprint(p.All(s, step)); got != want.all || fmt.Sprint(commands) != want.commands || p.IsAll(s, step) != want.isAll || p.Target(step) != want.target {
				t.Errorf("step %q: all %s, commands %v, is all %v, %s", step, got, commands, p.IsAll(s, step), p.Target(step))
			}
		}
		n.put(32, 1, "python", "0::/\n") // the second time they are orphans
		n.put(22, 1, "vi", "0::/\n")
	}
	// What was never seen below another is asked for its cgroup.
	fresh := New(p.Options)
	n.put(22, 1, "vi", fmt.Sprintf(v1, "46", Extern))
	fresh.Followed = func() Job { return Job{Name: "46", Roots: []rss.ProcID{procID(31), procID(22)}} }
	fresh.sample(t)
	if got := fresh.Step(procID(22)); got != Extern {
		t.Errorf("by its cgroup it is in step %q", got)
	}
	// A task that has ended is not asked for anything.
	n.Put(rsstest.Process{PID: 41, Parent: 1, Start: 41, State: 'Z'})
	if got := p.Commands(p.sample(t), "1"); len(got) > 0 {
		t.Errorf("a zombie is asked: %v", got)
	}
}

// TestWithoutOurs: an attach that runs in what it watches, and the command of an exec= rule,
// are no part of it, also where what started that has ended.
func TestWithoutOurs(t *testing.T) {
	n, p := followedJob(t)
	for range 2 {
		s := p.sample(t)
		if slices.ContainsFunc(s.Procs, func(q rss.Proc) bool { return q.ID.PID >= 50 }) {
			t.Errorf("we are watched: %v", s.Procs)
		}
		var want rss.Bytes
		for i := range s.Procs {
			want += s.Procs[i].RSS
		}
		if sum, err := p.SumRSS(); err != nil || sum != want {
			t.Errorf("the sum is %v, want %v; %v", sum, want, err)
		}
		n.put(51, 1, "sh", "0::/\n")
	}
	// A holder is no descendant of what it watches: there is nothing to leave out.
	p = New(Options{Proc: n.Proc, Tree: proctree.New(n.Proc), Command: procID(21), Holder: 20, Self: 50})
	if s := p.sample(t); len(s.Procs) != 3 || p.IsJob() || p.Target("") != "the command" || !slices.Equal(p.Tasks(), []rss.ProcID{procID(21)}) {
		t.Errorf("%d are watched, of %s", len(s.Procs), p.Target(""))
	}
}

// TestRanks: the commands of all ranks are watched, each once, and orphans that a holder of
// theirs has adopted.
func TestRanks(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	for _, q := range [][2]int{{20, 1}, {21, 20}, {40, 1}, {41, 40}, {42, 41}, {49, 40}} {
		n.put(q[0], q[1], "python", fmt.Sprintf(v1, "46", "0"))
	}
	p := New(Options{Proc: n.Proc, Tree: proctree.New(n.Proc), Command: procID(21), Holder: 20, Self: 29, Names: []string{"rss-watcher"}, Forks: []string{"rss-watcher"}})
	p.Name = "46"
	if s := p.sample(t); len(s.Procs) != 1 {
		t.Errorf("alone: %d", len(s.Procs))
	}
	other := Rank{Command: procID(41), Step: "0", Holder: 40, Watcher: 49}
	p.SetRanks(Rank{Command: procID(21), Step: "0"}, []Rank{other, other})
	n.put(60, 40, "orphan", "0::/\n")
	n.put(61, 40, "rss-watcher", "0::/\n")
	n.put(62, 20, "rss-watcher", "0::/\n")
	if s := p.sample(t); len(s.Procs) != 4 || s.Procs[0].ID.PID != 21 || !slices.Equal(p.Tasks(), []rss.ProcID{procID(21), procID(41)}) || p.Target("") != "job 46 on this node" {
		t.Errorf("%d are watched, tasks %v, of %s", len(s.Procs), p.Tasks(), p.Target(""))
	}
	if j := p.Job(); !slices.Equal(j.Steps, []string{"0"}) {
		t.Errorf("the steps are %v", j.Steps)
	}
	p.SetRanks(Rank{Command: procID(21), Step: "0"}, nil)
	if p.sample(t); p.IsJob() || p.Step(procID(21)) != "" {
		t.Errorf("alone again: %+v", p.Job())
	}
}

// TestOuterRun: the nearest run above counts, and neither this one nor what is beside it.
func TestOuterRun(t *testing.T) {
	fs := rsstest.Empty(t)
	for _, p := range []struct {
		pid, parent int
		comm        string
	}{
		{1, 0, "rsswarden"}, // of a container
		{10, 1, "slurmstepd"}, {11, 10, "rsswarden"}, {12, 11, "rss-watcher"}, {13, 11, "bash"},
		{14, 13, "rsswarden"}, {15, 14, "python3"}, {16, 15, "rsswarden"},
		{20, 77, "rsswarden"}, {30, 31, "rsswarden"}, {31, 30, "bash"},
	} {
		fs.Put(rsstest.Process{PID: p.pid, Parent: p.parent, Start: 1, Comm: p.comm})
	}
	for holder, want := range map[int]int{1: 0, 11: 1, 14: 11, 16: 14, 20: 0, 99: 0} {
		if got := OuterRun(fs.Proc, holder); got != want {
			t.Errorf("above %d: %d, want %d", holder, got, want)
		}
	}
}

// TestInnerRun: a run of the user's is the command itself or below it, not beside it.
func TestInnerRun(t *testing.T) {
	procs := func(comm string, parent int) []rss.Proc {
		return []rss.Proc{
			{ID: rss.ProcID{PID: 10}, Parent: 1, Comm: "bash"}, {ID: rss.ProcID{PID: 11}, Parent: 10, Comm: "python3"},
			{ID: rss.ProcID{PID: 12}, Parent: parent, Comm: comm},
		}
	}
	for _, test := range []struct {
		comm            string
		parent, command int
		want            int
	}{{"rsswarden", 11, 10, 12}, {"rsswarden", 1, 12, 12}, {"rsswarden", 1, 10, 0}, {"rss-watcher", 11, 10, 0}, {"rsswarden", 12, 10, 0}} {
		if got := InnerRun(procs(test.comm, test.parent), test.command); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

func TestSrunAndContainers(t *testing.T) {
	s := &rss.Sample{}
	for i, comm := range []string{"bash", "srun", "starter-suid", "appinit", "python", "sh", "starter"} {
		p := rss.Proc{ID: rss.ProcID{PID: i + 1}, Comm: comm, Parent: i, State: 'S'}
		switch comm {
		case "sh":
			p.Parent, p.State = 4, 'Z' // beside python, and has ended
		case "starter":
			p.Parent = 1 // runs nothing
		}
		s.Procs = append(s.Procs, p)
	}
	if srun := Srun(s.Procs); srun != 2 || Srun(s.Procs[2:]) != 0 {
		t.Errorf("srun is process %d", srun)
	}
	for of, want := range map[int]string{1: "[1]", 3: "[5]", 4: "[5]", 7: "[7]"} {
		var got []int
		for _, p := range InContainers(s, []*rss.Proc{s.Find(of)}) {
			got = append(got, p.ID.PID)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d runs %v, want %s", of, got, want)
		}
	}
}

// ranksTree is a node where the command 21 of step own is held by 20, the watcher is 29,
// and slurmstepd started task 31 of step 1.
func ranksTree(t *testing.T, own, task string) (jobTree, *Population) {
	n := jobTree{t, rsstest.Empty(t)}
	in := func(step string) string { return fmt.Sprintf(v1, "46", step) }
	for _, step := range []string{own, "1"} {
		n.makeDirs(in(step), os.Geteuid())
		for _, level := range []string{"", "step_" + step + "/", "step_" + step + "/task_0/"} {
			n.Write("sys/fs/cgroup/memory/slurm/uid_1/job_46/"+level+"memory.usage_in_bytes", "0\n")
		}
	}
	n.put(10, 1, "slurmstepd", in(own))
	n.put(20, 10, "rsswarden", in(own))
	n.put(21, 20, "python", in(own))
	n.put(29, 20, "rsswarden", in(own))
	n.put(30, 1, "slurmstepd", in("1"))
	n.put(31, 30, task, in("1"))
	n.put(32, 31, "python", in("1"))
	p := New(Options{Proc: n.Proc, Tree: proctree.New(n.Proc), Command: procID(21), Holder: 20, Self: 29})
	p.Name = "46"
	return n, p
}

func procID(pid int) rss.ProcID { return rss.ProcID{PID: pid, Start: uint64(pid)} }

// findUnmanaged is what goes on on the side each second.
func (p *Population) findUnmanaged(t *testing.T) {
	t.Helper()
	all, err := p.steps.find.Find()
	wardentest.NoError(t, err)
	if p.Heard() {
		t.Error("it is heard before it was found")
	}
	var set probe.Set
	p.steps.Reader = probe.New(&set, func(unmanaged) unmanaged { return p.steps.among(all) })
	p.steps.Ask(unmanaged{}, true)
	<-set.C()
	// What goes on from here waits for the next change.
	again := make(chan struct{})
	t.Cleanup(func() { close(again) })
	taken, _ := p.steps.Take()
	p.steps.Reader = probe.New(&set, func(unmanaged) unmanaged { <-again; return unmanaged{} })
	p.unmanaged, p.stale = taken, true
}

// TestStepWithRanksOnly: our own step is no step without rsswarden, though no other rank is
// in it.
func TestStepWithRanksOnly(t *testing.T) {
	n, p := ranksTree(t, "0", "python")
	for _, pid := range []int{30, 31, 32} {
		n.End(pid)
	}
	wardentest.NoError(t, os.RemoveAll(n.Path("sys/fs/cgroup/memory/slurm/uid_1/job_46/step_1")))
	p.SetRanks(Rank{Command: procID(21), Step: "0"}, nil)
	p.FindUnmanaged(new(probe.Set), n.Sys, slurm.Job{ID: "46", StepID: "0"})
	if open := p.steps.openSteps(); len(open) > 0 {
		t.Errorf("steps %v are looked at", open)
	}
	p.findUnmanaged(t)
	if procs, _, err := p.Read(); p.IsJob() || len(procs) != 1 || err != nil {
		t.Errorf("a job is watched: %v, of %d processes, %v", p.IsJob(), len(procs), err)
	}
}

// TestStepWithoutRsswarden: it is watched, and stopped with the rest. One with a rsswarden
// of its own counts, and nothing is done to it: not to that rsswarden, which would pass a
// signal on, and not to its command.
func TestStepWithoutRsswarden(t *testing.T) {
	for name, c := range map[string]struct {
		comm     string
		sameExe  bool
		excluded bool
		target   string
	}{
		"none":         {"python", false, false, "job 46 on this node"},
		"by its name":  {"rsswarden", false, true, "job 46 on this node but for step 1"},
		"by its file":  {"warden-1.0", true, true, "job 46 on this node but for step 1"},
		"another file": {"warden-1.0", false, false, "job 46 on this node"},
	} {
		t.Run(name, func(t *testing.T) {
			n, p := ranksTree(t, "batch", c.comm)
			if c.sameExe {
				for _, pid := range []int{29, 31} {
					wardentest.NoError(t, os.Symlink("/opt/warden-1.0 (deleted)", n.Path(fmt.Sprintf("proc/%d/exe", pid))))
				}
			}
			p.SetRanks(Rank{Command: procID(21), Step: "batch"}, nil)
			p.FindUnmanaged(new(probe.Set), n.Sys, slurm.Job{ID: "46", StepID: slurm.StepBatch})
			if open := p.steps.openSteps(); !slices.Equal(open, []string{"1"}) {
				t.Errorf("steps %v are looked at", open)
			}
			p.findUnmanaged(t)
			procs, _, err := p.Read()
			if err != nil || len(procs) != 3 || !p.IsJob() || p.FollowsJob() {
				t.Fatalf("%d are watched, %v", len(procs), err)
			}
			all, tasks := []rss.ProcID{procID(21)}, []rss.ProcID{procID(21)}
			if !c.excluded {
				all, tasks = append(all, procID(31), procID(32)), append(tasks, procID(31))
			}
			s := &rss.Sample{Procs: procs}
			if got := p.All(s, ""); !slices.Equal(got, all) {
				t.Errorf("a stop is for %v", got)
			}
			if got := p.Tasks(); !slices.Equal(got, tasks) {
				t.Errorf("a signal is for %v", got)
			}
			if p.Excluded(procID(32)) != c.excluded || p.Step(procID(32)) != "1" || p.Excluded(procID(21)) {
				t.Errorf("step %q, excluded %v", p.Step(procID(32)), p.Excluded(procID(32)))
			}
			if got := p.Target(""); got != c.target {
				t.Errorf("it is %s", got)
			}
			// The step has ended.
			n.End(31)
			n.End(32)
			p.unmanaged = unmanaged{}
			if procs, _, _ = p.Read(); len(procs) != 1 || p.IsJob() || p.Target("") != "the command" {
				t.Errorf("%d are watched, of %s", len(procs), p.Target(""))
			}
		})
	}
}

// TestNoUnmanagedSteps: where there are no cgroups and no batch script to look from.
func TestNoUnmanagedSteps(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	for _, step := range []string{"", "0"} {
		if s := newUnmanagedSteps(n.Proc, n.Sys, 21, 29, slurm.Job{ID: "46", StepID: step}); s != nil {
			t.Errorf("from step %q it is looked", step)
		}
	}
	s := newUnmanagedSteps(n.Proc, n.Sys, 21, 29, slurm.Job{ID: "46", StepID: slurm.StepBatch})
	if open := s.openSteps(); !slices.Equal(open, []string{"?"}) {
		t.Errorf("from the batch script: %v", open)
	}
	s.dir = n.Path("none")
	if open := s.openSteps(); open != nil {
		t.Errorf("of a job that has ended: %v", open)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
