package nodejobs

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Links are no cgroups, whoever made them.
func TestLinks(t *testing.T) {
	s := v1Stand(t)
	s.Write("elsewhere/step_0/cgroup.procs", "1\n2\n3\n")
	top := s.Path("sys/fs/cgroup/memory/slurm/uid_1")
	for link, to := range map[string]string{
		"/job_8":        s.Path("elsewhere"),
		"/job_7/step_3": s.Path("elsewhere/step_0"),
	} {
		if err := os.Symlink(to, top+link); err != nil {
			t.Fatal(err)
		}
	}
	procs := top + "/job_7/step_0/task_0/cgroup.procs"
	if err := os.Remove(procs); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.Path("elsewhere/step_0/cgroup.procs"), procs); err != nil {
		t.Fatal(err)
	}
	s.want(s.look(),
		"host 7 uid 1: 100 of 100, limit 1000, 0 processes, 0 kills",
		"  0: 100 of 100, limit 1000, 0 processes, 0 kills")
}

// A job is told once, whatever was left behind under its name.
func TestSameJobTwice(t *testing.T) {
	s := v1Stand(t)
	s.v1("slurm/uid_0/job_7", 5, 1000, 0)
	s.v1("slurm/uid_2/job_7", 6, 1000, 0)
	s.v1("slurm_host/uid_2/job_7", 6, 1000, 0)
	s.want(s.look(),
		"host 7 uid 1: 100 of 100, limit 1000, 2 processes, 0 kills",
		"  0: 100 of 100, limit 1000, 2 processes, 0 kills")
}

func TestGarbage(t *testing.T) {
	s := v1Stand(t)
	s.v1("slurm/uid_1/job_8", 5, 1000, 0)
	dir := "sys/fs/cgroup/memory/slurm/uid_1/job_8/"
	s.Write(dir+"memory.stat", "total_rss -7\n")
	s.Write(dir+"cgroup.procs", "x\n12\n-3\n\n99999999999999\n4294967296\n")
	s.Write(dir+"memory.oom_control", "oom_kill many\n")
	snap := s.look()
	if len(snap.Jobs) != 2 || snap.Failures != 1 || snap.Failure == nil {
		t.Fatalf("%+v", snap)
	}
	if u := snap.Jobs[1].Use; u.Measured || u.Processes != 2 || u.RSS != 0 {
		t.Errorf("%+v", u)
	}
	// The other is as it was.
	if u := snap.Jobs[0].Use; !u.Measured || u.Unreclaimable != 100 || u.Processes != 2 {
		t.Errorf("%+v", u)
	}
}

// What a user makes below a step is followed so far, and no farther.
func TestDeepAndWide(t *testing.T) {
	s := v1Stand(t)
	step := "sys/fs/cgroup/memory/slurm/uid_1/job_7/step_0"
	deep := step + strings.Repeat("/d", deepest)
	s.Write(deep+"/cgroup.procs", "20\n")
	s.Write(deep+"/d/cgroup.procs", "21\n")
	for i := range mostInner + 10 {
		if err := os.Mkdir(s.Path(fmt.Sprintf("%s/task_0/x%d", step, i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if u := s.look().Jobs[0].Use; u.Processes != 3 {
		t.Errorf("%d processes, want 3", u.Processes)
	}
	// On all levels together: one of them with many each would be many times many.
	for i := range 40 {
		for k := range 200 {
			s.Write(fmt.Sprintf("%s/task_0/y%d/z%d/cgroup.procs", step, i, k), "")
		}
	}
	s.look()
	followed := func() (dirs int) {
		s.trees[0].root.each(func(*dir) { dirs++ })
		return dirs
	}
	if n := followed(); n > mostInner+10 {
		t.Errorf("%d directories are followed", n)
	}
	// Those that go make room for others.
	s.Remove(step + "/task_0")
	s.Write(step+"/task_1/cgroup.procs", "30\n31\n")
	s.look()
	if u := s.look().Jobs[0].Use; u.Processes != 3 {
		t.Errorf("%d processes, want 3", u.Processes)
	}
	if n := followed(); n > deepest+10 {
		t.Errorf("%d directories are followed of those that are gone", n)
	}
}

// Jobs that vanish and come while they are read harm nobody.
func TestChurn(t *testing.T) {
	s := v1Stand(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("slurm/uid_2/job_%d", 100+i%3)
			s.v1(name, 5, 1000, 0)
			s.v1(name+"/step_0", 5, 1000, 0, 1)
			if err := os.RemoveAll(s.Path("sys/fs/cgroup/memory/" + name)); err != nil {
				panic(err)
			}
		}
	}()
	for range 300 {
		snap := s.look()
		if len(snap.Jobs) == 0 || snap.Jobs[0].ID != "7" || snap.Jobs[0].Processes != 2 {
			t.Fatalf("job 7 is gone: %q", lines(snap))
		}
	}
	close(stop)
	wg.Wait()
	s.Remove("sys/fs/cgroup/memory/slurm/uid_2")
	s.look()
	if snap := s.look(); len(snap.Jobs) != 1 || snap.Failures != 0 {
		t.Errorf("%+v", snap)
	}
	if fds, _ := os.ReadDir("/proc/self/fd"); len(fds) > 100 {
		t.Errorf("%d descriptors are left", len(fds))
	}
}

// A step of ten thousand processes, and one of none.
func TestLongLists(t *testing.T) {
	s := v1Stand(t)
	for _, count := range []int{0, 1, 680, 819, 820, 1000, 10000} {
		var b strings.Builder
		for pid := range count {
			fmt.Fprintln(&b, 1000+pid)
		}
		s.Write("sys/fs/cgroup/memory/slurm/uid_1/job_7/step_0/task_0/cgroup.procs", b.String())
		if u := s.look().Jobs[0].Use; u.Processes != count {
			t.Errorf("%d processes, want %d", u.Processes, count)
		}
	}
}

// FuzzChild: whatever directories are called, what becomes a label is a name of Slurm's.
func FuzzChild(f *testing.F) {
	for _, name := range []string{"slurm", "slurm_n1", "n1_slurmstepd.scope", "system.slice", "uid_7", "job_7", "sEKNKTV3WPV500", "step_batch", "step_0+1", "step_-1", "job_7\n", "job_\"", "uid_99999999999"} {
		for kind := kindMount; kind <= kindInner; kind++ {
			f.Add(int(kind), name)
		}
	}
	f.Fuzz(func(t *testing.T, of int, name string) {
		if of < 0 || of > int(kindInner) || strings.Contains(name, "/") {
			return
		}
		c := (&dir{path: "/x", kind: kind(of)}).child(name)
		if c == nil {
			return
		}
		if c.kind == kindTop && c.id != "" && !IsNodeName(c.id) {
			t.Errorf("%q is node %q", name, c.id)
		}
		if (c.kind == kindJob || c.kind == kindStep || c.kind == kindUser) && (c.id == "" || strings.Trim(c.id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+") != "" || len(c.id) > 24) {
			t.Errorf("%q in a %d is %+v", name, of, c)
		}
	})
}
