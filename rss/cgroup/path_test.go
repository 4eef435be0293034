package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func open(t *testing.T, fs rsstest.Tree, pid int) *cgroup.Path {
	t.Helper()
	p, err := cgroup.Open(fs.Proc, fs.Sys, pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, l := range p.Levels {
			l.Close()
		}
	})
	return p
}

// maxima returns the limit of every level, 0 for none.
func maxima(t *testing.T, p *cgroup.Path) map[string]rss.Bytes {
	t.Helper()
	got := map[string]rss.Bytes{}
	for _, l := range p.Levels {
		lim, err := l.Limits()
		if err != nil {
			t.Fatal(err)
		}
		if lim.Max == cgroup.Unlimited {
			lim.Max = 0
		}
		got[l.Name] = lim.Max
	}
	return got
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		archive string
		version int
		partial bool
		want    map[string]rss.Bytes
	}{
		{"slurm-v1", 1, false, map[string]rss.Bytes{
			"/slurm_n1/uid_1000/job_7/step_batch/task_0": 0,
			"/slurm_n1/uid_1000/job_7/step_batch":        700 * rss.MiB,
			"/slurm_n1/uid_1000/job_7":                   700 * rss.MiB,
			"/slurm_n1/uid_1000":                         0,
			"/slurm_n1":                                  0,
			"/":                                          0,
		}},
		{"slurm-v2", 2, false, map[string]rss.Bytes{
			"/system.slice/n1_slurmstepd.scope/job_7/step_batch/user/task_0": 0,
			"/system.slice/n1_slurmstepd.scope/job_7/step_batch/user":        770 * rss.MiB,
			"/system.slice/n1_slurmstepd.scope/job_7/step_batch":             0,
			"/system.slice/n1_slurmstepd.scope/job_7":                        770 * rss.MiB,
			"/system.slice/n1_slurmstepd.scope":                              0,
			"/system.slice":                                                  0,
		}},
		{"hybrid", 1, false, map[string]rss.Bytes{"/batch:1/job": 0, "/batch:1": rss.GiB, "/": 0}},
		{"namespaced-v1", 1, true, map[string]rss.Bytes{"/job": 0, "/": 0}},
		{"namespaced-v2", 2, true, map[string]rss.Bytes{"/": 700 * rss.MiB}},
	} {
		t.Run(c.archive, func(t *testing.T) {
			p := open(t, rsstest.Unpack(t, "torch", c.archive), rsstest.Trainer)
			if p.Version != c.version || p.Partial != c.partial {
				t.Errorf("version %d, partial %v", p.Version, p.Partial)
			}
			if d := cmp.Diff(c.want, maxima(t, p)); d != "" {
				t.Error(d)
			}
			if len(p.Levels[0].Name) < len(p.Levels[len(p.Levels)-1].Name) {
				t.Error("the leaf does not come first")
			}
		})
	}
}

// In a cgroup namespace (unshare -C) with the mounts of the host /proc names our
// group "/", and the mount begins levels above it, without their names.
func TestCgroupNamespace(t *testing.T) {
	const v1, v2 = "4:memory:", "0::"
	for _, c := range []struct {
		name, archive, group string
		root                 string // of the mount, in mountinfo
		leaf                 string // "" for none
	}{
		{"v1", "slurm-v1", v1 + "/", "/../../../../..", "/slurm_n1/uid_1000/job_7/step_batch/task_0"},
		{"v1, a group below the namespace", "slurm-v1", v1 + "/task_0", "/../../../..", "/slurm_n1/uid_1000/job_7/step_batch/task_0"},
		{"v1, a namespace beside the group", "slurm-v1", v1 + "/../task_0", "/../../../../..", "/slurm_n1/uid_1000/job_7/step_batch/task_0"},
		{"v1, the process is in no such group", "slurm-v1", v1 + "/", "/../../..", ""},
		{"v1, outside of the mount", "slurm-v1", v1 + "/../task_0", "/", ""},
		{"v2", "slurm-v2", v2 + "/", "/../../../../../..", "/system.slice/n1_slurmstepd.scope/job_7/step_batch/user/task_0"},
		{"v2, a group below the namespace", "slurm-v2", v2 + "/user/task_0", "/../../../..", "/system.slice/n1_slurmstepd.scope/job_7/step_batch/user/task_0"},
		{"v2, outside of the mount", "slurm-v2", v2 + "/../task_0", "/", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", c.archive)
			fs.Write("proc/4102/cgroup", c.group+"\n")
			if strings.HasPrefix(c.group, v1) {
				fs.Replace("proc/self/mountinfo", " / /sys/fs/cgroup/memory ", " "+c.root+" /sys/fs/cgroup/memory ")
			} else {
				fs.Replace("proc/self/mountinfo", " / /sys/fs/cgroup ", " "+c.root+" /sys/fs/cgroup ")
			}
			p, err := cgroup.Open(fs.Proc, fs.Sys, rsstest.Trainer)
			switch {
			case c.leaf == "" && !errors.Is(err, cgroup.ErrNoMemory):
				t.Errorf("%+v, %v", p, err)
			case c.leaf != "" && err != nil:
				t.Error(err)
			case c.leaf != "" && (p.Levels[0].Name != c.leaf || p.Partial):
				t.Errorf("leaf %s, partial %v, want %s", p.Levels[0].Name, p.Partial, c.leaf)
			}
		})
	}
}

// A mount that was made in a cgroup namespace has the root field "/", and is only a
// part of the hierarchy.
func TestMountOfNamespace(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	fs.Remove("sys/fs/cgroup/memory/release_agent")
	if !open(t, fs, rsstest.Trainer).Partial {
		t.Error("taken for the root")
	}
}

// Of several mounts of a hierarchy that one counts which shows most of the job's
// levels; strangers' are not looked at.
func TestMountedTwice(t *testing.T) {
	const more = "50 31 0:32 %s %s rw - cgroup cgroup rw,memory\n"
	for _, c := range []struct{ name, root, point string }{
		{"all of it elsewhere", "/", "mnt"},
		{"the part of the job", "/slurm_n1/uid_1000/job_7", "mnt"},
		{"the part of another job", "/slurm_n1/uid_1000/job_8", "mnt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v1")
			if err := os.Symlink(filepath.Join(fs.Sys, "fs/cgroup/memory", c.root), fs.Path(c.point)); err != nil {
				t.Fatal(err)
			}
			fs.Write("proc/self/mountinfo", fs.Read("proc/self/mountinfo")+fmt.Sprintf(more, c.root, fs.Path(c.point)))
			if p := open(t, fs, rsstest.Trainer); p.Mount != filepath.Join(fs.Sys, "fs/cgroup/memory") || len(p.Levels) != 6 {
				t.Errorf("%d levels below %s", len(p.Levels), p.Mount)
			}
		})
	}
}

func TestMemoryV1(t *testing.T) {
	p := open(t, rsstest.Unpack(t, "torch", "slurm-v1"), rsstest.Trainer)
	job := p.Levels[2]
	m, err := job.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if m.Anon < 200*rss.MiB || m.Unreclaimable < m.Anon || m.Unreclaimable > m.Charged-m.InactiveFile || m.LeastMax != 700*rss.MiB || m.LeastSwap != cgroup.Unlimited {
		t.Errorf("got %+v", m)
	}
	root := p.Levels[len(p.Levels)-1]
	if m, err := root.Memory(); err != nil || m.LeastMax != cgroup.Unlimited {
		t.Errorf("root: %+v, %v", m, err)
	}
	pids, err := job.Procs()
	if err != nil || !cmp.Equal(pids, []int{4100, 4101, 4102, 4103, 4104, 4105, 4106}) {
		t.Errorf("processes %v, %v", pids, err)
	}
	if n, err := job.Peak(); err != nil || n < m.Charged/2 {
		t.Errorf("peak %v, %v", n, err)
	}
}

func TestMemoryV2(t *testing.T) {
	p := open(t, rsstest.Unpack(t, "torch", "slurm-v2"), rsstest.Trainer)
	user := p.Levels[1]
	lim, err := user.Limits()
	want := cgroup.Limits{Max: 770 * rss.MiB, High: 700 * rss.MiB, Swap: 0, Soft: cgroup.Unlimited, Swappable: true}
	if err != nil || lim != want {
		t.Errorf("limits %+v, %v", lim, err)
	}
	m, err := user.Memory()
	if err != nil || m.Unreclaimable != m.Charged-(410+9+6)*rss.MiB || m.WorkingSet != m.Charged-410*rss.MiB {
		t.Errorf("got %+v, %v", m, err)
	}
}

// v1 counts an OOM kill where the victim was, v2 up to the root since Linux 5.2.
func TestEvents(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	dir := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	fs.Replace(dir+"step_batch/task_0/memory.oom_control", "oom_kill 0", "oom_kill 2")
	fs.Write(dir+"memory.failcnt", "759\n")
	e, err := open(t, fs, rsstest.Trainer).Levels[2].Events()
	if err != nil || e != (cgroup.Events{OOMKill: 2, Hit: 759}) {
		t.Errorf("v1: %+v, %v", e, err)
	}
	fs = rsstest.Unpack(t, "torch", "slurm-v2")
	dir = "sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_7/"
	fs.Write(dir+"memory.events", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 1\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e != (cgroup.Events{OOMKill: 1, Hit: 6, High: 5}) {
		t.Errorf("v2: %+v, %v", e, err)
	}
	// Before Linux 5.2 it counted where the victim was, and had no memory.events.local.
	fs.Write(dir+"memory.events", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 0\n")
	fs.Write(dir+"step_batch/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 3\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e != (cgroup.Events{OOMKill: 3, Hit: 6, High: 5}) {
		t.Errorf("v2 before Linux 5.2: %+v, %v", e, err)
	}
	fs.Write(dir+"memory.events.local", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 0\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e.OOMKill != 0 {
		t.Errorf("v2 since Linux 5.2: %+v, %v", e, err)
	}
}

// Limits are files: they are read anew, and what is missing is no limit.
func TestLimitsChange(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	job := open(t, fs, rsstest.Trainer).Levels[2]
	if lim, err := job.Limits(); err != nil || lim.Max != 700*rss.MiB || lim.Swap != cgroup.Unlimited || !lim.Swappable {
		t.Errorf("got %+v, %v", lim, err)
	}
	fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.limit_in_bytes", "104857600\n")
	fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.memsw.limit_in_bytes", "209715200\n")
	if lim, err := job.Limits(); err != nil || lim.Max != 100*rss.MiB || lim.Swap != 200*rss.MiB {
		t.Errorf("got %+v, %v", lim, err)
	}
	job = open(t, fs, rsstest.Trainer).Levels[2]
	fs.Remove("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.memsw.limit_in_bytes")
	fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.swappiness", "0\n")
	lim, err := job.Limits()
	if err != nil || lim.Max != 100*rss.MiB || lim.Swap != cgroup.Unlimited || lim.Swappable {
		t.Errorf("got %+v, %v", lim, err)
	}

	t.Run("without hierarchy", func(t *testing.T) {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.use_hierarchy", "0\n")
		job := open(t, fs, rsstest.Trainer).Levels[2]
		if lim, err := job.Limits(); err != nil || lim.Max != cgroup.Unlimited {
			t.Errorf("got %+v, %v", lim, err)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.limit_in_bytes", "\n")
		if lim, err := job.Limits(); err == nil || lim.Max != cgroup.Unlimited {
			t.Errorf("got %+v, %v", lim, err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		job := open(t, fs, rsstest.Trainer).Levels[2]
		fs.Remove("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7")
		if _, err := job.Limits(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := job.Usage(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := job.Procs(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := job.Events(); err == nil {
			t.Error("no error")
		}
	})
}

func TestNoMemoryCgroup(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	if _, err := cgroup.Open(fs.Proc, fs.Sys, rsstest.Trainer); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	fs.Write("proc/4102/cgroup", "0::/\n1:cpu:/\n")
	fs.Write("proc/4102/mountinfo", "31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n")
	fs.Write("sys/fs/cgroup/unified/cgroup.procs", "1\n")
	if _, err := cgroup.Open(fs.Proc, fs.Sys, rsstest.Trainer); !errors.Is(err, cgroup.ErrNoMemory) {
		t.Errorf("no memory controller: %v", err)
	}
	fs.Write("proc/4102/cgroup", "nonsense")
	if _, err := cgroup.Open(fs.Proc, fs.Sys, rsstest.Trainer); err == nil || errors.Is(err, cgroup.ErrNoMemory) {
		t.Errorf("malformed: %v", err)
	}
}

func TestSources(t *testing.T) {
	l := cgroup.Level{Version: 2, Dir: "/x"}
	for got, want := range map[string]string{
		l.UsageFile(): "memory.current", l.MaxFile(): "memory.max", l.SwapFile(): "memory.swap.max",
		l.HighFile(): "memory.high", l.StatFile(): "memory.stat", l.SwapUsageFile(): "memory.swap.current",
	} {
		if got != filepath.Join("/x", want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
