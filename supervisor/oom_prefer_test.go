package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	s.view.Limits = append(s.view.Limits, event.Limit{Name: event.LimitNode, Limit: 9000}, s.level("sys/fs/cgroup/job"))
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
		{"no limit but the node's", nil, func(s *stand) { s.view.Limits = s.view.Limits[:len(s.view.Limits)-1] }, "0 0 0 0", 0},
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
			s.view.Limits = append(s.view.Limits, event.Limit{Name: event.LimitCgroup, Level: g.Dir, LimitSource: filepath.Join(g.Dir, "memory.limit_in_bytes"), Limit: 256 * rss.MiB})
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
