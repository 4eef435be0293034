package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNoMemory says that a process is in no memory cgroup that can be seen.
var ErrNoMemory = errors.New("no memory cgroup")

// Path is the way from the memory cgroup of a process up to the root.
type Path struct {
	Version int    // 1 or 2, of the hierarchy that has the memory controller
	Mount   string // where that hierarchy is mounted
	// Name is the leaf as /proc/PID/cgroup names it.
	Name string
	// Levels go from the leaf to the topmost level that can be seen.
	Levels []*Level
	// Partial says that levels above the topmost exist and cannot be seen:
	// the mount shows a part of the hierarchy (a container, a cgroup
	// namespace). Limits up there still hold.
	Partial bool
}

// Open finds the memory cgroup of a process by /proc/PID/cgroup (cgroups(7))
// and the mounts in mountinfo (proc_pid_mountinfo(5)). sys stands for /sys: a
// mount point below /sys is looked for below it. The mounts are our own where
// proc has a self, since paths are opened from here, else those of the
// process.
//
// Where v1 and v2 are both mounted, memory belongs to the one that lists it.
// The error wraps [ErrNoMemory] where neither does.
func Open(proc, sys string, pid int) (*Path, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	b, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the cgroup of process %d: %w", pid, err)
	}
	groups, err := parseGroups(b)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the cgroup of process %d: %w", pid, err)
	}
	b, err = os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		b, err = os.ReadFile(filepath.Join(dir, "mountinfo"))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts of process %d: %w", pid, err)
	}
	mounts, err := parseMounts(b)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the mounts of process %d: %w", pid, err)
	}
	return find(groups, mounts, sys)
}

func find(groups []group, mounts []mount, sys string) (*Path, error) {
	for _, g := range groups {
		if !g.memory() {
			continue
		}
		version := 1
		if g.unified() {
			version = 2
		}
		if p := climb(g, mounts, sys, version); p != nil {
			return p, nil
		}
	}
	return nil, ErrNoMemory
}

// climb resolves a group to a directory and lists the levels above it.
func climb(g group, mounts []mount, sys string, version int) *Path {
	// A later mount covers an earlier one at the same place.
	for i := len(mounts) - 1; i >= 0; i-- {
		m := mounts[i]
		if m.version != version || version == 1 && !m.memory {
			continue
		}
		below, ok := within(m.root, g.path)
		if !ok {
			continue
		}
		top := relocate(m.point, sys)
		p := &Path{Version: version, Mount: top, Name: g.path, Partial: m.root != "/" || strings.HasPrefix(g.path, "/..")}
		for {
			l := &Level{Version: version, Dir: filepath.Join(top, below), Name: below, leaf: len(p.Levels) == 0}
			if l.exists() {
				p.Levels = append(p.Levels, l)
			}
			if below == "/" {
				break
			}
			below = path.Dir(below)
		}
		if len(p.Levels) > 0 {
			return p
		}
	}
	return nil
}

// within returns the part of a group's path below the root that a mount shows.
// A path that begins with /.. lies outside of our cgroup namespace: nothing of
// it but the root of the mount can be seen.
func within(root, name string) (string, bool) {
	if name == "/.." || strings.HasPrefix(name, "/../") {
		if root != "/" {
			return "", false
		}
		return "/", true
	}
	name = path.Clean("/" + name)
	root = path.Clean("/" + root)
	switch {
	case root == "/":
		return name, true
	case name == root:
		return "/", true
	case strings.HasPrefix(name, root+"/"):
		return name[len(root):], true
	}
	return "", false
}

// relocate moves a mount point below /sys to below sys.
func relocate(point, sys string) string {
	if rest, ok := strings.CutPrefix(point, "/sys/"); ok {
		return filepath.Join(sys, rest)
	}
	return point
}
