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
