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
// while it moves by little. There the limit is read at every third look, and the charge of
// the steps too while that of the job is the same to the byte. Where inotify tells which
// directories come and go, those of jobs are not looked at.
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
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
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

	real bool // the tree that is being read is the kernel's
	descriptors
	unmoved

	notices *notices // nil without notifications
	nodeKills

	lists    int // directories listed, for tests
	failures int
	failure  error
}

// descriptors is how many there may be, and for what.
type descriptors struct {
	files  int  // RLIMIT_NOFILE
	levels int  // jobs and steps that were measured in this look
	few    bool // … were more in the look before than can keep all of their descriptors
}

// unmoved is what a look need not read.
type unmoved struct {
	moves
	known bool // what moves does not have is as in the look before
	still bool // the job that is being updated is charged what it was
}

// moves are directories in which inotify saw one come or go since the look before, and those
// themselves. It may have missed one where all is set.
type moves struct {
	moved     map[string]bool
	all       bool
	unwatched bool // a directory above steps has no watch
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

// Snapshot is one look at all jobs.
type Snapshot struct {
	At   time.Time
	Took time.Duration
	Jobs []Job
	// Ended are the jobs that are gone since the look before.
	Ended []Ended
	// Where says what hierarchy the jobs were found in: "cgroup v2", "memory", or
	// another controller of v1. Memory says that it accounts memory. Found is false
	// where Slurm has made no directory at all.
	Where         string
	Found, Memory bool
	// Kills is how many processes of the node, in a job or not, the OOM killer ended since
	// the look before; 0 before Linux 4.13.
	Kills uint64
	// Unheard counts the steps with a memory cgroup for which the kernel does not report
	// at once that the OOM killer is at work, so that only their counters show it;
	// Why says why, if at all.
	Unheard int
	Why     error
	// Failures counts files that could not be read for another reason than that their
	// job ended; Failure is the last one.
	Failures int
	Failure  error
}

// Job is the part of a job on this node.
type Job struct {
	ID   string // a number, or the SLUID where directories are named by it and no slurmstepd tells the number
	Node string
	UID  int // -1 where the tree does not say
	Use
	Steps []Step
	// Over are steps that are gone and had kills; nothing else is known of them.
	Over []Step
	// KilledBy says how the kills are known, of all in the way that is least sure; empty
	// for none.
	KilledBy Source

	path string
	ino  uint64
}

type Step struct {
	ID string // a number, "batch", "extern", "interactive"
	Use
}

// Use is what a job or step uses and may use.
type Use struct {
	// Measured says that it has a memory cgroup; RSS is then 0, else all but RSS,
	// Processes and Since is.
	Measured bool
	// Charged is all that counts, page cache with it; Unreclaimable is what of it reclaim
	// cannot take back.
	Charged, Unreclaimable rss.Bytes
	// Used is what is compared with Limit, the least from here up to the root;
	// [cgroup.Unlimited] for none.
	Used, Limit rss.Bytes
	// OOMKills counts the processes that the OOM killer ended since we came.
	OOMKills  uint64
	Processes int
	RSS       rss.Bytes // summed over the processes

	PerSecond float64 // bytes, where Growing
	Growing   bool
	ETA       time.Duration // until Limit is met, where Forecast
	Forecast  bool

	Since time.Time     // when it was seen first
	Peak  rss.Bytes     // the most of Used that was seen
	Near  time.Duration // for how long nine tenths of Limit are used
}

// Ended is a job that is gone, as it was last seen.
type Ended struct {
	Job
	Last time.Time // when it was
	// Unseen says that no look saw it: it came and went in between. What is known is what
	// the kernel's notices tell: OOMKills at least, Since, and where they could be read
	// Limit, and Charged when memory ran out.
	Unseen bool
}

// Source says how a kill is known.
type Source string

// How kills are known, from sure to likely.
const (
	// ByCounter: oom_kill of the job's own cgroup counted them.
	ByCounter Source = "counter"
	// ByNotice: the kernel told that the step ran out of memory, the node's count rose, and
	// the cgroup was gone before its counter could be read. One kill, or more.
	ByNotice Source = "notice"
	// ByEnd: nothing could be told, the node's count rose, and this job alone ended just
	// then. One kill, or more, if it was this job's at all.
	ByEnd Source = "end"
)

// Sources lists all.
var Sources = []Source{ByCounter, ByNotice, ByEnd}

func (j *Job) stepKills(id string) uint64 {
	if s := j.step(id); s != nil {
		return s.OOMKills
	}
	return 0
}

// step finds a step, one that is gone too.
func (j *Job) step(id string) *Step {
	for _, list := range [][]Step{j.Steps, j.Over} {
		for i := range list {
			if list[i].ID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// atLeast raises the kills of a step and its job, and returns by how many.
func (j *Job) atLeast(id string, kills uint64) (more uint64) {
	s := j.step(id)
	if s == nil {
		j.Over = append(j.Over, Step{ID: id})
		s = &j.Over[len(j.Over)-1]
	}
	more = kills - min(kills, s.OOMKills)
	s.OOMKills += more
	j.OOMKills += more
	return more
}

// worse is what is less sure of two.
func worse(a, b Source) Source {
	if slices.Index(Sources, b) > slices.Index(Sources, a) {
		return b
	}
	return a
}
