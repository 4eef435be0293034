package supervisor

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
)

// inStep puts a process into a step of job 46.
func (s *stand) inStep(step string, p rsstest.Process) {
	s.fs.Put(p)
	s.fs.Write(fmt.Sprintf("proc/%d/cgroup", p.PID), fmt.Sprintf("4:memory:/slurm/uid_1/job_46/step_%s/task_0\n", step))
	for _, level := range []string{"", "step_" + step + "/", "step_" + step + "/task_0/"} {
		s.fs.Write(jobDir+level+"memory.usage_in_bytes", "0\n")
	}
}

// leadingInSlurm is a stand that leads in a step of job 46, below slurmstepd.
func leadingInSlurm(t *testing.T, step string) *stand {
	s := leading(t, inJob(t, 0, runtimeDir(t), "SLURM_STEP_ID="+step))
	s.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n")
	s.inStep(step, rsstest.Process{PID: theHolder, Parent: 20, Start: 4, Comm: "rsswarden"})
	s.inStep(step, rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "python", Anon: 100 * rss.MiB})
	return s
}

// lookForStrangers is what goes on on the side each second.
func (s *stand) lookForStrangers() strangeTasks {
	s.t.Helper()
	x := s.peers.job.strangers
	if x == nil {
		s.t.Fatal("nobody looks for steps without rsswarden")
	}
	all, err := x.find.Find()
	if err != nil {
		s.t.Fatal(err)
	}
	found := x.strange(all)
	hand := probetest.New[strangeTasks, strangeTasks](&s.probes)
	x.Reader = hand.Reader
	x.Ask(strangeTasks{}, true)
	hand.Answer(s.t, found)
	if !s.heardProbes() {
		s.t.Fatal("what was found is not taken")
	}
	return found
}

// TestOwnStepIsNoStranger: our own step is no step without rsswarden, though
// nobody else is in it.
func TestOwnStepIsNoStranger(t *testing.T) {
	s := leadingInSlurm(t, "0")
	s.open(s.holder.begin)
	s.takeLead()
	if open := s.peers.job.strangers.openSteps(); len(open) > 0 {
		t.Errorf("steps %v are looked at", open)
	}
	if found := s.lookForStrangers(); len(found.tasks) > 0 {
		t.Errorf("found %+v", found)
	}
	if s.ofJob() || len(s.last.Procs) != 1 {
		t.Errorf("a job is watched: %v, of %d processes", s.ofJob(), len(s.last.Procs))
	}
}

// TestStepWithoutRsswarden: it is watched, and stopped with the rest.
func TestStepWithoutRsswarden(t *testing.T) {
	s := leadingInSlurm(t, "batch")
	s.inStep("1", rsstest.Process{PID: worker1, Parent: 30, Start: 11, Comm: "python", Anon: 50 * rss.MiB})
	s.open(s.holder.begin)
	s.takeLead()
	if open := s.peers.job.strangers.openSteps(); !slices.Equal(open, []string{"1"}) {
		t.Errorf("steps %v are looked at", open)
	}
	s.lookForStrangers()
	if got := s.watchedRSS(); got < 150*rss.MiB {
		t.Errorf("%v are watched", got)
	}
	if all := s.toKill(&s.last, ""); len(all) != 2 {
		t.Errorf("a stop is for %v", all)
	}
	if s.target("") != "job 46 on this node" {
		t.Errorf("it is %s", s.target(""))
	}
}

// TestStepWithItsOwnRsswarden: its memory counts, and nothing is done to it: not to
// that rsswarden, which would pass a signal on, and not to its command.
func TestStepWithItsOwnRsswarden(t *testing.T) {
	for name, known := range map[string]func(*stand){
		"by its name": func(s *stand) {
			s.inStep("1", rsstest.Process{PID: worker1, Parent: 30, Start: 11, Comm: "rsswarden"})
		},
		"by its program": func(s *stand) {
			s.inStep("1", rsstest.Process{PID: worker1, Parent: 30, Start: 11, Comm: "warden-1.0"})
			s.fs.Write(fmt.Sprintf("proc/%d/stat", s.Self), "")
			for _, pid := range []int{worker1, s.Self} {
				if err := os.MkdirAll(s.fs.Path(fmt.Sprintf("proc/%d", pid)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("/opt/warden-1.0 (deleted)", s.fs.Path(fmt.Sprintf("proc/%d/exe", pid))); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := leadingInSlurm(t, "batch")
			known(s)
			s.inStep("1", rsstest.Process{PID: worker2, Parent: worker1, Start: 12, Comm: "python", Anon: 50 * rss.MiB})
			s.open(s.holder.begin)
			s.takeLead()
			s.lookForStrangers()
			if got := s.watchedRSS(); got < 150*rss.MiB {
				t.Errorf("%v are watched", got)
			}
			if all := s.toKill(&s.last, ""); len(all) != 1 || all[0].PID != theCommand {
				t.Errorf("a stop is for %v", all)
			}
			if all := s.tops(); len(all) != 1 || all[0].PID != theCommand {
				t.Errorf("a signal is for %v", all)
			}
			for _, id := range []rss.ProcID{{PID: worker1, Start: 11}, {PID: worker2, Start: 12}} {
				if err := s.kill(id, syscall.Signal(0)); err == nil || err.Error() != fmt.Sprintf("cannot signal process %v: the step 1 is spared", id) {
					t.Errorf("signal: %v", err)
				}
			}
			if s.target("") != "job 46 on this node but for step 1" {
				t.Errorf("it is %s", s.target(""))
			}
			if !slices.Equal(s.job.Kept, []string{"1"}) {
				t.Errorf("kept %v", s.job.Kept)
			}
		})
	}
}
