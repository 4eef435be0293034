package proctree

import (
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
)

// This file reads the processes of the tree once it is known who they are.

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
			// Who has adopted it stands in stat.
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
	return e.proc.ID != r.roots[e.pid] && (up == nil || !up.member || up.seen != r.tick)
}

// member brings the entry of one process of the tree up to date: by statm
// alone where that says that nothing has moved.
func (r *Reader) member(e *entry) error {
	r.keep(e)
	if e.fd == 0 {
		return r.readAll(e)
	}
	m, err := r.statm(e)
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

// statm reads the sizes of one process of the tree.
func (r *Reader) statm(e *entry) (statm, error) {
	b, err := r.readStatm(e)
	if err != nil {
		return statm{}, err
	}
	return parseStatm(b)
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
