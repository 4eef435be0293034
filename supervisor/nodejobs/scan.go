package nodejobs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
)

// Scan reads all jobs. now has a monotonic reading.
func (n *Node) Scan(now time.Time) (Snapshot, error) {
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
	n.few = n.levels*perLevel+spare > n.files
	n.failures, n.failure, n.levels, n.seen = 0, nil, 0, 0
	n.looks++
	// Where nothing was killed on the whole node, nothing was in any job.
	kills, ok := n.readNodeKills()
	// The kernel counts a kill for the node a little before it does for the cgroup.
	before := n.changed
	n.changed = !ok || n.looks == 1 || kills != n.kills
	n.killed = n.changed || before
	if n.looks > 1 && n.Hears() {
		// What the kernel reported has been counted. A kill that is left may be of a directory
		// below a step that has a limit of its own.
		n.killed = n.doubt
	}
	if n.looks > 1 && kills > n.kills {
		snap.Kills = kills - n.kills
	}
	n.kills, n.blind = kills, !ok
	fresh := n.notices.collect(kills, ok)
	n.noteAll(fresh, false)
	moved := n.notices.changes()
	var top *dir
	// The first tree that has a job has them all: those of other controllers are the same.
	for _, t := range n.trees {
		n.version, n.real = t.version, t.real
		n.moves, n.known = moved, !moved.all && n.notices.root.path == t.root.path
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
	var dirs []*dir // of jobs
	if top != nil {
		top.each(func(d *dir) {
			if d.kind == kindJob {
				dirs = append(dirs, d)
			}
		})
	}
	snap.Unheard, snap.Why = n.notices.unheard(dirs)
	snap.Failures, snap.Failure = n.failures, n.failure
	snap.Took = time.Since(began)
	return snap, nil
}

func (n *Node) noteAll(fresh []news, listed bool) {
	for i := range fresh {
		if t := &fresh[i]; t.by == ByCounter {
			n.note(t, listed)
		}
	}
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

// ceiling is the limit of a level above all jobs, v2 alone: v1 shows it in each
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

// Listen has the kernel report OOM kills from now on, beside what looks find. [Node.Told]
// then yields when a look would find news. An error says why there are no reports;
// looks are as good as without.
func (n *Node) Listen() error {
	if n.trees == nil {
		if err := n.find(); err != nil {
			return err
		}
	}
	for _, t := range n.trees {
		if t.version == 1 && t.controller == "memory" || t.version == 2 {
			kills, _ := n.readNodeKills()
			var err error
			n.notices, err = listen(t, n.proc, n.name, budget()/share, kills)
			return err
		}
	}
	return errors.New("cannot watch OOM kills: no hierarchy accounts memory")
}

// Told yields when [Node.Scan] would find a kill that the kernel has reported.
func (n *Node) Told() <-chan struct{} {
	if n.notices == nil {
		return nil
	}
	return n.notices.wake
}

// Hears says that the kernel reports kills in all present steps, so that a kill on the node
// without a report is in none.
func (n *Node) Hears() bool {
	if n.notices == nil {
		return false
	}
	n.notices.mu.Lock()
	defer n.notices.mu.Unlock()
	return n.notices.deaf == 0
}

// Killed says that the OOM killer has ended a process of the node since the last look, or
// had when that came, whosever it was. A step takes its count with it when it ends, in
// tens of milliseconds where it was small: to learn of it, look again as
// soon as this is so. It takes 40 µs; before Linux 4.13 it is never so.
func (n *Node) Killed() bool {
	kills, ok := n.readNodeKills()
	if ok && n.notices != nil {
		n.notices.mu.Lock()
		n.notices.counted(kills)
		n.notices.mu.Unlock()
	}
	return ok && n.looks > 0 && (kills != n.kills || n.changed && n.looks > 1)
}

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

// update brings a directory and all below it up to date, but for what is below a step that
// is there as before: that is looked at where the step has changed. It returns false where
// the directory is gone, or another one has its name.
func (n *Node) update(d *dir) bool {
	switch d.kind {
	case kindJob:
		n.still = false
		if n.stays(d) {
			return true
		}
	case kindStep:
		if n.lives(d) {
			return true
		}
	}
	return n.refresh(d)
}

// stays reports whether a job is there with the steps of the look before, by inotify.
func (n *Node) stays(d *dir) bool {
	g := d.group
	if !n.known || n.moved[d.path] || d.ino == 0 || g == nil {
		return false
	}
	was, wasAt := g.charged, g.chargedAt
	if !n.real || !g.recharge(n.looks) {
		return false
	}
	n.still = wasAt == n.looks-1 && g.charged == was && g.charged.Of(g.use.Limit) < easy
	d.freshAt = n.looks
	return !n.updateKids(d)
}

// lives reports whether a step is surely there. The charge is that of this look, or of one
// of the two before where that of its job has not changed by a byte since.
func (n *Node) lives(d *dir) bool {
	g := d.group
	if g != nil && n.still && g.use.Measured && g.chargedAt == n.looks-1 && n.looks-g.readAt < easyEach && g.charged.Of(g.use.Limit) < easy {
		g.chargedAt = n.looks
		return true
	}
	return n.real && g != nil && g.recharge(n.looks)
}

// recharge reads the charge of a job or step in a look: a kept descriptor of a cgroup that is
// gone gives ENODEV.
func (g *group) recharge(look int) bool {
	if !g.kept || !g.use.Measured {
		return false
	}
	charged, err := g.level.Usage()
	if err != nil {
		return false
	}
	g.charged, g.chargedAt, g.readAt = charged, look, look
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
	if n.updateKids(d) {
		// One ended and perhaps one began, of the same name too: the number of links may be the same.
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

// read returns the contents of a file, valid until the next call. What is longer
// than a node can have PIDs is cut.
func (n *Node) read(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if n.buf == nil {
		n.buf = make([]byte, 4<<10)
	}
	for have := 0; ; {
		got, err := unix.Read(fd, n.buf[have:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		}
		have += got
		// The kernel hands out what its page holds: less than half of one is the end.
		if got < 2<<10 && have < len(n.buf) {
			return n.buf[:have], nil
		}
		if have == len(n.buf) {
			if have >= 64<<20 {
				return n.buf, nil
			}
			n.buf = append(n.buf, make([]byte, have)...)
		}
	}
}

// processes counts the processes of a directory itself, and calls do, if given, for
// each. A process that our PID namespace does not show has the number 0.
func (n *Node) processes(d *dir, do func(pid int)) int {
	text, err := n.read(d.path + "/cgroup.procs")
	if err != nil { // it ended, or is a threaded group of v2
		return 0
	}
	count := 0
	var pids []int // do may read another file into the same buffer
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSuffix(line, []byte("\n")); !isPID(line) {
			continue
		}
		if count++; do != nil {
			pid, _ := strconv.Atoi(string(line))
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		do(pid)
	}
	return count
}

func isPID(line []byte) bool {
	for _, c := range line {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(line) > 0 && len(line) < 11
}

// resident reads the RSS of a process, the second number of statm, in pages
// (proc_pid_statm(5)); 0 for one that ended or is not shown.
func (n *Node) resident(pid int) rss.Bytes {
	if pid == 0 {
		return 0
	}
	text, err := n.read(filepath.Join(n.proc, strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 48)
	if err != nil {
		return 0
	}
	return rss.Bytes(pages) * rss.Bytes(os.Getpagesize())
}

// readNodeKills reads how many processes the OOM killer has ended on the node, in whatever
// cgroup: "oom_kill N" of /proc/vmstat (Linux 4.13).
func (n *Node) readNodeKills() (kills uint64, ok bool) {
	return n.killsIn(filepath.Join(n.proc, "vmstat"))
}

func (n *Node) killsIn(name string) (kills uint64, ok bool) {
	text, err := n.read(name)
	if err != nil {
		return 0, false
	}
	return oomKill(text)
}
