package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNoPids says that a process is in no cgroup of the pids controller that can
// be seen.
var ErrNoPids = errors.New("no pids cgroup")

// TaskPath is the way from the pids cgroup of a process up to the root. It
// belongs to one goroutine and keeps descriptors.
type TaskPath struct {
	Version int    // 1 or 2, of the hierarchy that has the pids controller
	Mount   string // where that hierarchy is mounted
	Name    string // the leaf as /proc/PID/cgroup names it
	// Levels go from the leaf to the topmost level that can be seen. The root
	// of the hierarchy has no limit, and is none.
	Levels []*TaskLevel
	// Partial says that levels above the topmost exist and cannot be seen, as in
	// [Path].
	Partial bool
}

// TaskLevel is one directory of the pids hierarchy.
type TaskLevel struct {
	Dir  string
	Name string // its path below the mount

	current, max, events counter
	own                  bool // pids.events counts what this level's limit refused
}

// Tasks is a limit on how many tasks, threads that is, a cgroup and all below it
// may have (Documentation/admin-guide/cgroup-v1/pids.rst and cgroup-v2.rst). A
// fork beyond it fails with EAGAIN, root's too.
type Tasks struct {
	Level   *TaskLevel
	Current uint64 // pids.current, zombies not reaped yet included
	Max     uint64 // pids.max
	// Refused counts forks that were refused since the cgroup was made, by
	// pids.events (Linux 4.8). On v2 since Linux 6.11 these are all that this
	// limit refused. Before, and on v1 (and under the mount option pids_localevents), the kernel counts a refusal where the
	// process was, whichever limit it met: here these are added up from the leaf
	// to this level, and other branches below it are not seen.
	Refused uint64
}

// MaxFile is the file of Tasks.Max.
func (l *TaskLevel) MaxFile() string { return filepath.Join(l.Dir, "pids.max") }

// CurrentFile is the file of Tasks.Current.
func (l *TaskLevel) CurrentFile() string { return filepath.Join(l.Dir, "pids.current") }

// OpenTasks finds the pids cgroup of a process as [Open] finds that of memory;
// the error wraps [ErrNoPids] where there is none. A process may be moved
// later: /proc/PID/cgroup then has another line than Name.
func OpenTasks(proc, sys string, pid int) (*TaskPath, error) {
	w, err := resolve(proc, sys, pid, "pids", [3]string{1: "pids.max", 2: "pids.max"})
	if err != nil {
		return nil, err
	}
	if w == nil {
		return nil, ErrNoPids
	}
	p := &TaskPath{Version: w.version, Mount: w.mount, Name: w.name, Partial: w.partial}
	for _, below := range w.levels {
		l := &TaskLevel{Dir: filepath.Join(w.mount, below), Name: below}
		if w.version == 2 {
			// The file came with the other meaning of pids.events.
			_, err := os.Stat(filepath.Join(l.Dir, "pids.events.local"))
			l.own = err == nil
		}
		p.Levels = append(p.Levels, l)
	}
	return p, nil
}

// Tasks appends the levels that have a limit to dst, from the leaf up, and
// returns it. A level without one costs one pread of a kept descriptor, one with
// a limit up to four. The errors of levels that cannot be read are joined; the
// others are returned with them.
func (p *TaskPath) Tasks(dst []Tasks) ([]Tasks, error) {
	var failed error
	for i, l := range p.Levels {
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
		t := Tasks{Level: l, Current: uint64(n), Max: uint64(most)}
		t.Refused, err = p.refused(i)
		failed = errors.Join(failed, err)
		dst = append(dst, t)
	}
	return dst, failed
}

// refused is Tasks.Refused of the i-th level.
func (p *TaskPath) refused(i int) (uint64, error) {
	if p.Levels[i].own {
		return p.Levels[i].refused()
	}
	var sum uint64
	for _, l := range p.Levels[:i+1] {
		n, err := l.refused()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// refused reads pids.events, 0 where the kernel has no such file.
func (l *TaskLevel) refused() (uint64, error) {
	if l.events.absent {
		return 0, nil
	}
	b, err := l.events.read(l.Dir, "pids.events")
	if errors.Is(err, fs.ErrNotExist) {
		// A level that is gone altogether has failed before this.
		l.events.absent = true
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	e, err := parseEvents(b)
	if err != nil {
		return 0, fmt.Errorf("cannot parse %s: %w", filepath.Join(l.Dir, "pids.events"), err)
	}
	return e.Hit, nil
}

// Close gives the descriptors back; they are opened again when needed.
func (p *TaskPath) Close() {
	for _, l := range p.Levels {
		l.current.close()
		l.max.close()
		l.events.close()
	}
}
