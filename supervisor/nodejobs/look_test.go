package nodejobs

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

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
	if _, err := New(tree.Proc, tree.Sys, "").Look(time.Now()); err == nil {
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
	if err := os.Rename(dir, s.Path("aside")); err != nil { // keeps the inode from being used again
		t.Fatal(err)
	}
	s.v1("slurm/uid_1/job_7", 7, 1000, 0)
	snap := s.look()
	if len(snap.Ended) != 1 || len(snap.Jobs) != 1 || snap.Jobs[0].Unreclaimable != 7 || !snap.Jobs[0].Since.After(first.Jobs[0].Since) {
		t.Errorf("%+v", snap)
	}
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
		t.Error("all is read anew at each look")
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
		t.Error("all is read anew at each look")
	}
	// A limit that is lowered, and a charge that stands at it, are never taken for quiet.
	s.v1("slurm/uid_1/job_7/step_0", 101, 110, 0)
	s.look()
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
