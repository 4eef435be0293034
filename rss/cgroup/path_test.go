package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

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
