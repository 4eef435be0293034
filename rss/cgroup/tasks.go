package cgroup

import "errors"

// ErrNoPids says that a process is in no cgroup of the pids controller that can
// be seen.
var ErrNoPids = errors.New("no pids cgroup")

// Tasks is a limit on how many tasks, threads that is, a cgroup and all below it
// may have (Documentation/admin-guide/cgroup-v1/pids.rst and cgroup-v2.rst). A
// fork beyond it fails with EAGAIN, root's too.
type Tasks struct {
	Level   *Level
	Current uint64 // pids.current, zombies not reaped yet included
	Max     uint64 // pids.max
}

const tasksMax, tasksCurrent = "pids.max", "pids.current"

// Files are those of Current and of Max.
func (t *Tasks) Files() (current, most string) {
	return t.Level.File(tasksCurrent), t.Level.File(tasksMax)
}

// OpenTasks finds the pids cgroup of a process as [Open] finds that of memory;
// the error wraps [ErrNoPids] where there is none. A process may be moved
// later. The root of the hierarchy has no limit, and is no level.
func OpenTasks(proc, sys string, pid int) (*Path, error) {
	return resolve(proc, sys, pid, "pids", [3]string{1: tasksMax, 2: tasksMax}, ErrNoPids)
}

// Tasks appends the levels of [OpenTasks] that have a limit to dst, from the leaf up, and
// returns it. A level without one costs one pread of a kept descriptor, one with
// a limit two. The errors of levels that cannot be read are joined; the
// others are returned with them.
func (p *Path) Tasks(dst []Tasks) ([]Tasks, error) {
	var failed error
	for _, l := range p.Levels {
		most, err := l.number(tasksMax)
		if err == nil && most == Unlimited {
			continue
		}
		n, err2 := l.number(tasksCurrent)
		if err := errors.Join(err, err2); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		dst = append(dst, Tasks{Level: l, Current: uint64(n), Max: uint64(most)})
	}
	return dst, failed
}

// Close gives the descriptors back; they are opened again when needed. A nil Path has none.
func (p *Path) Close() {
	if p != nil {
		for _, l := range p.Levels {
			l.Close()
		}
	}
}
