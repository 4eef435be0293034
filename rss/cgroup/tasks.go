package cgroup

import (
	"errors"
	"path/filepath"
)

// ErrNoPids says that a process is in no cgroup of the pids controller that can
// be seen.
var ErrNoPids = errors.New("no pids cgroup")

// TaskPath is the way from the pids cgroup of a process up to the root. It
// belongs to one goroutine and keeps descriptors.
type TaskPath struct {
	// Levels go from the leaf to the topmost level that can be seen. The root
	// of the hierarchy has no limit, and is none.
	Levels []*TaskLevel
}

// TaskLevel is one directory of the pids hierarchy.
type TaskLevel struct {
	Dir  string
	Name string // its path below the mount

	current, max counter
}

// Tasks is a limit on how many tasks, threads that is, a cgroup and all below it
// may have (Documentation/admin-guide/cgroup-v1/pids.rst and cgroup-v2.rst). A
// fork beyond it fails with EAGAIN, root's too.
type Tasks struct {
	Level   *TaskLevel
	Current uint64 // pids.current, zombies not reaped yet included
	Max     uint64 // pids.max
}

func (l *TaskLevel) MaxFile() string { return filepath.Join(l.Dir, "pids.max") }

// CurrentFile is the file of Tasks.Current.
func (l *TaskLevel) CurrentFile() string { return filepath.Join(l.Dir, "pids.current") }

// OpenTasks finds the pids cgroup of a process as [Open] finds that of memory;
// the error wraps [ErrNoPids] where there is none. A process may be moved
// later.
func OpenTasks(proc, sys string, pid int) (*TaskPath, error) {
	w, err := resolve(proc, sys, pid, "pids", [3]string{1: "pids.max", 2: "pids.max"})
	if err != nil {
		return nil, err
	}
	if w == nil {
		return nil, ErrNoPids
	}
	p := &TaskPath{}
	for _, below := range w.levels {
		p.Levels = append(p.Levels, &TaskLevel{Dir: filepath.Join(w.mount, below), Name: below})
	}
	return p, nil
}

// Tasks appends the levels that have a limit to dst, from the leaf up, and
// returns it. A level without one costs one pread of a kept descriptor, one with
// a limit two. The errors of levels that cannot be read are joined; the
// others are returned with them.
func (p *TaskPath) Tasks(dst []Tasks) ([]Tasks, error) {
	var failed error
	for _, l := range p.Levels {
		most, err := l.max.number(l.Dir, "pids.max")
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if most == Unlimited {
			continue
		}
		n, err := l.current.number(l.Dir, "pids.current")
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		dst = append(dst, Tasks{Level: l, Current: uint64(n), Max: uint64(most)})
	}
	return dst, failed
}

// Close gives the descriptors back; they are opened again when needed.
func (p *TaskPath) Close() {
	for _, l := range p.Levels {
		l.current.close()
		l.max.close()
	}
}
