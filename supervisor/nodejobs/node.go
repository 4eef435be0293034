package nodejobs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/slurm"
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

	real   bool // the tree that is being read is the kernel's
	files  int  // RLIMIT_NOFILE
	levels int  // jobs and steps that were measured in this look

	notices *notices // nil where the kernel was not asked to tell
	nodeKills

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
	kills, ok := n.readNodeKills()
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

// kind is what a directory of the cgroup tree is to Slurm.
type kind int

const (
	kindMount kind = iota // of v1
	kindSlice             // the mount of v2, and slices
	kindTop               // of all jobs of a node: slurm_NODE, NODE_slurmstepd.scope
	kindUser              // uid_N, of v1
	kindJob
	kindStep
	kindInner // whatever is below a step
)

// Bounds on what is followed: below a step directories may be its user's (v1 before
// Slurm 23.11), and whoever makes very many would have us read them all.
const (
	deepest   = 16   // levels below a step
	maxInner  = 4096 // directories below a step, on all levels
	maxSlices = 4    // levels of slices
)

// dir is one directory that is followed.
type dir struct {
	path, name string
	kind       kind
	id         string // of a node, user, job or step
	depth      int    // below the mount, or below the step
	ino, links uint64 // as of the last listing
	kids       []*dir
	inner      *int // of a step and all below it: how many directories that are
	freshAt    int  // the look in which it was brought up to date

	group   *group          // of a job and of a step
	procs   int             // processes of its own, as of the last time they were counted
	countAt int             // the look from which on they are counted again where there were none
	kills   uint64          // v1: the directory's own count
	gone    uint64          // v1: the counts of directories below that are no more
	told    uint64          // of a step: its count as the kernel's notice had it read
	lost    map[string]lost // of a job: steps that are gone, by their IDs
}

// child says what a subdirectory is, nil for one that is not followed.
func (d *dir) child(name string) *dir {
	c := &dir{name: name, path: filepath.Join(d.path, name), kind: kindInner, depth: d.depth + 1}
	ok := true
	switch d.kind {
	case kindMount:
		c.kind = kindTop
		c.id, ok = strings.CutPrefix(name, "slurm")
		if ok && c.id != "" {
			c.id, ok = strings.CutPrefix(c.id, "_")
		}
	case kindSlice:
		c.kind = kindTop
		if c.id, ok = strings.CutSuffix(name, "slurmstepd.scope"); ok {
			if c.id != "" {
				c.id, ok = strings.CutSuffix(c.id, "_")
			}
			break
		}
		c.kind, ok = kindSlice, strings.HasSuffix(name, ".slice") && c.depth <= maxSlices
	case kindTop, kindUser:
		if uid, isUser := strings.CutPrefix(name, "uid_"); isUser && d.kind == kindTop {
			_, err := strconv.ParseUint(uid, 10, 32)
			c.kind, c.id, ok = kindUser, uid, err == nil
			break
		}
		c.kind = kindJob
		c.id, ok = slurm.JobOfDir(name)
	case kindJob:
		c.kind, c.depth = kindStep, 0
		c.id, ok = slurm.StepOfDir(name)
		c.inner = new(int)
	default:
		c.inner = d.inner
		ok = c.depth <= deepest
	}
	if !ok || c.kind == kindTop && c.id != "" && !IsNodeName(c.id) {
		return nil
	}
	return c
}

// IsNodeName recognizes what Slurm may call a node.
func IsNodeName(name string) bool {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-_.", rune(c)) {
			return false
		}
	}
	return name != "" && len(name) <= 255
}

// update brings a directory and all below it up to date, but for what is below a step that
// is there as before: that is looked at where the step has changed. It returns false where
// the directory is gone, or another one has its name.
func (n *Node) update(d *dir) bool {
	return d.kind == kindStep && n.lives(d) || n.refresh(d)
}

// lives reports whether a step is surely there: a kept descriptor of a cgroup that is gone
// gives ENODEV. The charge that was read is that of this look.
func (n *Node) lives(d *dir) bool {
	g := d.group
	if !n.real || g == nil || !g.kept || !g.use.Measured {
		return false
	}
	charged, err := g.level.Usage()
	if err != nil {
		return false
	}
	g.charged, g.chargedAt = charged, n.looks
	return true
}

// refresh is update by the directory itself, whatever it is.
func (n *Node) refresh(d *dir) bool {
	var st unix.Stat_t
	if err := unix.Lstat(d.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	if d.ino != 0 && d.ino != st.Ino {
		return false
	}
	// What the file system does not count, or only for its own kind, is listed again.
	listed := d.ino == 0 || uint64(st.Nlink) != d.links || st.Nlink < 2
	d.ino, d.links, d.freshAt = st.Ino, uint64(st.Nlink), n.looks
	if listed {
		n.list(d)
	}
	if n.updateKids(d) && !listed {
		// One ended and perhaps one began: the number of links may be the same.
		n.list(d)
		n.updateKids(d)
	}
	return true
}

// updateKids updates what is below a directory, and drops what is gone.
func (n *Node) updateKids(d *dir) (lost bool) {
	d.kids = slices.DeleteFunc(d.kids, func(c *dir) bool {
		if n.update(c) {
			return false
		}
		lost = true
		n.drop(d, c)
		return true
	})
	return lost
}

// list adds the subdirectories that are new. One that is in both lists stays: if
// it is another by now, update finds out.
func (n *Node) list(d *dir) {
	if d.links == 2 { // a leaf
		return
	}
	n.lists++
	// What cannot be listed has nothing to follow; a directory that goes meanwhile gives
	// what was read of it.
	entries, _ := os.ReadDir(d.path)
	known := make(map[string]bool, len(d.kids))
	for _, c := range d.kids {
		known[c.name] = true
	}
	for _, e := range entries {
		if !e.IsDir() || known[e.Name()] {
			continue
		}
		if d.inner != nil && *d.inner >= maxInner {
			break
		}
		if c := d.child(e.Name()); c != nil {
			d.kids = append(d.kids, c)
			if d.inner != nil {
				*d.inner++
			}
		}
	}
	slices.SortFunc(d.kids, func(a, b *dir) int { return compareIDs(a.name, b.name) })
}

// compareIDs orders names as people do: job_9 before job_10.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// each calls do for a directory and all below it.
func (d *dir) each(do func(*dir)) {
	do(d)
	for _, c := range d.kids {
		c.each(do)
	}
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
	// Unheard counts the steps with a memory cgroup of which the kernel does not tell at
	// once that the OOM killer is at work in them, so that only their counters can tell;
	// Why says why, if at all.
	Unheard int
	Why     error
	// Failures counts files that could not be read for another reason than that their
	// job ended; Failure is the last one.
	Failures int
	Failure  error
}

// Job is a job as it stands on this node.
type Job struct {
	ID   string // a number, or the SLUID where directories are named by it and no slurmstepd tells the number
	Node string
	UID  int // -1 where the tree does not tell
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

// Step is a step of a job.
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
