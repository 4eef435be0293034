package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// between reports whether b lies in [low, high] MiB.
func between(b rss.Bytes, low, high rss.Bytes) bool { return b >= low*rss.MiB && b <= high*rss.MiB }

// level opens the cgroup of a process and returns the level at dir.
func level(t *testing.T, pid int, dir string) *Level {
	t.Helper()
	p, err := Open("/proc", "/sys", pid)
	must(t, err)
	for _, l := range p.Levels {
		t.Cleanup(l.Close)
		if l.Dir == dir {
			return l
		}
	}
	t.Fatalf("no level at %s", dir)
	return nil
}

func onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var s unix.Statfs_t
	must(t, unix.Statfs(dir, &s))
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		t.Skip("the temporary directory is in memory")
	}
	return filepath.Join(dir, "data")
}

// On a real kernel: the limit is above the process, page cache fills the
// charge up to it and stays reclaimable, tmpfs and anonymous memory do not.
func TestRealCgroup(t *testing.T) {
	g := rsstest.NewGroup(t, 128*rss.MiB)
	leaf := g.Sub("task_0")
	e := rsstest.StartEater(t)
	leaf.Join(e.PID)
	l := level(t, e.PID, g.Dir)

	lim, err := l.Limits()
	if err != nil || lim.Max != 128*rss.MiB {
		t.Fatalf("limits %+v, %v", lim, err)
	}
	if own, err := level(t, e.PID, leaf.Dir).Limits(); err != nil || own.Max != Unlimited {
		t.Errorf("the leaf: %+v, %v", own, err)
	}
	pids, err := l.Procs()
	if err != nil || !slices.Equal(pids, []int{e.PID}) {
		t.Errorf("processes %v, %v", pids, err)
	}
	e.Anon(rss.MiB) // from here on its runtime is up and charged here
	before, err := l.Memory()
	must(t, err)

	// memory.stat lags behind by what each processor has counted for itself.
	read := func(met func(Memory) bool) (m Memory, err error) {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if m, err = l.Memory(); err != nil || met(m) || time.Now().After(end) {
				return m, err
			}
		}
	}
	e.Anon(20 * rss.MiB)
	m, err := read(func(m Memory) bool { return between(m.Anon.Sub(before.Anon), 19, 22) })
	if err != nil || !between(m.Unreclaimable.Sub(before.Unreclaimable), 19, 24) || !between(m.Anon.Sub(before.Anon), 19, 22) {
		t.Errorf("20 MiB of anonymous memory: %+v, before %+v, %v", m, before, err)
	}

	e.File(300*rss.MiB, onDisk(t))
	cached, err := l.Memory()
	if err != nil || cached.Charged < 110*rss.MiB {
		t.Errorf("page cache at the limit: %+v, %v", cached, err)
	}
	if grown := cached.Unreclaimable.Sub(m.Unreclaimable); grown > 8*rss.MiB {
		t.Errorf("page cache counts %v as unreclaimable: %+v", grown, cached)
	}
	usage, err := l.Usage()
	if err != nil || usage < 110*rss.MiB || usage > 128*rss.MiB {
		t.Errorf("usage %v, %v", usage, err)
	}
	events, err := l.Events()
	if err != nil || events.Hit == 0 || events.OOMKill != 0 {
		t.Errorf("events %+v, %v", events, err)
	}

	name := fmt.Sprintf("/dev/shm/rsswarden-test-%d", os.Getpid())
	t.Cleanup(func() { os.Remove(name) })
	e.File(30*rss.MiB, name)
	shm, err := read(func(m Memory) bool { return between(m.Shmem, 29, 32) })
	if err != nil || !between(shm.Unreclaimable.Sub(cached.Unreclaimable), 24, 36) || !between(shm.Shmem, 29, 32) {
		t.Errorf("30 MiB of tmpfs: %+v, before %+v, %v", shm, cached, err)
	}
}

// The OOM killer strikes for the limit above; the kill is seen there.
func TestRealOOMKill(t *testing.T) {
	g := rsstest.NewGroup(t, 64*rss.MiB)
	leaf := g.Sub("task_0")
	e := rsstest.StartEater(t)
	leaf.Join(e.PID)
	l := level(t, e.PID, g.Dir)
	if ev, err := l.Events(); err != nil || ev.OOMKill != 0 {
		t.Fatalf("events %+v, %v", ev, err)
	}
	if e.Anon(256 * rss.MiB) {
		t.Skip("256 MiB fit under a limit of 64 MiB: there is swap")
	}
	if ev, err := l.Events(); err != nil || ev.OOMKill == 0 || ev.Hit == 0 {
		t.Errorf("events %+v, %v", ev, err)
	}
}

// TestLimitsChange: limits are read again each time, and a missing file is no limit.
func TestLimitsChange(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	job := open(t, fs, rsstest.Trainer).Levels[2]
	if lim, err := job.Limits(); err != nil || lim.Max != 700*rss.MiB || lim.Swap != Unlimited || !lim.Swappable {
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
	if err != nil || lim.Max != 100*rss.MiB || lim.Swap != Unlimited || lim.Swappable {
		t.Errorf("got %+v, %v", lim, err)
	}

	t.Run("without hierarchy", func(t *testing.T) {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.use_hierarchy", "0\n")
		job := open(t, fs, rsstest.Trainer).Levels[2]
		if lim, err := job.Limits(); err != nil || lim.Max != Unlimited {
			t.Errorf("got %+v, %v", lim, err)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.limit_in_bytes", "\n")
		if lim, err := job.Limits(); err == nil || lim.Max != Unlimited {
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

// TestNoDescriptorLeft: what cannot be read for want of one is neither absent, nor no
// limit, nor empty, and is read when there is one again.
func TestNoDescriptorLeft(t *testing.T) {
	for version, files := range map[int]map[string]string{
		1: {
			"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "2000", "memory.soft_limit_in_bytes": "500", "memory.swappiness": "0",
			"memory.use_hierarchy": "1", "memory.failcnt": "3", "memory.oom_control": "oom_kill 0", "cgroup.procs": "1", "below/memory.oom_control": "oom_kill 2", "below/cgroup.procs": "2",
		},
		2: {"memory.max": "1000", "memory.swap.max": "2000", "memory.high": "900", "memory.events": "oom_kill 2", "cgroup.procs": "1", "below/cgroup.procs": "2"},
	} {
		dir := t.TempDir()
		for name, text := range files {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644))
		}
		l := &Level{Version: version, Dir: dir}
		t.Cleanup(l.Close)
		if _, err := l.Max(); err != nil { // its descriptor is kept
			t.Fatal(err)
		}
		rsstest.WithoutDescriptors(t, func() {
			_, limits := l.Limits()
			_, events := l.Events()
			_, procs := l.Procs()
			for what, err := range map[string]error{"limits": limits, "events": events, "processes": procs} {
				if !errors.Is(err, unix.EMFILE) {
					t.Errorf("v%d: %s: %v", version, what, err)
				}
			}
		})
		lim, err := l.Limits()
		if err != nil || lim.Max != 1000 || lim.Swap != 2000 || lim.Swappable != (version == 2) {
			t.Errorf("v%d: then %+v, %v", version, lim, err)
		}
		if e, err := l.Events(); err != nil || e.OOMKill != 2 {
			t.Errorf("v%d: then %+v, %v", version, e, err)
		}
		if pids, err := l.Procs(); err != nil || len(pids) != 2 {
			t.Errorf("v%d: then %v, %v", version, pids, err)
		}
	}
}

func openTasks(t *testing.T, fs rsstest.Tree) *Path {
	t.Helper()
	p, err := OpenTasks(fs.Proc, fs.Sys, rsstest.Trainer)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// limited returns current and max of every level with a limit.
func limited(t *testing.T, p *Path) map[string][2]uint64 {
	t.Helper()
	all, err := p.Tasks(nil)
	must(t, err)
	got := map[string][2]uint64{}
	for _, l := range all {
		got[l.Level.Name] = [2]uint64{l.Current, l.Max}
	}
	return got
}

func TestTasksV1(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1", "pids-v1")
	p := openTasks(t, fs)
	if len(p.Levels) != 3 {
		t.Fatalf("%+v", p)
	}
	if d := cmp.Diff(map[string][2]uint64{"/user.slice/user-1000.slice": {190, 200}}, limited(t, p)); d != "" {
		t.Error(d)
	}
	const top = "sys/fs/cgroup/pids/user.slice/"
	fs.Write(top+"pids.max", "400\n")
	fs.Write(top+"user-1000.slice/pids.current", "200\n")
	p = openTasks(t, fs) // a text tree replaces a file that is written again
	if d := cmp.Diff(map[string][2]uint64{"/user.slice/user-1000.slice": {200, 200}, "/user.slice": {213, 400}}, limited(t, p)); d != "" {
		t.Error(d)
	}
	fs.Write(top+"user-1000.slice/pids.max", "many\n")
	p = openTasks(t, fs)
	if all, err := p.Tasks(nil); err == nil || len(all) != 1 || all[0].Level.Name != "/user.slice" {
		t.Errorf("with one malformed: %+v, %v", all, err)
	}
}

// A container's view: the limit of the mount's own root is seen, and what is
// above is not.
func TestTasksNamespacedV1(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "namespaced-v1")
	if _, err := OpenTasks(fs.Proc, fs.Sys, rsstest.Trainer); !errors.Is(err, ErrNoPids) {
		t.Errorf("without the controller: %v", err)
	}
	p := openTasks(t, rsstest.Unpack(t, "torch", "namespaced-v1", "pids-namespaced"))
	if d := cmp.Diff(map[string][2]uint64{"/": {9, 64}}, limited(t, p)); d != "" {
		t.Error(d)
	}
}

// On v2 the files are beside those of memory.
func TestTasksV2(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v2")
	const top = "sys/fs/cgroup/system.slice/"
	const job = top + "n1_slurmstepd.scope/job_7/"
	for dir, max := range map[string]string{top: "9830", job: "50", job + "step_batch/": "max"} {
		fs.Write(dir+"pids.max", max+"\n")
		fs.Write(dir+"pids.current", "40\n")
	}
	const name = "/system.slice/n1_slurmstepd.scope/job_7"
	p := openTasks(t, fs)
	if d := cmp.Diff(map[string][2]uint64{name: {40, 50}, "/system.slice": {40, 9830}}, limited(t, p)); d != "" {
		t.Error(d)
	}
	fs.Remove(job)
	if _, err := openTasks(t, fs).Tasks(nil); err != nil {
		t.Error("of a job that is gone, and the levels above it are not:", err)
	}
}

// On a real kernel: a limit that is met, and that changes under kept descriptors.
func TestRealTasks(t *testing.T) {
	top := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(top); err != nil {
		top = "/sys/fs/cgroup"
	}
	dir := filepath.Join(top, "rsswarden-test-"+strconv.Itoa(os.Getpid()))
	leaf := filepath.Join(dir, "leaf")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("cannot make a cgroup:", err)
	}
	t.Cleanup(func() {
		for _, d := range []string{leaf, dir} {
			for range 200 {
				if err := os.Remove(d); err == nil || os.IsNotExist(err) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids"), 0) // v2
	must(t, os.Mkdir(leaf, 0o755))
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0); err != nil {
			t.Skip(err)
		}
	}
	write(filepath.Join(dir, "pids.max"), "40")
	// A shell that forks as many processes as it reads.
	c := rsstest.StartChild(t, exec.Command("bash", "-c", `while read -r n; do for ((i = 0; i < n; i++)); do sleep 100 <&- >&- & kids+=($!); done 2>&-; echo $n; done; kill "${kids[@]}"`))
	write(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(c.PID))
	p, err := OpenTasks("/proc", "/sys", c.PID)
	must(t, err)
	defer p.Close()
	look := func(what string, current, most uint64) {
		t.Helper()
		all, err := p.Tasks(nil)
		if err != nil || len(all) != 1 || all[0].Level.Dir != dir || all[0].Current != current || all[0].Max != most {
			t.Errorf("%s: %+v, %v", what, all, err)
		}
	}
	look("alone", 1, 40)
	c.In.Write([]byte("3\n"))
	c.Line()
	look("with three children", 4, 40)
	write(filepath.Join(dir, "pids.max"), "4")
	// bash gives up after some tries, of 1, 2, 4 … seconds.
	c.In.Write([]byte("1\n"))
	time.Sleep(200 * time.Millisecond)
	look("refused", 4, 4)
	write(filepath.Join(dir, "pids.max"), "40")
	c.Line()
}

func open(t *testing.T, fs rsstest.Tree, pid int) *Path {
	t.Helper()
	p, err := Open(fs.Proc, fs.Sys, pid)
	must(t, err)
	t.Cleanup(func() {
		for _, l := range p.Levels {
			l.Close()
		}
	})
	return p
}

// maxima returns the limit of every level, 0 for none.
func maxima(t *testing.T, p *Path) map[string]rss.Bytes {
	t.Helper()
	got := map[string]rss.Bytes{}
	for _, l := range p.Levels {
		lim, err := l.Limits()
		must(t, err)
		if lim.Max == Unlimited {
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
			p, err := Open(fs.Proc, fs.Sys, rsstest.Trainer)
			switch {
			case c.leaf == "" && !errors.Is(err, ErrNoMemory):
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
			must(t, os.Symlink(filepath.Join(fs.Sys, "fs/cgroup/memory", c.root), fs.Path(c.point)))
			fs.Write("proc/self/mountinfo", fs.Read("proc/self/mountinfo")+fmt.Sprintf(more, c.root, fs.Path(c.point)))
			if p := open(t, fs, rsstest.Trainer); p.Mount != filepath.Join(fs.Sys, "fs/cgroup/memory") || len(p.Levels) != 6 {
				t.Errorf("%d levels below %s", len(p.Levels), p.Mount)
			}
		})
	}
}

func TestNoMemoryCgroup(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	if _, err := Open(fs.Proc, fs.Sys, rsstest.Trainer); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	fs.Write("proc/4102/cgroup", "0::/\n1:cpu:/\n")
	fs.Write("proc/4102/mountinfo", "31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n")
	fs.Write("sys/fs/cgroup/unified/cgroup.procs", "1\n")
	if _, err := Open(fs.Proc, fs.Sys, rsstest.Trainer); !errors.Is(err, ErrNoMemory) {
		t.Errorf("no memory controller: %v", err)
	}
	fs.Write("proc/4102/cgroup", "nonsense")
	if _, err := Open(fs.Proc, fs.Sys, rsstest.Trainer); err == nil || errors.Is(err, ErrNoMemory) {
		t.Errorf("malformed: %v", err)
	}
}

func TestParseGroups(t *testing.T) {
	got, err := parseGroups([]byte("0::/user.slice\n7:memory,hugetlb:/batch:1/job (deleted)\n1:name=systemd:/\n"))
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if g := got[0]; !g.unified() {
		t.Errorf("v2: %+v", g)
	}
	if g := got[1]; g.path != "/batch:1/job" || !slices.Contains(g.controllers, "memory") || g.unified() {
		t.Errorf("memory: %+v", g)
	}
	if g := got[2]; slices.Contains(g.controllers, "memory") || g.unified() {
		t.Errorf("systemd: %+v", g)
	}
	for _, in := range []string{"0:", "0::relative", "x"} {
		if g, err := parseGroups([]byte(in)); err == nil {
			t.Errorf("%q: got %+v", in, g)
		}
	}
}

func TestParseMounts(t *testing.T) {
	got, err := parseMounts([]byte(`35 31 0:32 /a\040b /sys/fs/cgroup/mem\011ory\134x rw shared:1 master:2 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 none rw
37 31 0:34 / /data rw - ext4 /dev/sda rw
cut off
`))
	want := []Hierarchy{
		{root: "/a b", Dir: "/sys/fs/cgroup/mem\tory\\x", Version: 1, Controllers: []string{"rw", "memory"}},
		{root: "/", Dir: "/sys/fs/cgroup/unified", Version: 2},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Hierarchy{})); d != "" || err != nil {
		t.Error(err, d)
	}
	if got, err := parseMounts([]byte("nothing here\n")); err == nil {
		t.Errorf("got %+v", got)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		root, name string
		unnamed    int
		want       string
		ok         bool
	}{
		{"/", "/a/b", 0, "/a/b", true},
		{"/", "/", 0, "/", true},
		{"/docker/x", "/docker/x", 0, "/", true},
		{"/docker/x", "/docker/x/job", 0, "/job", true},
		{"/docker/x", "/docker/xy", 0, "", false},
		{"/docker/x", "/", 0, "", false},
		// In a cgroup namespace, by a mount from outside …
		{"/../..", "/", 2, "/", true},
		{"/../..", "/a", 2, "/a", true},
		{"/../..", "/../a", 1, "/a", true},
		{"/../..", "/../../a", 0, "/a", true},
		{"/../../x", "/../../x/y", 0, "/y", true},
		{"/../x", "/", 0, "", false},
		{"/../x", "/a", 0, "", false},
		{"/..", "/..a", 1, "/..a", true},
		// … and a process that is outside of what the mount shows.
		{"/", "/..", 0, "", false},
		{"/", "/../other", 0, "", false},
		{"/..", "/../../other", 0, "", false},
		{"/docker/x", "/../other", 0, "", false},
	} {
		if unnamed, got, ok := within(c.root, c.name); unnamed != c.unnamed || got != c.want || ok != c.ok {
			t.Errorf("%s below %s: %d, %q, %v", c.name, c.root, unnamed, got, ok)
		}
	}
}

func FuzzParseGroups(f *testing.F) {
	f.Add([]byte("4:memory:/a\n0::/b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		groups, _ := parseGroups(b)
		for _, g := range groups {
			if !strings.HasPrefix(g.path, "/") {
				t.Errorf("%+v from %q", g, b)
			}
			if _, below, ok := within("/x", g.path); ok && !strings.HasPrefix(below, "/") {
				t.Errorf("%q from %q", below, b)
			}
		}
	})
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(`35 31 0:32 / /a\040b rw - cgroup cgroup rw,memory`))
	f.Fuzz(func(t *testing.T, b []byte) {
		mounts, _ := parseMounts(b)
		for _, m := range mounts {
			if m.Version != 1 && m.Version != 2 {
				t.Errorf("%+v from %q", m, b)
			}
		}
	})
}

// TestNoDescriptorOnTheWay: a part is not the whole.
func TestNoDescriptorOnTheWay(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o755))
	rsstest.WithoutDescriptors(t, func() {
		if err := walk(dir, func(string) {}); !errors.Is(err, unix.EMFILE) {
			t.Errorf("got %v", err)
		}
	})
}

func TestHierarchies(t *testing.T) {
	fs := rsstest.Unpack(t, "slurm-v1")
	all, err := Hierarchies(fs.Proc, fs.Sys)
	if err != nil || !slices.ContainsFunc(all, func(h Hierarchy) bool { return h.Version == 1 && h.Is("memory") && !h.Is("") }) {
		t.Errorf("%+v, %v", all, err)
	}
}
