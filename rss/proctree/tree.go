package proctree

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// entry is what is remembered of one PID between two readings.
type entry struct {
	pid    int
	start  uint64
	parent int
	comm   string
	seen   uint64 // tick of the last listing that held it
	fresh  uint64 // tick in which start and parent were read
	old    bool   // it was outside the tree before that
	doubt  doubt  // of its parent

	*member // nil outside the tree: a node may have 10,000 processes
}

// member is what is remembered of a process in the tree.
type member struct {
	fd    int      // of statm plus 1, 0 where none is kept
	proc  rss.Proc // as stat and status said last
	pages statm    // … and statm then
	read  uint64   // tick of that, 0 for never
}

// doubt is whether the parent of a new process was not to be seen: it ended while we
// read, was listed too late, or is hidden from us. It is looked for once more.
type doubt uint8

const (
	noDoubt doubt = iota
	lookAgain
	unresolved
)

// relist is how many readings are made without a listing of /proc where no fork
// is seen: what the last PID does not show, such as a PID given back to the same
// number by a checkpoint's restore, is seen by then.
const relist = 16

// Adopter is a process that orphans of a tree become the children of: a subreaper
// above the root (PR_SET_CHILD_SUBREAPER of prctl(2)).
type Adopter struct {
	PID int
	// Root is the root below it. What is younger and a child of the adopter
	// when it is first seen is an orphan of the tree, and a member. Older
	// children came to the adopter by execve(2).
	Root rss.ProcID
	// Own is a child that is no orphan, with all that descends from it; 0 for none.
	// So is every child with one of these Names, where another may take its place.
	Own   int
	Names []string
}

// adopted says that a process is an orphan of the tree that an adopter has taken.
// One that was known before and became the adopter's child since is not: it was
// seen outside the tree.
func (r *Reader) adopted(e *entry) bool {
	a, ok := r.adopters[e.parent]
	return ok && !e.old && e.pid != a.Own && !slices.Contains(a.Names, e.comm) &&
		(e.start > a.Root.Start || e.start == a.Root.Start && e.pid > a.Root.PID)
}

// Adopt says who adopts the orphans of the trees, from the next [Reader.Trees] on.
func (r *Reader) Adopt(adopters ...Adopter) {
	clear(r.adopters)
	for _, a := range adopters {
		r.adopters[a.PID] = a
	}
}

// recheck is how many listings it takes until every PID outside the tree has been
// read again: a PID may have been given to a new process between two readings.
const recheck = 32

// Tree returns the process root and all its descendants, root first while it
// lives, then by PID: [Reader.Trees] with one root.
func (r *Reader) Tree(root rss.ProcID) ([]rss.Proc, rss.Gaps, error) {
	return r.Trees([]rss.ProcID{root})
}

// Trees returns the processes roots and all their descendants, each once: the
// first of roots first while it lives, then by PID. Start 0 in a root means
// whichever process has the PID now.
//
// Discovery is one listing of /proc plus the stat of every PID not seen before, where
// something was forked since the last. A descendant stays in the tree until it ends, even if it is
// adopted ([rss.Proc].Orphan is set while its parent is not in the tree); an orphan that was
// not seen before belongs to it where an [Adopter] took it; zombies
// stay, with RSS 0, until they are reaped. How the RSS of a process is made up,
// its name and its state may be some readings old where its sizes have not
// changed, and so may what of it is locked or pinned. Roots may come and go
// from call to call: what was in the tree of one that is left out stays there
// until it ends. Where not one is a root still, the reader forgets.
//
// The error says that /proc could not be listed, or that we had no descriptor or
// memory left to read the tree's processes: a sum without them would not mean a smaller
// tree. That a root has ended is none.
func (r *Reader) Trees(roots []rss.ProcID) ([]rss.Proc, rss.Gaps, error) {
	var gaps rss.Gaps
	var err error
	// Asked before the listing: what is forked after it shows the next time.
	list := r.forks.happened(r.f)
	list = r.take(roots) || list || r.tick >= r.listed+relist
	r.tick++
	if list {
		if r.pids, err = r.f.pids(r.pids[:0]); err != nil {
			r.forks.last = 0
			return nil, gaps, fmt.Errorf("cannot list %s: %w", r.proc, err)
		}
		r.listed = r.tick
		r.lists++
		if err := r.discover(); err != nil {
			r.forks.last = 0 // list again
			return nil, gaps, err
		}
		r.gather()
		r.unseen = 0
		if r.f.hides {
			r.unseen = r.hidden()
		}
	}
	procs, err := r.members(&gaps)
	if err != nil {
		return nil, gaps, err
	}
	r.sortTree(procs)
	gaps.Denied += r.unseen
	return procs, gaps, nil
}

// gather lists the members of the tree after a discovery, and forgets what has
// ended.
func (r *Reader) gather() {
	r.tree = r.tree[:0]
	for pid, e := range r.known {
		switch {
		case e.seen != r.tick:
			r.forget(pid)
		case e.member != nil:
			r.tree = append(r.tree, e)
		}
	}
	slices.SortFunc(r.tree, func(a, b *entry) int { return a.pid - b.pid })
}

func (r *Reader) forget(pid int) {
	e := r.known[pid]
	if e == nil {
		return
	}
	if e.member != nil && e.fd > 0 {
		syscall.Close(e.fd - 1)
		r.kept.open--
	}
	delete(r.known, pid)
}

func (r *Reader) forgetAll() {
	for pid := range r.known {
		r.forget(pid)
	}
	r.tree = nil
}

// take makes these the roots, and sees to it that all that may descend from a
// new one is read again. It reports whether they are others than before.
func (r *Reader) take(roots []rss.ProcID) bool {
	if r.rootsAre(roots) {
		return false
	}
	old := r.roots
	r.roots = make(map[int]rss.ProcID, len(roots))
	r.first = rss.ProcID{}
	stays, stale := false, false
	for i, id := range roots {
		was, had := old[id.PID]
		if had && (id.Start == 0 || id.Start == was.Start) {
			id, stays = was, true
		} else if e := r.known[id.PID]; e != nil && e.member == nil {
			stale = true
		}
		r.roots[id.PID] = id
		if i == 0 {
			r.first = id
		}
	}
	switch {
	case !stays:
		r.forgetAll()
	case stale:
		for pid, e := range r.known {
			if e.member == nil {
				r.forget(pid)
			}
		}
	}
	return true
}

// rootsAre says that these are the roots already, which is the rule.
func (r *Reader) rootsAre(roots []rss.ProcID) bool {
	if len(roots) != len(r.roots) || len(roots) == 0 || roots[0].PID != r.first.PID {
		return false
	}
	for _, id := range roots {
		if was, ok := r.roots[id.PID]; !ok || id.Start != 0 && id.Start != was.Start {
			return false
		}
	}
	return true
}

// discover reads the stat of every PID that is new or due to be looked at again, and decides
// who belongs to the tree. Its error is a [shortage].
func (r *Reader) discover() error {
	var short error
	for _, pid := range r.pids {
		e := r.known[pid]
		switch {
		case e == nil:
			e = &entry{pid: pid}
			r.known[pid] = e
		case e.member != nil, e.doubt != lookAgain && !due(pid, r.lists):
			e.seen = r.tick
			continue
		}
		e.seen = r.tick
		err := r.origin(e)
		if shortage(err) && short == nil {
			short = fmt.Errorf("cannot read process %d: %w", pid, err)
		}
		if err != nil && (Vanished(err) || shortage(err)) {
			r.forget(pid) // it is new the next time
		}
	}
	for pid, root := range r.roots {
		e := r.known[pid]
		if e == nil || e.member != nil || e.fresh != r.tick {
			continue
		}
		if root.Start == 0 {
			root.Start = e.start
			r.roots[pid] = root
			if r.first.PID == pid {
				r.first = root
			}
		}
		if e.start == root.Start {
			e.member = new(member)
		}
	}
	for _, pid := range r.pids {
		if e := r.known[pid]; e != nil && e.fresh == r.tick && e.member == nil && r.descends(e) {
			e.member = new(member)
		}
	}
	return short
}

// origin reads when a process outside the tree began and who its parent is.
func (r *Reader) origin(e *entry) error {
	b, err := r.f.read(e.pid, "stat")
	if err != nil {
		return err
	}
	s, err := parseStat(b)
	if err != nil {
		return err
	}
	if e.fresh != r.tick {
		switch same := e.fresh != 0 && e.start == s.start; {
		case !same:
			e.old, e.doubt = false, noDoubt
		case e.doubt == lookAgain:
			e.doubt = unresolved
		default:
			e.old = true
		}
	}
	e.start, e.parent, e.fresh = s.start, s.parent, r.tick
	if _, ok := r.adopters[s.parent]; ok {
		e.comm = string(s.comm)
	}
	return nil
}

func due(pid int, lists uint64) bool { return uint64(pid)%recheck == lists%recheck }

// descends walks from a process up its parents until it meets the tree, or an
// adopter of its orphans. A parent that has just ended still counts: it is in known
// until this reading is done. One that ended while we read has left its children to
// another, which their stat names by now.
func (r *Reader) descends(e *entry) bool {
	// The count ends a circle, which a torn reading could show.
	for range 2 * len(r.known) {
		if r.adopted(e) {
			return true
		}
		up := r.known[e.parent]
		switch {
		case up == nil && e.parent != 0 && e.doubt == noDoubt && !e.old:
			e.doubt, r.forks.last = lookAgain, 0
			if r.origin(e) != nil {
				return false
			}
			continue
		case up == nil, up.start > e.start:
			return false
		case up.member != nil:
			return true
		case up.fresh != r.tick:
			return false
		}
		e = up
	}
	return false
}

// Below returns the PIDs of all processes that descend from pid by parent, as
// the last Tree saw them, in and outside the tree, pid itself not included.
// Parents outside the tree may be [recheck] readings old.
func (r *Reader) Below(pid int) []int {
	below := map[int]bool{pid: true}
	var list []int
	for _, p := range r.pids {
		if r.descendsFrom(p, below) && p != pid {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// descendsFrom fills below, which holds what is known of each PID so far.
func (r *Reader) descendsFrom(pid int, below map[int]bool) bool {
	if yes, done := below[pid]; done {
		return yes
	}
	e := r.known[pid]
	if e == nil || e.parent == pid {
		return false
	}
	below[pid] = false
	yes := r.descendsFrom(e.parent, below)
	below[pid] = yes
	return yes
}

// reread is how many readings a process whose statm stays the same to the page
// goes without stat and status being read: its sizes are the same, and how its
// RSS is made up, its name or its state can have changed. The two cost ten
// times what a kept statm does.
const reread = 16

// members reads every process of the tree. Its error is a [shortage].
func (r *Reader) members(gaps *rss.Gaps) ([]rss.Proc, error) {
	var short error
	procs := make([]rss.Proc, 0, len(r.tree))
	live := r.tree[:0]
	for _, e := range r.tree {
		if err := r.member(e); err != nil {
			if shortage(err) && short == nil {
				short = fmt.Errorf("cannot read process %d: %w", e.pid, err)
			}
			count(gaps, err)
			if Vanished(err) {
				// Where another process has the PID now, it is looked at as a
				// new one in the next listing.
				r.forget(e.pid)
				continue
			}
			e.seen = 0
			live = append(live, e)
			continue
		}
		e.seen = r.tick
		live = append(live, e)
	}
	clear(r.tree[len(live):])
	r.tree = live
	for _, e := range live {
		if e.seen != r.tick {
			continue // it could not be read
		}
		orphan := r.orphaned(e)
		if orphan && !e.proc.Orphan && e.read != r.tick {
			// stat has its new parent.
			if err := r.readAll(e); err != nil {
				count(gaps, err)
				continue
			}
			orphan = r.orphaned(e)
		}
		e.proc.Orphan = orphan
		procs = append(procs, e.proc)
	}
	return procs, short
}

// orphaned says that the parent of a process is not in the tree.
func (r *Reader) orphaned(e *entry) bool {
	up := r.known[e.parent]
	return e.proc.ID != r.roots[e.pid] && (up == nil || up.member == nil || up.seen != r.tick)
}

// member brings the entry of one process of the tree up to date: by statm
// alone where that says that nothing has moved.
func (r *Reader) member(e *entry) error {
	r.keep(e)
	if e.fd == 0 {
		return r.readAll(e)
	}
	b, err := r.readStatm(e)
	if err != nil {
		return err
	}
	m, err := parseStatm(b)
	if err != nil {
		return err
	}
	stopped := e.proc.State == 'T' || e.proc.State == 't' // SIGCONT moves nothing yet
	if e.read != 0 && r.tick < e.read+reread && m == e.pages && !stopped {
		return nil
	}
	if err := r.readAll(e); err != nil {
		return err
	}
	e.pages = m
	if e.proc.State == 'Z' && e.proc.Threads > 1 {
		e.read = 0 // what a thread that lives on has is in no statm
	}
	return nil
}

// readAll reads stat and status of one process of the tree.
func (r *Reader) readAll(e *entry) error {
	p, err := r.read(e.pid, e)
	if err != nil {
		return err
	}
	if p.ID.Start != e.start {
		return errGone
	}
	p.Orphan = e.proc.Orphan
	e.parent, e.proc, e.read = p.Parent, p, r.tick
	return nil
}

// keep opens statm of a process of the tree to stay open, where it may. It is
// the right process's: it had the PID before the file was opened, and stat is
// read after.
func (r *Reader) keep(e *entry) {
	if e.fd != 0 || !r.f.real || !r.kept.room() {
		return
	}
	if fd, err := r.f.openFile(e.pid, "statm"); err == nil {
		e.fd = fd + 1
		r.kept.open++
		e.read = 0
	}
}

func (r *Reader) readStatm(e *entry) ([]byte, error) {
	if e.fd > 0 {
		return pread(e.fd-1, r.f.buf)
	}
	return r.f.read(e.pid, "statm")
}

func (r *Reader) sortTree(procs []rss.Proc) {
	slices.SortFunc(procs, func(a, b rss.Proc) int {
		switch {
		case a.ID == r.first:
			return -1
		case b.ID == r.first:
			return 1
		}
		return a.ID.PID - b.ID.PID
	})
}

// hidesOthers says that the procfs at proc is mounted with hidepid (proc(5)): it does not
// show what ptrace(2) would be refused, such as a setuid program or one that its user may
// not read. Their parents name them all the same.
func hidesOthers(proc string) bool {
	b, err := procfile.Read(proc+"/self/mountinfo", procfile.Table)
	if err != nil {
		return false
	}
	hides := false // by what is mounted last, on top
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 10 || string(f[4]) != proc {
			continue
		}
		hides = false
		for option := range bytes.SplitSeq(f[len(f)-1], []byte(",")) {
			if v, ok := bytes.CutPrefix(option, []byte("hidepid=")); ok && string(v) != "0" && string(v) != "off" {
				hides = true
			}
		}
	}
	return hides
}

// hidden counts the children of the tree's main threads that may not be looked at. What
// descends from those cannot be known.
func (r *Reader) hidden() (n int) {
	for _, e := range r.tree {
		pid := strconv.Itoa(e.pid)
		// The kernel gives out a page of it at a time, unlike the others here.
		b, err := procfile.Read(filepath.Join(r.proc, pid, "task", pid, "children"), procfile.Table)
		if err != nil {
			continue
		}
		for _, field := range bytes.Fields(b) {
			pid, err := strconv.Atoi(string(field))
			if err != nil {
				continue
			}
			if known := r.known[pid]; known != nil && known.member != nil {
				continue
			}
			_, err = r.f.read(pid, "stat")
			if Denied(err) || Vanished(err) && unix.Kill(pid, 0) != unix.ESRCH {
				n++
			}
		}
	}
	return n
}
