package population

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
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
	p := New(Options{Proc: n.Proc, Tree: proctree.New(n.Proc), Command: procID(21), Holder: 20, Self: 29, Names: []string{"rss-watcher"}})
	p.Name = "46"
	if s := p.sample(t); len(s.Procs) != 1 {
		t.Errorf("alone: %d", len(s.Procs))
	}
	other := Rank{Command: procID(41), Step: "0", Holder: 40, Watcher: 49}
	p.SetRanks(Rank{Command: procID(21), Step: "0"}, []Rank{other, other})
	n.put(60, 40, "orphan", "0::/\n")
	n.put(61, 40, "rss-watcher", "0::/\n")
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
