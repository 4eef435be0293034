package nodejobs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// stand is a node made of files, and a clock.
type stand struct {
	rsstest.Tree
	*Node
	t   *testing.T
	now time.Time
}

func newStand(t *testing.T, tree rsstest.Tree) *stand {
	s := &stand{Tree: tree, Node: New(tree.Proc, tree.Sys, "host"), t: t, now: time.Now()}
	t.Cleanup(s.Node.Close)
	return s
}

// archive unpacks a file of testdata.
func archive(t *testing.T, name string) rsstest.Tree {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
	must(t, err)
	tree := rsstest.Empty(t)
	tree.Add(string(b))
	return tree
}

// look is the look 10 seconds later.
func (s *stand) look() Snapshot {
	s.t.Helper()
	s.now = s.now.Add(10 * time.Second)
	snap, err := s.Scan(s.now)
	must(s.t, err)
	return snap
}

// lines says of a snapshot what tests compare: one line a job and step.
func lines(snap Snapshot) []string {
	var out []string
	say := func(what string, u *Use) {
		limit := "none"
		if u.Limit != cgroup.Unlimited {
			limit = fmt.Sprint(uint64(u.Limit))
		}
		if !u.Measured {
			out = append(out, fmt.Sprintf("%s: %d processes, RSS %d", what, u.Processes, uint64(u.RSS)))
			return
		}
		out = append(out, fmt.Sprintf("%s: %d of %d, limit %s, %d processes, %d kills", what, uint64(u.Unreclaimable), uint64(u.Charged), limit, u.Processes, u.OOMKills))
	}
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		say(fmt.Sprintf("%s %s uid %d", j.Node, j.ID, j.UID), &j.Use)
		for k := range j.Steps {
			say("  "+j.Steps[k].ID, &j.Steps[k].Use)
		}
	}
	return out
}

func (s *stand) want(snap Snapshot, want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, lines(snap)); diff != "" {
		s.t.Errorf("want -, got +:\n%s", diff)
	}
}

// v1 writes the files of one directory of v1's memory hierarchy.
func (s *stand) v1(name string, anon, limit uint64, kills int, pids ...int) {
	dir := "sys/fs/cgroup/memory/" + name + "/"
	s.Write(dir+"memory.usage_in_bytes", fmt.Sprintln(anon))
	s.Write(dir+"memory.limit_in_bytes", fmt.Sprintln(limit))
	s.Write(dir+"memory.stat", fmt.Sprintf("total_rss %d\nhierarchical_memory_limit %d\n", anon, limit))
	s.Write(dir+"memory.oom_control", fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills))
	var b strings.Builder
	for _, pid := range pids {
		fmt.Fprintln(&b, pid)
	}
	s.Write(dir+"cgroup.procs", b.String())
}

// v1Stand is a node of v1 with one job, 7, of one step, that has two processes.
func v1Stand(t *testing.T) *stand {
	s := newStand(t, rsstest.Empty(t))
	s.Write("proc/self/mountinfo", "40 31 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
	s.v1("slurm/uid_1/job_7", 100, 1000, 0)
	s.v1("slurm/uid_1/job_7/step_0", 100, 1000, 0)
	s.v1("slurm/uid_1/job_7/step_0/task_0", 100, 1000, 0, 10, 11)
	return s
}

var must = wardentest.NoError

func TestTreesOfRealSlurm(t *testing.T) {
	for version, limit := range map[string]rss.Bytes{"slurm-v1": 700 * rss.MiB, "slurm-v2": 770 * rss.MiB} {
		s := newStand(t, rsstest.Unpack(t, "torch", version))
		snap := s.look()
		if len(snap.Jobs) != 1 || !snap.Memory || snap.Failures > 0 {
			t.Fatalf("%s: %+v", version, snap)
		}
		j := snap.Jobs[0]
		if j.ID != "7" || j.Node != "n1" || j.Limit != limit || len(j.Steps) != 1 || j.Steps[0].ID != "batch" || j.Processes == 0 || j.Unreclaimable == 0 || j.Unreclaimable >= j.Charged {
			t.Errorf("%s: %+v", version, j)
		}
		if st := j.Steps[0]; st.Limit != limit || st.Processes != j.Processes {
			t.Errorf("%s: %+v", version, st)
		}
		if version == "slurm-v1" && j.UID != 1000 {
			t.Errorf("uid %d", j.UID)
		}
	}
}

func TestNamesOfJobs(t *testing.T) {
	s := newStand(t, archive(t, "v2"))
	uid := os.Getuid()
	if uid == 0 {
		uid = -1 // root's directories say nothing
	}
	s.want(s.look(),
		fmt.Sprintf("n1 41 uid %d: 349000000 of 500000000, limit 1048576000, 4 processes, 0 kills", uid),
		"  0+1: 1000 of 1000, limit 1048576000, 1 processes, 0 kills",
		"  batch: 380000000 of 400000000, limit 524288000, 3 processes, 0 kills",
		"n1 42 uid -1: 10 of 10, limit 3145728000, 0 processes, 0 kills",
		fmt.Sprintf("n1 sEKNKTV3WPV500 uid %d: 20 of 20, limit 3145728000, 1 processes, 0 kills", uid),
		"  extern: 1 processes, RSS 0",
		"n2 7 uid -1: 30 of 30, limit none, 0 processes, 0 kills",
	)
}

// Without memory cgroups there is no limit, and none is made up.
func TestFreezerAlone(t *testing.T) {
	s := newStand(t, archive(t, "freezer"))
	snap := s.look()
	page := os.Getpagesize()
	s.want(snap,
		fmt.Sprintf("host 5 uid 1000: 4 processes, RSS %d", 500*page),
		"  0: 1 processes, RSS 0",
		fmt.Sprintf("  batch: 3 processes, RSS %d", 500*page))
	if snap.Memory || snap.Where != "freezer" || !snap.Found {
		t.Errorf("%+v", snap)
	}
}

func TestNoSlurm(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	tree.Write("sys/fs/cgroup/user.slice/cgroup.procs", "1\n")
	s := newStand(t, tree)
	if snap := s.look(); snap.Found || len(snap.Jobs) > 0 {
		t.Errorf("%+v", snap)
	}
	tree.Write("proc/self/mountinfo", "")
	if _, err := New(tree.Proc, tree.Sys, "").Scan(time.Now()); err == nil {
		t.Error("no mount, and no error")
	}
}

func TestJobsComeAndGo(t *testing.T) {
	s := v1Stand(t)
	s.look()
	listed := s.lists
	s.look()
	if s.lists != listed {
		t.Errorf("%d directories were listed where nothing had changed", s.lists-listed)
	}
	s.v1("slurm/uid_1/job_7/step_1", 50, 1000, 0, 12)
	s.v1("slurm/uid_2/job_10", 5, 1000, 0)
	s.v1("slurm/uid_1/job_9", 5, 1000, 0)
	s.want(s.look(),
		"host 7 uid 1: 100 of 100, limit 1000, 3 processes, 0 kills",
		"  0: 100 of 100, limit 1000, 2 processes, 0 kills",
		"  1: 50 of 50, limit 1000, 1 processes, 0 kills",
		"host 9 uid 1: 5 of 5, limit 1000, 0 processes, 0 kills",
		"host 10 uid 2: 5 of 5, limit 1000, 0 processes, 0 kills")
	// One ends and one begins: as many directories as before.
	s.Remove("sys/fs/cgroup/memory/slurm/uid_1/job_9")
	s.v1("slurm/uid_1/job_11", 6, 1000, 0)
	s.Remove("sys/fs/cgroup/memory/slurm/uid_2")
	snap := s.look()
	if len(snap.Jobs) != 2 || snap.Jobs[1].ID != "11" {
		t.Errorf("%q", lines(snap))
	}
	if len(snap.Ended) != 2 || snap.Ended[0].ID != "9" || snap.Ended[1].ID != "10" || snap.Ended[1].Unreclaimable != 5 {
		t.Errorf("%+v", snap.Ended)
	}
	if again := s.look(); len(again.Ended) != 0 {
		t.Errorf("told twice: %+v", again.Ended)
	}
}

// A job that was requeued onto the same node is another one.
func TestSameNameAnotherJob(t *testing.T) {
	s := v1Stand(t)
	first := s.look()
	dir := s.Path("sys/fs/cgroup/memory/slurm/uid_1/job_7")
	must(t, os.Rename(dir, s.Path("aside"))) // keeps the inode from being used again
	s.v1("slurm/uid_1/job_7", 7, 1000, 0)
	snap := s.look()
	if len(snap.Ended) != 1 || len(snap.Jobs) != 1 || snap.Jobs[0].Unreclaimable != 7 || !snap.Jobs[0].Since.After(first.Jobs[0].Since) {
		t.Errorf("%+v", snap)
	}
}

// A user's directory that was removed and made again, while another's went, is listed.
func TestSameUserAnotherDirectory(t *testing.T) {
	s := v1Stand(t)
	s.v1("slurm/uid_2/job_8", 100, 1000, 0)
	s.look()
	dir := "sys/fs/cgroup/memory/slurm/"
	must(t, os.Rename(s.Path(dir+"uid_1"), s.Path("aside"))) // keeps the inode from being used again
	s.Remove(dir + "uid_2")
	s.v1("slurm/uid_1/job_9", 7, 1000, 0)
	s.want(s.look(), "host 9 uid 1: 7 of 7, limit 1000, 0 processes, 0 kills")
}

func TestKills(t *testing.T) {
	s := v1Stand(t)
	s.v1("slurm/uid_1/job_7/step_0/task_0", 100, 1000, 3, 10, 11)
	if u := s.look().Jobs[0].Use; u.OOMKills != 0 {
		t.Errorf("%d kills, all from before we came", u.OOMKills)
	}
	s.v1("slurm/uid_1/job_7/step_0/task_0", 100, 1000, 4, 10)
	s.v1("slurm/uid_1/job_7/step_1/task_0", 100, 1000, 2, 12) // began and was hit since the last look
	s.v1("slurm/uid_1/job_7/step_1", 100, 1000, 0)
	s.want(s.look(),
		"host 7 uid 1: 100 of 100, limit 1000, 2 processes, 3 kills",
		"  0: 100 of 100, limit 1000, 1 processes, 1 kills",
		"  1: 100 of 100, limit 1000, 1 processes, 2 kills")
	s.Remove("sys/fs/cgroup/memory/slurm/uid_1/job_7/step_1")
	s.want(s.look(),
		"host 7 uid 1: 100 of 100, limit 1000, 1 processes, 3 kills",
		"  0: 100 of 100, limit 1000, 1 processes, 1 kills")
}

// Where nothing was killed on the node, no job's counter is read.
func TestKillsOfTheNode(t *testing.T) {
	s := v1Stand(t)
	s.Write("proc/vmstat", "pgfault 7\noom_kill 5\n")
	s.look()
	s.look()
	s.v1("slurm/uid_1/job_7/step_0/task_0", 100, 1000, 1, 10)
	if u := s.look().Jobs[0].Use; u.OOMKills != 0 {
		t.Errorf("%d kills", u.OOMKills)
	}
	if s.Killed() {
		t.Error("killed, and the count is as it was")
	}
	s.Write("proc/vmstat", "pgfault 7\noom_kill 6\n")
	if !s.Killed() {
		t.Error("the count has changed")
	}
	if snap := s.look(); snap.Jobs[0].OOMKills != 1 || snap.Kills != 1 {
		t.Errorf("%d kills, %d of the node, want 1", snap.Jobs[0].OOMKills, snap.Kills)
	}
	if u := s.look().Jobs[0].Use; u.OOMKills != 1 {
		t.Errorf("%d kills, want 1 still", u.OOMKills)
	}
}

// A step whose charge stays the same to the byte is looked into now and then, and at once
// when it changes.
func TestQuietStep(t *testing.T) {
	s := v1Stand(t)
	s.Write("proc/vmstat", "oom_kill 0\n")
	processes := func() int { return s.look().Jobs[0].Steps[0].Processes }
	for range 3 {
		processes()
	}
	s.v1("slurm/uid_1/job_7/step_0/task_1", 0, 1000, 0, 12)
	late := 0
	for ; processes() != 3; late++ {
		if late > recount {
			t.Fatal("a new task is never seen")
		}
	}
	if late == 0 {
		t.Error("all is read again at each look")
	}
	s.v1("slurm/uid_1/job_7/step_0/task_2", 0, 1000, 0, 13, 14)
	s.v1("slurm/uid_1/job_7/step_0", 120, 1000, 0)
	if n := processes(); n != 5 {
		t.Errorf("%d processes, want 5", n)
	}
	// What changes by little, far from the limit, is read in full in each third look, and its
	// charge in each.
	s.v1("slurm/uid_1/job_7/step_0/task_2", 0, 1000, 0, 13)
	s.v1("slurm/uid_1/job_7/step_0", 121, 1000, 0)
	late = 0
	for ; ; late++ {
		st := s.look().Jobs[0].Steps[0]
		if st.Charged != 121 || st.Unreclaimable != 121 {
			t.Errorf("%+v", st)
		}
		if st.Processes == 4 {
			break
		}
		if late > easyEach {
			t.Fatal("a small change is never looked into")
		}
	}
	if late == 0 {
		t.Error("all is read again at each look")
	}
	// A limit that is lowered is seen at the third look, and a charge at it is never taken for
	// quiet.
	s.v1("slurm/uid_1/job_7/step_0", 101, 110, 0)
	for late = 0; s.look().Jobs[0].Steps[0].Limit != 110; late++ {
		if late == easyEach {
			t.Fatal("a lower limit is never seen")
		}
	}
	s.Replace("sys/fs/cgroup/memory/slurm/uid_1/job_7/step_0/memory.stat", "total_rss 101", "total_rss 1\ntotal_inactive_file 100")
	if u := s.look().Jobs[0].Steps[0].Use; u.Limit != 110 || u.Unreclaimable != 1 {
		t.Errorf("%+v", u)
	}
}

// v2 before Linux 5.2 counts a kill where the victim was, as v1 does, and has no
// memory.events.local.
func TestKillsOfOldV2(t *testing.T) {
	const job = "sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_41/"
	for _, c := range []struct {
		name string
		at   []string // of the kill
		new  bool
	}{
		{"before 5.2", []string{"step_batch/user/task_0/"}, false},
		{"since", []string{"step_batch/user/task_0/", "step_batch/user/", "step_batch/", ""}, true},
	} {
		s := newStand(t, archive(t, "v2"))
		for _, dir := range []string{"", "step_batch/", "step_batch/user/", "step_batch/user/task_0/"} {
			s.Write(job+dir+"memory.events", "oom_kill 0\n")
			if c.new {
				s.Write(job+dir+"memory.events.local", "oom_kill 0\n")
			}
		}
		s.look()
		for _, dir := range c.at {
			s.Write(job+dir+"memory.events", "oom_kill 1\n")
		}
		j := s.look().Jobs[0]
		if i := slices.IndexFunc(j.Steps, func(st Step) bool { return st.ID == "batch" }); j.OOMKills != 1 || i < 0 || j.Steps[i].OOMKills != 1 {
			t.Errorf("%s: %+v", c.name, j)
		}
	}
}

// TestNumberOfSLUID: a job whose directory is named by a SLUID is reported by its number, once
// its slurmstepd has the title, and stays so when that step has ended.
func TestNumberOfSLUID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("directories must be root's")
	}
	s := newStand(t, archive(t, "v2"))
	const dir = "/system.slice/n1_slurmstepd.scope/sEKNKTV3WPV500/step_extern/slurm"
	s.Put(rsstest.Process{PID: 901, Parent: 1, Comm: "slurmstepd"})
	s.Write("proc/901/cmdline", "/usr/sbin/slurmstepd\x00")
	s.Write("proc/901/cgroup", "0::"+dir+"\n")
	s.Write("sys/fs/cgroup"+dir+"/cgroup.procs", "901\n")
	ids := func() (ids []string) {
		for _, j := range s.look().Jobs {
			ids = append(ids, j.ID)
		}
		return ids
	}
	if got := ids(); !slices.Contains(got, "sEKNKTV3WPV500") || slices.Contains(got, "17") {
		t.Errorf("before it has its title: %v", got)
	}
	s.Write("proc/901/cmdline", "slurmstepd: [17.extern]\x00")
	if got := ids(); !slices.Contains(got, "17") || slices.Contains(got, "sEKNKTV3WPV500") {
		t.Errorf("with it: %v", got)
	}
	s.Remove("sys/fs/cgroup" + dir + "/cgroup.procs")
	if got := ids(); !slices.Contains(got, "17") {
		t.Errorf("after that step: %v", got)
	}
}

// TestWhatIsReadOfProcesses: of all that /proc has of a process only its size is opened, and
// only where no cgroup has its memory: a daemon of root reads no name, command line or
// environment that a user has chosen.
func TestWhatIsReadOfProcesses(t *testing.T) {
	for name, want := range map[string][]string{"v1": nil, "v2": nil, "freezer": {"statm"}} {
		t.Run(name, func(t *testing.T) {
			var s *stand
			if name == "v1" {
				s = v1Stand(t)
			} else {
				s = newStand(t, archive(t, name))
			}
			for pid := 1; pid < 150; pid++ { // more than the steps have
				s.Put(rsstest.Process{PID: pid, Comm: "x", Anon: rss.MiB})
				for _, file := range []string{"comm", "cmdline", "environ", "cgroup"} {
					s.Write(fmt.Sprintf("proc/%d/%s", pid, file), "x")
				}
			}
			watch := watchOpens(t, s.Proc)
			for range 3 {
				s.look()
			}
			var got []string
			for path := range watch() {
				if pid, file, ok := strings.Cut(path, "/"); ok && strings.Trim(pid, "0123456789") == "" && !slices.Contains(got, file) {
					got = append(got, file)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q was opened of processes, want %q", got, want)
			}
		})
	}
}

// watchOpens tells which files below a directory are opened until it is asked.
func watchOpens(t *testing.T, root string) func() map[string]bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	dirs := map[int32]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		wd, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
		dirs[int32(wd)], _ = filepath.Rel(root, path)
		return err
	})
	must(t, err)
	return func() map[string]bool {
		opened := map[string]bool{}
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil || n <= 0 {
				return opened
			}
			for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
				size := int(binary.NativeEndian.Uint32(b[12:]))
				name := bytes.TrimRight(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00")
				if len(name) > 0 {
					opened[fmt.Sprintf("%s/%s", dirs[int32(binary.NativeEndian.Uint32(b))], name)] = true
				}
				b = b[unix.SizeofInotifyEvent+size:]
			}
		}
	}
}

// TestLinks: links are no cgroups.
func TestLinks(t *testing.T) {
	s := v1Stand(t)
	s.Write("elsewhere/step_0/cgroup.procs", "1\n2\n3\n")
	top := s.Path("sys/fs/cgroup/memory/slurm/uid_1")
	for link, to := range map[string]string{
		"/job_8":        s.Path("elsewhere"),
		"/job_7/step_3": s.Path("elsewhere/step_0"),
	} {
		must(t, os.Symlink(to, top+link))
	}
	procs := top + "/job_7/step_0/task_0/cgroup.procs"
	must(t, os.Remove(procs))
	must(t, os.Symlink(s.Path("elsewhere/step_0/cgroup.procs"), procs))
	s.want(s.look(),
		"host 7 uid 1: 100 of 100, limit 1000, 0 processes, 0 kills",
		"  0: 100 of 100, limit 1000, 0 processes, 0 kills")
}

// TestSameJobTwice: a job is listed once, whatever was left behind under its name.
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
	for i := range maxInner + 10 {
		must(t, os.Mkdir(s.Path(fmt.Sprintf("%s/task_0/x%d", step, i)), 0o755))
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
	if n := followed(); n > maxInner+10 {
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

// TestChurn: jobs that come and go while they are read do not disturb the others.
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
