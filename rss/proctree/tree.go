package proctree

import (
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
)

// entry is what is remembered of one PID between two readings.
type entry struct {
	start  uint64
	parent int
	comm   string
	member bool
	seen   uint64 // tick of the last listing that held it
	fresh  uint64 // tick in which start and parent were read

	// sizes is the last status, parts what stat said with it.
	sizes status
	parts [2]rss.Bytes // rss, virtual
	sized uint64       // tick in which sizes was read, 0 for never
}

// resize is how many readings a process whose RSS and virtual size stay the
// same to the page goes without its status being read: only how its RSS is
// made up can have changed. status costs twice what stat does.
const resize = 8

// current says that the sizes still hold.
func (e *entry) current(s stat, tick uint64) bool {
	return e.sized != 0 && tick < e.sized+resize && e.parts == [2]rss.Bytes{s.rss, s.virtual}
}

// recheck is how many ticks it takes until every PID outside the tree has been
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
// Discovery is one listing of /proc plus the stat of every PID not seen
// before. A descendant stays in the tree until it ends, whoever adopts it
// ([rss.Proc].Orphan is set while its parent is not in the tree); zombies
// stay, with RSS 0, until they are reaped. How the RSS of a process is made up
// may be some readings old where its sum has not changed. Roots may come and go
// from call to call: what was in the tree of one that is left out stays there
// until it ends. Where not one is a root still, the reader forgets.
//
// The error says that /proc could not be listed. That a root has ended is none.
func (r *Reader) Trees(roots []rss.ProcID) ([]rss.Proc, rss.Gaps, error) {
	var gaps rss.Gaps
	var err error
	if r.pids, err = r.f.pids(r.pids[:0]); err != nil {
		return nil, gaps, fmt.Errorf("cannot list %s: %w", r.proc, err)
	}
	r.take(roots)
	r.tick++
	r.discover()
	procs := r.members(&gaps)
	for pid, e := range r.known {
		if e.seen != r.tick {
			delete(r.known, pid)
		}
	}
	r.sortTree(procs)
	return procs, gaps, nil
}

// take makes these the roots, and sees to it that all that may descend from a
// new one is read again.
func (r *Reader) take(roots []rss.ProcID) {
	if r.rootsAre(roots) {
		return
	}
	old := r.roots
	r.roots = make(map[int]rss.ProcID, len(roots))
	r.first = rss.ProcID{}
	stays, stale := false, false
	for i, id := range roots {
		was, had := old[id.PID]
		if had && (id.Start == 0 || id.Start == was.Start) {
			id, stays = was, true
		} else if e := r.known[id.PID]; e != nil && !e.member {
			stale = true
		}
		r.roots[id.PID] = id
		if i == 0 {
			r.first = id
		}
	}
	switch {
	case !stays:
		clear(r.known)
	case stale:
		for pid, e := range r.known {
			if !e.member {
				delete(r.known, pid)
			}
		}
	}
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

// discover reads the stat of every PID that is new or due
// to be looked at again, and decides who belongs to the tree.
func (r *Reader) discover() {
	for _, pid := range r.pids {
		e := r.known[pid]
		switch {
		case e == nil:
			e = new(entry)
			r.known[pid] = e
		case e.member, !e.due(pid, r.tick):
			e.seen = r.tick
			continue
		}
		e.seen = r.tick
		b, err := r.f.read(pid, "stat")
		if err != nil {
			if Vanished(err) {
				delete(r.known, pid)
			}
			continue
		}
		s, err := parseStat(b)
		if err != nil {
			continue
		}
		e.start, e.parent, e.fresh = s.start, s.parent, r.tick
	}
	for pid, root := range r.roots {
		e := r.known[pid]
		if e == nil || e.member || e.fresh != r.tick {
			continue
		}
		if root.Start == 0 {
			root.Start = e.start
			r.roots[pid] = root
			if r.first.PID == pid {
				r.first = root
			}
		}
		e.member = e.start == root.Start
	}
	for _, pid := range r.pids {
		if e := r.known[pid]; e != nil && e.fresh == r.tick && !e.member {
			e.member = r.descends(e)
		}
	}
}

func (e *entry) due(pid int, tick uint64) bool {
	return uint64(pid)%recheck == tick%recheck
}

// descends walks from a process up its parents until it meets the tree. A
// parent that has just ended still counts: it is in known until this reading
// is done.
func (r *Reader) descends(e *entry) bool {
	// The count ends a circle, which a torn reading could show.
	for range len(r.known) {
		up := r.known[e.parent]
		switch {
		case up == nil, up.start > e.start:
			return false
		case up.member:
			return true
		case up.fresh != r.tick:
			return false
		}
		e = up
	}
	return false
}

// members reads every process of the tree.
func (r *Reader) members(gaps *rss.Gaps) []rss.Proc {
	procs := make([]rss.Proc, 0, len(r.last)+8)
	r.last = r.last[:0]
	for _, pid := range r.pids {
		e := r.known[pid]
		if e == nil || !e.member {
			continue
		}
		p, err := r.read(pid, e)
		if err != nil {
			count(gaps, err)
			if Vanished(err) {
				e.seen = 0
			}
			continue
		}
		if p.ID.Start != e.start {
			// Another process has the PID now. It is looked at as a new one
			// in the next reading.
			gaps.Vanished++
			e.seen = 0
			continue
		}
		e.parent = p.Parent
		if p.RSS > 0 {
			r.last = append(r.last, pid)
		}
		procs = append(procs, p)
	}
	for i := range procs {
		p := &procs[i]
		up := r.known[p.Parent]
		p.Orphan = p.ID != r.roots[p.ID.PID] && (up == nil || !up.member || up.seen != r.tick)
	}
	return procs
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
