package nodejobs

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	name      string // of the node, where the tree does not tell

	trees   []*tree
	version int // of the tree that is being read
	looks   int
	began   time.Time
	ended   []Ended
	buf     []byte

	kills   uint64 // on the node, as of the last look
	changed bool   // it has changed since the look before, or is not known
	killed  bool   // … or had in the look before

	real   bool // the tree that is being read is the kernel's
	files  int  // RLIMIT_NOFILE
	levels int  // jobs and steps that were measured in this look

	notices *notices // nil where the kernel was not asked to tell
	open    []news   // what may be a kill or not
	left    uint64   // kills on the node that are no job's so far
	leftAt  time.Time
	seen    uint64  // kills of jobs that were counted in this look
	blind   bool    // the node's count is not to be had
	doubt   bool    // the last look left kills that are nobody's
	lately  []Ended // the last that ended

	lists    int // directories listed, for tests
	failures int
	failure  error
}

// tree is one hierarchy that may have directories of Slurm.
type tree struct {
	version    int
	controller string // of v1
	root       *dir
	real       bool // the kernel's, and no files that stand for it
}

// New returns a follower of this node's jobs. proc and sys stand for /proc and /sys.
// name is the node's, told where a directory's name has none.
func New(proc, sys, name string) *Node {
	return &Node{proc: proc, sys: sys, name: name}
}

// controllers are those whose hierarchies of v1 may have jobs, in the order in which
// they are looked for.
var controllers = []string{"memory", "freezer", "cpuset", "cpuacct", "devices", "name=systemd"}

// find lists the hierarchies.
func (n *Node) find() error {
	all, err := cgroup.Hierarchies(n.proc, n.sys)
	if err != nil {
		return err
	}
	for _, c := range controllers {
		for _, h := range all {
			if h.Version == 1 && h.Has(c) {
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

// Look reads all jobs. now has a monotonic reading.
func (n *Node) Look(now time.Time) (Snapshot, error) {
	if n.trees == nil {
		if err := n.find(); err != nil {
			return Snapshot{}, err
		}
	}
	if n.looks == 0 {
		n.began, n.files = now, budget()
		if n.notices != nil {
			n.files -= n.files / share
		}
	}
	began := time.Now()
	snap := Snapshot{At: now}
	n.failures, n.failure, n.levels, n.seen = 0, nil, 0, 0
	n.looks++
	// Where nothing was killed on the whole node, nothing was in any job.
	kills, ok := n.nodeKills()
	// The kernel counts a kill for the node a little before it does for the cgroup.
	before := n.changed
	n.changed = !ok || n.looks == 1 || kills != n.kills
	n.killed = n.changed || before
	if n.looks > 1 && n.Hears() {
		// What is told has been counted. What is nobody's then may be that of a directory
		// below a step that has a limit of its own.
		n.killed = n.doubt
	}
	if n.looks > 1 && kills > n.kills {
		snap.Kills = kills - n.kills
	}
	n.kills, n.blind = kills, !ok
	fresh := n.notices.collect(kills, ok)
	n.noteAll(fresh, false)
	var top *dir
	// The first tree that has a job has them all: those of other controllers are the same.
	for _, t := range n.trees {
		n.version, n.real = t.version, t.real
		n.refresh(t.root)
		n.noteAll(fresh, true)
		found, jobs := n.readTree(t, now)
		snap.Found = snap.Found || found
		if found && snap.Where == "" || len(jobs) > 0 {
			snap.Where, snap.Jobs, top = t.where(), jobs, t.root
		}
		if len(jobs) > 0 {
			break
		}
	}
	snap.Memory = slices.ContainsFunc(snap.Jobs, func(j Job) bool { return j.Measured })
	snap.Ended, n.ended = n.ended, nil
	for i := range snap.Ended {
		snap.Ended[i].Last = now
	}
	if n.notices != nil {
		n.conclude(&snap, fresh, now)
	}
	snap.Unheard, snap.Why = n.notices.unheard(jobsOf(top))
	snap.Failures, snap.Failure = n.failures, n.failure
	snap.Took = time.Since(began)
	return snap, nil
}

// noteAll notes what was counted.
func (n *Node) noteAll(fresh []news, listed bool) {
	for i := range fresh {
		if t := &fresh[i]; t.by == ByCounter {
			n.note(t, listed)
		}
	}
}

// jobsOf are the directories of jobs.
func jobsOf(top *dir) (jobs []*dir) {
	if top == nil {
		return nil
	}
	top.each(func(d *dir) {
		if d.kind == kindJob {
			jobs = append(jobs, d)
		}
	})
	return jobs
}

func (t *tree) where() string {
	if t.version == 2 {
		return "cgroup v2"
	}
	return t.controller
}

// budget is how many files may be open.
func budget() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0
	}
	return int(min(lim.Cur, math.MaxInt32))
}

// ofKernel says that a directory is one of the kernel's cgroups.
func ofKernel(dir string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// readTree reads all jobs of a tree. found says that Slurm has made a directory in it.
func (n *Node) readTree(t *tree, now time.Time) (found bool, jobs []Job) {
	var walk func(d *dir, node string, uid int, bound rss.Bytes)
	walk = func(d *dir, node string, uid int, bound rss.Bytes) {
		switch d.kind {
		case kindTop:
			found = true
			if d.id != "" {
				node = d.id
			}
		case kindUser:
			uid, _ = strconv.Atoi(d.id)
		case kindJob:
			if j, ok := n.job(d, node, uid, bound, now); ok {
				jobs = append(jobs, j)
			}
			return
		}
		if d.kind <= kindUser && t.version == 2 && len(d.kids) > 0 {
			bound = min(bound, n.ceiling(d))
		}
		for _, c := range d.kids {
			walk(c, node, uid, bound)
		}
	}
	walk(t.root, n.name, -1, cgroup.Unlimited)
	slices.SortFunc(jobs, func(a, b Job) int {
		if c := strings.Compare(a.Node, b.Node); c != 0 {
			return c
		}
		if c := compareIDs(a.ID, b.ID); c != 0 {
			return c
		}
		return b.Processes - a.Processes
	})
	// A directory that was left behind may have the name of a job that runs: the one
	// with processes is meant.
	jobs = slices.CompactFunc(jobs, func(a, b Job) bool { return a.Node == b.Node && a.ID == b.ID })
	return found, jobs
}

// ceiling is the limit of a level above all jobs, v2 alone: v1 tells of it in each
// level below.
func (n *Node) ceiling(d *dir) rss.Bytes {
	l := cgroup.Level{Version: 2, Dir: d.path}
	defer l.Close()
	lim, err := l.Limits()
	if err != nil { // the root has none
		return cgroup.Unlimited
	}
	return lim.Max
}

// Close gives the descriptors back.
func (n *Node) Close() {
	n.notices.close()
	n.notices = nil
	for _, t := range n.trees {
		t.root.each(func(d *dir) {
			if d.group != nil && d.group.level != nil {
				d.group.level.Close()
			}
		})
	}
	n.trees = nil
}
