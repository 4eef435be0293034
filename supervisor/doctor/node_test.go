package doctor

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestCgroup(t *testing.T) {
	for _, test := range []struct {
		archive string
		pid     int
		want    want
		hidden  bool
	}{
		{"slurm-v1", rsstest.Trainer, want{OK, "v1, /slurm", "", ""}, false},
		{"slurm-v2", rsstest.Trainer, want{OK, "memory.events tells at once", "", ""}, false},
		{"namespaced-v1", rsstest.Trainer, want{Limited, "levels above cannot be seen", "--limit", ""}, true},
		{"namespaced-v2", rsstest.Trainer, want{Limited, "levels above cannot be seen", "--limit", ""}, true},
	} {
		t.Run(test.archive, func(t *testing.T) {
			tree := rsstest.Unpack(t, "torch", test.archive)
			c, hidden := Cgroup(tree.Proc, tree.Sys, test.pid)
			test.want.check(t, c)
			if hidden != test.hidden {
				t.Errorf("hidden is %v", hidden)
			}
		})
	}
	tree := rsstest.Empty(t)
	tree.Add("-- proc/7/cgroup --\n0::/\n-- proc/self/mountinfo --\n22 1 0:21 / /proc rw - proc proc rw\n")
	c, _ := Cgroup(tree.Proc, tree.Sys, 7)
	want{Off, "no memory cgroup can be seen", "--limit", ""}.check(t, c)
	c, _ = Cgroup(tree.Proc, tree.Sys, 8)
	want{Off, "cannot read the cgroup", "--limit", ""}.check(t, c)
}

func TestKernel(t *testing.T) {
	features := []Feature{{Name: "pidfd", Since: "5.3", Err: unix.ENOSYS, Without: "SIGCHLD tells"}, {Name: "psi"}}
	got := Kernel("4.18", features)
	want{OK, "Linux 4.18", "", ""}.check(t, got[0])
	want{Limited, "not there (function not implemented; Linux 5.3 has it): SIGCHLD tells", "", ""}.check(t, got[1])
	want{OK, "there", "", ""}.check(t, got[2])
}

// TestProbeFeatures: what an old kernel's procfs lacks is seen, and a real one is
// asked without harm.
func TestProbeFeatures(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Add("-- proc/self/status --\nName:\tx\nVmRSS:\t4 kB\n")
	for _, f := range ProbeFeatures(tree.Proc) {
		if missing := strings.Contains("rss-parts smaps-rollup psi fd-count pagemap-scan procmap-query", f.Name); missing != (f.Err != nil) && (missing || f.Name == "inotify") {
			t.Errorf("%s: %v", f.Name, f.Err)
		}
	}
	for _, f := range ProbeFeatures("/proc") {
		switch {
		case f.Name == "rss-parts" && f.Err != nil, f.Name == "inotify" && f.Err != nil:
			t.Errorf("%s: %v", f.Name, f.Err)
		case f.Err != nil && !errors.Is(f.Err, errAbsent):
			var errno unix.Errno
			if !errors.As(f.Err, &errno) || errno == unix.EFAULT || errno == unix.EINVAL {
				t.Errorf("%s was asked wrongly: %v", f.Name, f.Err)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	good := Counts{MaxMaps: 65530, Files: 65536, HardFiles: 65536, FilesKnown: true, UserKnown: true, Shm: rss.MiB, ShmSize: rss.GiB}
	for _, c := range Numbers(good) {
		if c.Status != OK {
			t.Errorf("%+v", c)
		}
	}
	for _, test := range []struct {
		name   string
		change func(*Counts)
		index  int
		want   want
	}{
		{"mappings unknown", func(n *Counts) { n.MaxMaps = 0 }, 0, want{Limited, "cannot be read", "", ""}},
		{"few files", func(n *Counts) { n.Files = 1024 }, 1, want{Limited, "1024 open files a process, at most 65536", "rsswarden run --nofile 65536, or before it: ulimit -n 65536", ""}},
		{"few files, hard", func(n *Counts) { n.Files, n.HardFiles = 1024, 1024 }, 1, want{Limited, "", "greater hard limit", ""}},
		{"files without end", func(n *Counts) { n.HardFiles = 1<<64 - 1 }, 1, want{OK, "at most any number of", "", ""}},
		{"files unknown", func(n *Counts) { n.FilesKnown = false }, 1, want{Limited, "not known", "", ""}},
		{"tasks", func(n *Counts) { n.Tasks, n.MaxTasks, n.TasksFile = 79, 100, "pids.max" }, 2, want{OK, "79 of 100 in the cgroup (pids.max)", "", ""}},
		{"tasks, crowded", func(n *Counts) { n.Tasks, n.MaxTasks = 80, 100 }, 2, want{Limited, "80 of 100", "pids.max", ""}},
		{"tasks of the user", func(n *Counts) { n.UserTasks, n.MaxUser = 4000, 4096 }, 2, want{Limited, "4000 of 4096 of this user", "ulimit -u", ""}},
		{"tasks unknown", func(n *Counts) { n.UserKnown = false }, 2, want{Limited, "not known", "", ""}},
		{"shm", func(n *Counts) { n.Shm = 900 * rss.MiB }, 3, want{Limited, "900 MiB of 1.00 GiB used", "SIGBUS", ""}},
		{"no shm", func(n *Counts) { n.ShmErr = os.ErrNotExist }, 3, want{Off, "cannot be used", "have one mounted", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := good
			test.change(&n)
			test.want.check(t, Numbers(n)[test.index])
		})
	}
}

func TestParseLimits(t *testing.T) {
	const text = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             95873                unlimited            processes \n" +
		"Max open files            1024                 1048576              files     \n"
	if soft, hard, ok := ParseLimits(text, "Max open files"); soft != 1024 || hard != 1048576 || !ok {
		t.Errorf("%d %d %v", soft, hard, ok)
	}
	if soft, hard, ok := ParseLimits(text, "Max processes"); soft != 95873 || hard != 1<<64-1 || !ok {
		t.Errorf("%d %d %v", soft, hard, ok)
	}
	for _, bad := range []string{"", "Max open files", "Max open files x y\n", "Max open files 1 y\n"} {
		if _, _, ok := ParseLimits(bad, "Max open files"); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestCgroupTasks(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Add(`-- proc/7/cgroup --
0::/a/b
-- proc/self/mountinfo --
30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
-- sys/fs/cgroup/a/pids.max --
100
-- sys/fs/cgroup/a/pids.current --
90
-- sys/fs/cgroup/a/b/pids.max --
50
-- sys/fs/cgroup/a/b/pids.current --
3
`)
	tasks, most, file := CgroupTasks(tree.Proc, tree.Sys, 7)
	if tasks != 90 || most != 100 || !strings.HasSuffix(file, "/a/pids.max") {
		t.Errorf("%d of %d, %s: not the level with the least room", tasks, most, file)
	}
	if _, most, _ := CgroupTasks(tree.Proc, tree.Sys, 8); most != 0 {
		t.Error("a limit of nobody's")
	}
}

func TestPlaces(t *testing.T) {
	good := Place{Dir: "/tmp", FS: "tmpfs", Free: rss.GiB, Need: rss.MiB}
	full, broken, off, passed := good, Place{Err: errors.New("read-only")}, Place{Off: "the option"}, good
	full.Free = 0
	passed.Passed = []error{errors.New("TMPDIR=/nfs: not node-local")}
	for _, test := range []struct {
		name  string
		check func(Place) Check
		place Place
		want  want
	}{
		{"run", RunDir, good, want{OK, "/tmp, tmpfs, 1.00 GiB free", "", ""}},
		{"run, full", RunDir, full, want{Limited, "nearly full", "RSSWARDEN_RUNTIME", ""}},
		{"run, passed", RunDir, passed, want{Limited, "passed over: TMPDIR=/nfs", "RSSWARDEN_RUNTIME", ""}},
		{"run, broken", RunDir, broken, want{Off, "read-only", "RSSWARDEN_RUNTIME", ""}},
		{"run, off", RunDir, off, want{Off, "none is made", "", ""}},
		{"hook", HookDir, good, want{OK, "tmpfs", "", ""}},
		{"hook, passed", HookDir, passed, want{Limited, "each run lays it down anew", "XDG_CACHE_HOME", ""}},
		{"hook, broken", HookDir, broken, want{Off, "read-only", "XDG_CACHE_HOME", ""}},
		{"hook, off", HookDir, off, want{Off, "none is needed", "", ""}},
		{"record", Record, good, want{OK, "tmpfs", "", ""}},
		{"record, passed", Record, passed, want{OK, "passed over", "", ""}},
		{"record, broken", Record, broken, want{Off, "read-only", "--record DIR", ""}},
		{"record, off", Record, off, want{Off, "no record is kept", "auto", ""}},
		{"journal, full", Journal, full, want{Limited, "nearly full", "free some", ""}},
		{"journal, passed", Journal, passed, want{Limited, "passed over", "submit from", ""}},
		{"journal, broken", Journal, broken, want{Off, "read-only", "submit from", ""}},
	} {
		t.Run(test.name, func(t *testing.T) { test.want.check(t, test.check(test.place)) })
	}
}
