package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

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
