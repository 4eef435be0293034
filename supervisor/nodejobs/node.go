// Package nodejobs finds the Slurm jobs and steps of a node in the cgroup tree, and
// reads what they are charged, what of it reclaim cannot take back, their limits,
// the processes that the OOM killer ended, and when a limit is met if things go on as
// they do. It reads files of cgroups, and the resident memory of processes where
// there is no memory cgroup, without privilege: no ptrace, no environment, no command line but
// slurmstepd's, no file of a user. Where the kernel can report OOM kills as they happen, it is
// asked to.
//
// # Where jobs are
//
// On v1 below slurm or slurm_NODE of a controller's hierarchy, as
// uid_N/job_N/step_X/task_N. On v2 below slurmstepd.scope or NODE_slurmstepd.scope of
// whatever slice, as job_N/step_X/user/task_N, where the step's limit and its
// processes are in user, and slurmstepd itself is beside it. From Slurm 26.05 on a job's
// directory has the job's SLUID for its name (CgroupJobIdPaths=yes restores the number,
// 26.05.2). The title of slurmstepd, which is in step_X/slurm, tells the number: see
// [slurm.JobOfSLUID].
//
// Where the memory controller has no directory of a job, that of another controller
// (freezer, cpuset, …) tells its processes alone: their number and the sum of their RSS.
// No limit is known then. With neither proctrack/cgroup nor
// task/cgroup there is nothing to be seen.
//
// # What a look costs
//
// A directory is listed again only when its number of links has changed, which
// is that of its subdirectories and two, or when one of them is gone: the kernel
// does not touch a cgroup's modification time when one is made below it. The counters
// of jobs and steps are read by one pread of a kept descriptor each, as far as there are
// descriptors. cgroup.procs is opened again, since a kept descriptor of v1 never shows
// new members. memory.stat, which costs ten times a counter, and cgroup.procs are left as
// they were while the charge does not change, and far from the limit for two looks of three
// while it moves by little.
//
// # OOM kills
//
// v1 counts a kill in the task where the victim was, and v2 up to the job; either count is
// gone with its directory. After [Node.Listen] the kernel reports jobs and steps that come
// and go by inotify, and kills by inotify on memory.events (v2, without privilege) or an
// eventfd for each step (v1, as root), so that the counters are read at once, and a kill
// whose counters are gone already is known all the same: [Source] says how. An eventfd
// tells before the kill, and once more when the directory is gone.
//
// A job or step that begins or ends while it is read is normal: it is left out, or
// told with what was read.
package nodejobs

import (
	"fmt"
	"math"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/cgroup"
)

// Node follows the jobs of a node. It belongs to one goroutine and keeps descriptors.
type Node struct {
	// Interval is the time between two looks, where it is known: from a forecast's growth
	// 20 of them must be there.
	Interval time.Duration

	proc, sys string
	name      string // of the node, where the tree does not say

	trees   []*tree
	version int // of the tree that is being read
	looks   int
	began   time.Time
	ended   []Ended
	buf     []byte

	real   bool // the tree that is being read is the kernel's
	files  int  // RLIMIT_NOFILE
	levels int  // jobs and steps that were measured in this look

	notices *notices // nil without notifications
	nodeKills

	lists    int // directories listed, for tests
	failures int
	failure  error
}

// New returns a follower of this node's jobs. proc and sys stand for /proc and /sys.
// name is the node's, told where a directory's name has none.
func New(proc, sys, name string) *Node {
	return &Node{proc: proc, sys: sys, name: name}
}

// controllers are those whose hierarchies of v1 may have jobs, in the order in which
// they are looked for.
var controllers = []string{"memory", "freezer", "cpuset", "cpuacct", "devices", "name=systemd"}

func (n *Node) find() error {
	all, err := cgroup.Hierarchies(n.proc, n.sys)
	if err != nil {
		return err
	}
	for _, c := range controllers {
		for _, h := range all {
			if h.Is(c) {
				n.trees = append(n.trees, &tree{1, c, &dir{path: h.Dir, name: h.Dir, kind: kindMount}, ofKernel(h.Dir)})
			}
		}
	}
	for _, h := range all {
		if h.Version == 2 {
			n.trees = append(n.trees, &tree{2, "", &dir{path: h.Dir, name: h.Dir, kind: kindSlice}, ofKernel(h.Dir)})
		}
	}
	if len(n.trees) == 0 {
		return fmt.Errorf("cannot find jobs: %s names no cgroup mount", filepath.Join(n.proc, "self", "mountinfo"))
	}
	return nil
}

// budget is how many files may be open.
func budget() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0
	}
	return int(min(lim.Cur, math.MaxInt32))
}

func ofKernel(dir string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// nodeKills is what is known of kills on the node, and whose they may be.
type nodeKills struct {
	kills   uint64 // by the node's count, as of the last look
	blind   bool   // it cannot be read
	changed bool   // it has changed since the look before, or is not known
	killed  bool   // … or had in the look before

	open   []news // what may be a kill or not
	seen   uint64 // kills of jobs that were counted in this look
	left   uint64 // kills on the node that are no job's so far
	leftAt time.Time
	doubt  bool    // the last look left kills that no job has
	lately []Ended // the last that ended
}

// news is what the kernel reported of one step, as a look takes it in.
type news struct {
	stepSeen
	at          time.Time
	base, kills uint64 // by the step's counters, before it was seen and at least by now
}
