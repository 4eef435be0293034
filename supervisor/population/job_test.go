package population

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestJobOf: processes of extern are watched and are no task, unless that was asked for. The
// command is a task of srun's rather than the batch script, and stays so while it lives.
func TestJobOf(t *testing.T) {
	extern, task, batch := Member{ID: procID(21), Step: Extern, Task: true}, Member{ID: procID(22), Step: "0", Task: true}, Member{ID: procID(23), Step: "batch", Task: true}
	for name, c := range map[string]struct {
		asked   string
		members []Member
		before  int
		want    string // name, roots, tasks, steps, excluded
	}{
		"all":               {"", []Member{extern, task, batch}, 0, "46 [22@22 21@21 23@23] [22@22 23@23] [0 batch extern] [extern]"},
		"the command lives": {"", []Member{extern, task, batch}, 23, "46 [23@23 22@22 21@21] [23@23 22@22] [0 batch extern] [extern]"},
		"it has ended":      {"", []Member{extern, task, batch}, 24, "46 [22@22 21@21 23@23] [22@22 23@23] [0 batch extern] [extern]"},
		"no srun":           {"", []Member{extern, batch}, 0, "46 [23@23 21@21] [23@23] [batch extern] [extern]"},
		"a shell alone":     {"", []Member{extern}, 0, "46 [21@21] [] [extern] [extern]"},
		"extern":            {Extern, []Member{extern}, 0, "46.extern [21@21] [21@21] [extern] []"},
	} {
		j := jobOf("46", c.asked, c.members, rss.ProcID{PID: c.before, Start: uint64(c.before)})
		if got := fmt.Sprintln(j.Name, j.Roots, j.Tasks, j.Steps, j.Excluded); got != c.want+"\n" {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	j := jobOf("46", "", []Member{extern, task, batch}, rss.ProcID{})
	if got := fmt.Sprint(j.In("0"), j.In(Extern), j.In("1")); got != "[22@22] [21@21] []" {
		t.Errorf("in the steps are %s", got)
	}
}

func TestJobString(t *testing.T) {
	for want, steps := range map[string][]string{"step 0": {"0"}, "steps 0 and batch": {"0", "batch"}, "steps 0, 1 and batch": {"0", "1", "batch"}} {
		j := Job{Steps: steps}
		if got := j.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestFollowJob: what comes is taken in, and the last end is the end of the job. Its own
// processes are real: the end of a made-up one cannot be waited for.
func TestFollowJob(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	in := fmt.Sprintf(v1, "46", "0")
	n.makeDirs(in, os.Geteuid())
	if f, err := FollowJob(n.Proc, n.Sys, "46", "", 1); f != nil || err != nil {
		t.Fatalf("no process: %v, %v", f, err)
	}
	if _, err := FollowJob(n.Proc+"/none", n.Sys, "46", "", 1); err == nil {
		t.Error("no /proc: no error")
	}
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	wardentest.NoError(t, err)
	n.Put(rsstest.Process{PID: pid, Parent: 1, Start: start, Comm: "python", UID: user})
	n.Write(fmt.Sprintf("proc/%d/cgroup", pid), in)
	f, err := FollowJob(n.Proc, n.Sys, "46", "0", 1)
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	if j := f.Job(); j.Name != "46.0" || len(j.Roots) != 1 || j.Roots[0].PID != pid || !f.Lives() {
		t.Errorf("%+v", j)
	}
	over := make(chan struct{})
	go func() {
		f.Wait()
		close(over)
	}()
	n.put(5000001, 1, "python", in)
	wardentest.Until(t, "one that has come is taken in", func() bool { return len(f.Job().Roots) == 2 })
	n.End(pid)
	n.End(5000001)
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the end of the job is not seen")
	}
	if f.Lives() {
		t.Error("it lives")
	}
}

func TestEnvironmentOf(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	own := []string{"HOME=/root", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0", "SLURM_MEM_PER_NODE=100", "SLURM_CONF=/etc/a"}
	n.put(10, 1, "slurmstepd", "0::/\n", "SLURM_JOB_ID=99")
	n.put(11, 10, "bash", "0::/\n", own...)
	n.put(12, 11, "env", "0::/\n", "PATH=/bin")
	n.put(13, 10, "bare", "0::/\n", "PATH=/bin")
	n.put(14, 11, "other", fmt.Sprintf(v1, "47", "3"), own...)
	n.put(15, 10, "bare", fmt.Sprintf(v1, "47", "batch"), "PATH=/bin")
	n.put(16, 10, "same", fmt.Sprintf(v1, "46", "0"), own...)
	n.put(17, 10, "new", "0::/slurm/s0123456789ABC/step_0/user\n", own...)
	n.Put(rsstest.Process{PID: 18, Parent: 10, Comm: "hidden", UID: user}) // no environ: as if it were not ours
	n.Write("proc/18/cgroup", fmt.Sprintf(v1, "47", "0"))
	for _, c := range []struct {
		name           string
		pid            int
		job, step, mem string
		conf           string
		err            bool
	}{
		{"its own", 11, "46", "0", "100", "/etc/a", false},
		{"its parent's", 12, "46", "0", "100", "/etc/a", false},
		{"not slurmstepd's", 13, "", "", "", "", false},
		{"of another job than its cgroup", 14, "47", "3", "", "/etc/a", false},
		{"only its cgroup", 15, "47", "batch", "", "/site", false},
		{"as its cgroup says", 16, "46", "0", "100", "/etc/a", false},
		{"its cgroup has another name", 17, "46", "0", "100", "/etc/a", false},
		{"may not be read", 18, "47", "0", "", "/site", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours := ""
			if c.conf == "/site" {
				ours = "/site"
			}
			e := n.by(user).environment(c.pid, ours)
			for name, want := range map[string]string{"SLURM_JOB_ID": c.job, "SLURM_STEP_ID": c.step, "SLURM_MEM_PER_NODE": c.mem, "SLURM_CONF": c.conf, "HOME": ""} {
				if got, ok := e.Lookup(name); got != want || ok != (want != "") {
					t.Errorf("%s is %q (%v), want %q", name, got, ok, want)
				}
			}
			if (e.Err != nil) != c.err {
				t.Errorf("error %v", e.Err)
			}
		})
	}
}

// jobTree is a made-up node.
type jobTree struct {
	t *testing.T
	rsstest.Tree
}

// user is whose processes the tree has, and who looks at them.
const user = 1000

func (n jobTree) put(pid, parent int, comm, cgroup string, env ...string) {
	n.Put(rsstest.Process{PID: pid, Parent: parent, Start: uint64(pid), Comm: comm, UID: user})
	n.Write(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
	n.Write(fmt.Sprintf("proc/%d/environ", pid), strings.Join(env, "\x00")+"\x00")
}

// by is a viewer of the tree.
func (n jobTree) by(uid int) *viewer {
	v := newViewer(n.Proc, n.Sys)
	v.uid = uid
	return v
}

// found gives "PID:step" of each member, a * behind a task.
func found(t *testing.T, f *Finder) string {
	t.Helper()
	members, err := f.Find()
	wardentest.NoError(t, err)
	var all []string
	for _, m := range members {
		text := fmt.Sprintf("%d:%s", m.ID.PID, m.Step)
		if m.Task {
			text += "*"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// finds wants those members of what is looked for.
func finds(t *testing.T, what string, f *Finder, want string) {
	t.Helper()
	if got := found(t, f); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

const (
	v1 = "9:freezer:/slurm/uid_1/job_%[1]s/step_%[2]s\n4:memory:/slurm/uid_1/job_%[1]s/step_%[2]s/task_0\n"
	v2 = "0::/system.slice/slurmstepd.scope/job_%s/step_%s/user/task_0\n"
)

func TestFindByCgroup(t *testing.T) {
	for name, format := range map[string]string{"v1": v1, "v2": v2} {
		t.Run(name, func(t *testing.T) {
			n := jobTree{t, rsstest.Empty(t)}
			in := func(job, step string) string { return fmt.Sprintf(format, job, step) }
			n.put(1, 0, "systemd", "0::/init.scope\n")
			n.put(10, 1, "slurmstepd", in("46", "batch"))
			n.put(11, 10, "slurm_script", in("46", "batch"))
			n.put(12, 11, "srun", in("46", "batch"))
			n.put(20, 1, "slurmstepd", in("46", "0"))
			n.put(21, 20, "python", in("46", "0"))
			n.put(22, 20, "python", in("46", "0"))
			n.put(23, 21, "python", in("46", "0"))
			n.put(24, 1, "orphan", in("46", "0"))
			n.put(31, 1, "python", in("460", "0"))
			n.put(32, 1, "ssh", "0::/user.slice\n", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0")
			n.put(40, 20, "rsswarden", in("46", "0"))
			n.Put(rsstest.Process{PID: 50, Parent: 20, State: 'Z'})
			n.Write("proc/50/cgroup", in("46", "0"))

			f := newFinder(n.by(user), "46", "", 40)
			finds(t, "the job", f, "11:batch* 21:0* 22:0* 24:0* 12:batch 23:0")
			finds(t, "the batch step", newFinder(n.by(user), "46", "batch", 40), "11:batch* 12:batch")
			finds(t, "another job", newFinder(n.by(user), "47", "", 40), "")
			// A task that slurmstepd has forked and not executed yet, and one
			// that has.
			n.put(25, 20, "slurmstepd", in("46", "1"))
			found(t, f)
			n.put(25, 20, "python", in("46", "1"))
			n.put(26, 25, "python", in("46", "1"))
			n.End(21)
			finds(t, "later", f, "11:batch* 22:0* 23:0* 24:0* 25:1* 12:batch 26:1")
			// A PID that was given to a process of the job.
			n.put(31, 22, "python", in("46", "0"))
			for range recheck {
				found(t, f)
			}
			if got := found(t, f); !strings.Contains(got, "31:0") {
				t.Errorf("a PID used again is not found: %s", got)
			}
			// … and one of the job's to a process of another.
			n.put(31, 1, "sh", "0::/user.slice\n")
			n.Put(rsstest.Process{PID: 31, Parent: 1, Start: 77})
			if got := found(t, f); strings.Contains(got, "31:0") {
				t.Errorf("a stranger is taken in: %s", got)
			}
			for _, pid := range []int{11, 12, 22, 23, 24, 25, 26} {
				n.End(pid)
			}
			finds(t, "after its end", f, "")
		})
	}
}

// TestFindByOtherNames: an array's task, and a job since Slurm 26.05, have
// another name in the cgroup than people use.
func TestFindByOtherNames(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	task := []string{"SLURM_JOB_ID=47", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=3", "SLURM_STEP_ID=0"}
	n.put(21, 1, "python", fmt.Sprintf(v1, "47", "0"), task...)
	n.put(22, 21, "sh", fmt.Sprintf(v1, "47", "0"))
	n.put(31, 1, "python", "0::/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_0\n", "SLURM_JOB_ID=48", "SLURM_STEP_ID=0")
	f := newFinder(n.by(user), "46_3", "", 1)
	if got := found(t, f); got != "21:0* 22:0" || f.job != "47" {
		t.Errorf("46_3: %s, job %s", got, f.job)
	}
	finds(t, "46_4", newFinder(n.by(user), "46_4", "", 1), "")
	finds(t, "48", newFinder(n.by(user), "48", "", 1), "31:0*")
}

// TestFindByEnvironment: without proctrack/cgroup and task/cgroup.
func TestFindByEnvironment(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	n.put(10, 1, "slurmstepd", "0::/\n")
	n.put(11, 10, "slurm_script", "0::/\n", "SLURM_JOB_ID=46", "SLURMD_NODENAME=n1")
	n.put(12, 11, "python", "0::/\n", "SLURM_JOB_ID=46", "SLURMD_NODENAME=n1")
	n.put(21, 1, "python", "0::/\n", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0")
	n.put(31, 1, "bash", "0::/\n", "SLURM_JOB_ID=46") // of salloc: in no step
	n.put(32, 1, "bash", "0::/\n", "SLURM_JOB_ID=47", "SLURM_STEP_ID=0")
	finds(t, "the job", newFinder(n.by(user), "46", "", 1), "11:batch* 21:0* 12:batch")
}

// stepd puts a slurmstepd with the title that it has, where a copy of the program lies
// that is of the tree's owner.
func (n jobTree) stepd(pid int, title string, uid int) {
	n.Put(rsstest.Process{PID: pid, Parent: 1, Start: uint64(pid), Comm: "slurmstepd", UID: uid})
	n.Write(fmt.Sprintf("proc/%d/cgroup", pid), "0::/\n")
	n.Write(fmt.Sprintf("proc/%d/cmdline", pid), title+"\x00\x00")
	n.Write(fmt.Sprintf("proc/%d/environ", pid), "SLURM_CONF=/etc/slurmd.conf\x00SLURM_JOB_ID=99\x00")
	n.link(pid, "slurmstepd")
}

// makeDirs makes the directory of the job that a line of /proc/PID/cgroup names.
func (n jobTree) makeDirs(line string, owner int) {
	n.t.Helper()
	n.Write("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
	for s := range slurm.StepsOfCgroup([]byte(line)) {
		dir := n.Path("sys/fs/cgroup" + s.Dir)
		if s.Controllers != "" {
			dir = n.Path("sys/fs/cgroup/memory" + s.Dir)
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, owner, owner)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// link has a process run a program.
func (n jobTree) link(pid int, program string) {
	n.t.Helper()
	n.Write("sbin/"+program, "")
	if err := os.Symlink(n.Path("sbin/"+program), n.Path(fmt.Sprintf("proc/%d/exe", pid))); err != nil {
		n.t.Fatal(err)
	}
}

// needRoot skips what asks whether files are root's, where none can be.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for files of root's")
	}
}

// TestFindForRoot: root finds a job without cgroups below its slurmstepd alone. What a
// process says of itself, in its environment, its name or its title, does not count.
func TestFindForRoot(t *testing.T) {
	needRoot(t)
	n := jobTree{t, rsstest.Empty(t)}
	claim := []string{"SLURM_JOB_ID=46", "SLURM_STEP_ID=0", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=3"}
	n.stepd(10, "slurmstepd: [46.batch]", 0)
	n.put(11, 10, "slurm_script", "0::/\n")
	n.put(12, 11, "python", "0::/\n", "SLURM_JOB_ID=47", "SLURM_STEP_ID=7")
	n.stepd(20, "slurmstepd: [46.0]", 0)
	n.put(21, 20, "python", "0::/\n")
	n.stepd(30, "slurmstepd: [47.0]", 0)
	n.put(31, 30, "python", "0::/\n", claim...)
	n.put(41, 1, "python", "0::/\n", claim...) // of no job
	n.stepd(50, "slurmstepd: [46.0]", 1002)    // called so by another user
	n.put(51, 50, "python", "0::/\n", claim...)
	n.stepd(60, "slurmstepd: [46.0]", 0) // a set-user-ID program, started with that title
	n.Remove("proc/60/exe")
	n.link(60, "su")
	n.put(61, 60, "python", "0::/\n", claim...)
	n.stepd(70, "slurmstepd: [46.0]", 0) // of another user's making
	n.Remove("proc/70/exe")
	n.Write("tmp/slurmstepd", "")
	wardentest.NoError(t, errors.Join(os.Chown(n.Path("tmp/slurmstepd"), 1002, 1002), os.Symlink(n.Path("tmp/slurmstepd"), n.Path("proc/70/exe"))))
	n.put(71, 70, "python", "0::/\n", claim...)
	n.stepd(80, "slurmstepd: [46.0]", 0) // the link of a set-user-ID program
	n.Remove("proc/80/exe")
	n.Write("suid/slurmstepd", "")
	wardentest.NoError(t, errors.Join(os.Chmod(n.Path("suid/slurmstepd"), 0o755|os.ModeSetuid), os.Symlink(n.Path("suid/slurmstepd"), n.Path("proc/80/exe"))))
	n.put(81, 80, "python", "0::/\n", claim...)
	// The parent has ended, and a slurmstepd has its PID.
	n.stepd(91, "slurmstepd: [46.0]", 0)
	n.put(90, 91, "python", "0::/\n", claim...)
	finds(t, "46", newFinder(n.by(0), "46", "", 1), "11:batch* 21:0* 12:batch")
	for _, job := range []string{"46_3", "48"} {
		finds(t, job, newFinder(n.by(0), job, "", 1), "")
	}
	e := n.by(0).environment(12, "")
	for name, want := range map[string]string{"SLURM_JOB_ID": "46", "SLURM_STEP_ID": "batch", "SLURM_CONF": "/etc/slurmd.conf"} {
		if got, _ := e.Lookup(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if e := n.by(0).environment(41, "/site"); !errors.Is(e.Err, ErrNotBelieved) || len(e.vars) != 1 || e.vars["SLURM_CONF"] != "/site" {
		t.Errorf("of no job: %v, %v", e.vars, e.Err)
	}
}

// TestFindForRootByCgroup: for root a directory that is called as Slurm's are counts
// where it is root's.
func TestFindForRootByCgroup(t *testing.T) {
	needRoot(t)
	n := jobTree{t, rsstest.Empty(t)}
	put := func(pid int, line string, owner int) {
		n.put(pid, 1, "python", line, "SLURM_JOB_ID=46", "SLURM_STEP_ID=0")
		n.makeDirs(line, owner)
	}
	put(21, fmt.Sprintf(v2, "46", "0"), 0)
	put(22, "4:memory:/slurm/uid_1/job_46/step_batch/task_0\n", 0)
	put(31, "0::/user.slice/user-1002.slice/user@1002.service/job_46/step_0\n", 1002)
	put(32, "4:memory:/x/slurm/uid_1/job_46/step_0\n", 1002)
	n.put(33, 1, "python", "0::/nowhere/job_46/step_0\n")
	// Since Slurm 26.05 the directory has another name, which slurmstepd tells.
	const sluid = "0::/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_0\n"
	n.stepd(50, "slurmstepd: [48.0]", 0)
	put(51, sluid, 0)
	n.Put(rsstest.Process{PID: 51, Parent: 50, Start: 51, Comm: "python", UID: user})
	put(45, sluid, 0) // an orphan
	put(61, "0::/system.slice/slurmstepd.scope/sAAAAAAAAAAAAA/step_0\n", 0)
	finds(t, "46", newFinder(n.by(0), "46", "", 1), "21:0* 22:batch*")
	f := newFinder(n.by(0), "48", "", 1)
	found(t, f)
	finds(t, "48", f, "45:0* 51:0*")
}

// TestFindBySLUID: where a directory is named by a SLUID the title of its slurmstepd tells
// the job, to anybody. A task that has such a title and no more is not believed.
func TestFindBySLUID(t *testing.T) {
	needRoot(t)
	const dir = "/system.slice/slurmstepd.scope/s8ANM84T9X1C00"
	in := func(step string) string { return "0::" + dir + "/step_" + step + "/user/task_0\n" }
	n := jobTree{t, rsstest.Empty(t)}
	n.makeDirs(in("batch"), 0)
	n.stepd(20, "slurmstepd: [17.batch]", 0)
	n.Write("proc/20/cgroup", "0::"+dir+"/step_batch/slurm\n")
	n.Write("sys/fs/cgroup"+dir+"/step_batch/slurm/cgroup.procs", "20\n")
	n.put(21, 20, "python", in("batch")) // by env -i
	n.put(22, 1, "orphan", in("0"))
	n.put(30, 1, "liar", in("0"))
	n.Write("proc/30/cmdline", "slurmstepd: [99.0]\x00")
	n.Write("sys/fs/cgroup"+dir+"/step_0/user/task_0/cgroup.procs", "22\n30\n")
	for _, uid := range []int{0, user} {
		finds(t, fmt.Sprint("17 for ", uid), newFinder(n.by(uid), "17", "", 1), "21:batch* 22:0* 30:0*")
		finds(t, fmt.Sprint("99 for ", uid), newFinder(n.by(uid), "99", "", 1), "")
		e := n.by(uid).environment(22, "")
		for name, want := range map[string]string{"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"} {
			if got, _ := e.Lookup(name); got != want {
				t.Errorf("%s for %d: %q, want %q", name, uid, got, want)
			}
		}
	}
}

// TestFindNotOthers: without cgroups a user's job has that user's processes, whatever the
// environment of others says.
func TestFindNotOthers(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	n.put(21, 1, "python", "0::/\n", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0")
	finds(t, "of another user", newFinder(n.by(1002), "46", "", 1), "")
}

// TestFindNotOurs: what an exec= rule runs is no part of the job, also where
// what started it has ended.
func TestFindNotOurs(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	in := fmt.Sprintf(v1, "46", "0")
	n.put(20, 1, "slurmstepd", in)
	n.put(21, 20, "bash", in)
	n.put(40, 21, "rsswarden", in)
	n.put(41, 40, "sh", in)
	n.put(39, 41, "notify.sh", in) // its PID comes before those above it
	n.put(43, 39, "curl", in)
	f := newFinder(n.by(user), "46", "", 40)
	finds(t, "the job", f, "21:0*")
	n.End(41)
	n.put(39, 1, "notify.sh", in)
	for range 2 {
		finds(t, "an orphan of ours is taken in", f, "21:0*")
	}
}
