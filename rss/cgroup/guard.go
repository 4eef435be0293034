package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Guard is a directory of our own in the memory hierarchy of cgroup v1, with no
// limit of its own. It exists for one thing: its files belong to whoever made
// it, so that a plain user may ask the kernel to be told when its charge passes
// a size ([Threshold]). cgroup.event_control of Slurm's own directories is
// root's.
//
// The limits above hold for it as they did (memory.use_hierarchy is 1), what is
// charged in it is charged above, and nothing that was charged before a process
// moved in moves with it.
type Guard struct {
	Dir string // the directory

	level Level
}

// MakeGuard makes a directory of that name below the memory cgroup of a
// process, or takes the one that is there. It refuses, with the reason, where
// that would change what holds for the processes in it: on cgroup v2, where
// another controller shares the hierarchy, or where limits do not hold for
// directories below; and where the directory is not ours to write. Before Slurm
// 23.11, on cgroup v1, that of a task is its user's.
func MakeGuard(proc, sys string, pid int, name string) (*Guard, error) {
	parent, err := guardParent(proc, sys, pid)
	if err != nil {
		return nil, err
	}
	g := guardAt(filepath.Join(parent, name))
	if err := os.Mkdir(g.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cannot make %s: %w", g.Dir, pathless(err))
	}
	if !g.level.exists() {
		os.Remove(g.Dir)
		return nil, fmt.Errorf("cannot use %s: it accounts no memory", g.Dir)
	}
	return g, nil
}

// RemoveGuard removes the guard of that name below the memory cgroup of a
// process, where there is one and nobody is in it.
func RemoveGuard(proc, sys string, pid int, name string) error {
	parent, err := guardParent(proc, sys, pid)
	if err != nil {
		return err
	}
	return guardAt(filepath.Join(parent, name)).remove()
}

func guardAt(dir string) *Guard { return &Guard{Dir: dir, level: Level{Version: 1, Dir: dir}} }

// guardParent finds the directory that a process is in, and checks that what is
// moved below it stays under the same rules.
func guardParent(proc, sys string, pid int) (string, error) {
	p, err := Open(proc, sys, pid)
	if err != nil {
		return "", err
	}
	if p.Version != 1 {
		return "", errors.New("cannot guard: the memory controller is cgroup v2, which tells by memory.events when a limit was met")
	}
	dir := p.Levels[0].Dir
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "cgroup"), procfile.Small)
	if err != nil {
		return "", fmt.Errorf("cannot read the cgroup of process %d: %w", pid, pathless(err))
	}
	groups, err := parseGroups(b)
	if err != nil {
		return "", fmt.Errorf("cannot parse the cgroup of process %d: %w", pid, err)
	}
	if c := groups[0].controllers; len(c) > 1 {
		return "", fmt.Errorf("cannot guard in %s: the hierarchy has other controllers too (%s)", dir, strings.Join(c, ", "))
	}
	// The leaf may be one that cannot be seen, and this a level above it.
	inside, err := procsIn(dir)
	if err != nil {
		return "", err
	}
	if !slices.Contains(inside, pid) {
		return "", fmt.Errorf("cannot guard in %s: process %d is not in it", dir, pid)
	}
	// Gone since Linux 5.11: hierarchical always.
	if n, err := readLimit(filepath.Join(dir, "memory.use_hierarchy")); err == nil && n == 0 {
		return "", fmt.Errorf("cannot guard in %s: its limits would not hold below it (memory.use_hierarchy is 0)", dir)
	}
	return dir, nil
}

func procsIn(dir string) ([]int, error) {
	name := filepath.Join(dir, "cgroup.procs")
	b, err := procfile.Read(name, procfile.Table)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, pathless(err))
	}
	pids, err := parseProcs(b)
	if err != nil {
		return nil, fmt.Errorf("cannot parse %s: %w", name, err)
	}
	return pids, nil
}

// Procs returns the processes in the guard and below it, sorted.
func (g *Guard) Procs() ([]int, error) { return g.level.Procs() }

// Usage reads what the guard is charged. See [Level.Usage].
func (g *Guard) Usage() (rss.Bytes, error) { return g.level.Usage() }

// Add moves a process in, with all its threads; its children to come will be
// born there. One that has ended is no error. A process of another user, as
// sudo starts, cannot be moved by a plain user.
func (g *Guard) Add(pid int) error { return move(pid, g.Dir) }

func move(pid int, dir string) error {
	name := filepath.Join(dir, "cgroup.procs")
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, strconv.AppendInt(nil, int64(pid), 10))
		unix.Close(fd)
	}
	if err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot move process %d to %s: %w", pid, dir, err)
	}
	return nil
}

// Remove removes the directory. Whoever is left in it is moved to the one above
// first; that is root's, so a plain user cannot, and waits for them to end
// instead. Not longer than patience.
func (g *Guard) Remove(patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(removePause) {
		err := g.remove()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		pids, _ := g.Procs()
		for _, pid := range pids {
			if move(pid, filepath.Dir(g.Dir)) != nil {
				break
			}
		}
	}
}

// removePause is the pause between two tries to remove a directory in which a
// process is about to end.
const removePause = 5 * time.Millisecond

func (g *Guard) remove() error {
	g.level.Close()
	// A run inside this one may have been killed and left its own, empty.
	name := filepath.Base(g.Dir)
	if kind := strings.LastIndexByte(name, '-') + 1; kind > 0 {
		below, _ := filepath.Glob(filepath.Join(g.Dir, name[:kind]+"*"))
		for _, dir := range below {
			_ = unix.Rmdir(dir)
		}
	}
	if err := unix.Rmdir(g.Dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("cannot remove %s: %w", g.Dir, err)
	}
	return nil
}
