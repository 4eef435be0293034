package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
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
	w, err := resolve(proc, sys, pid, "memory", usageFile)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return nil, ErrNoMemory
	}
	p := &Path{Version: w.version, Mount: w.mount, Name: w.name, Partial: w.partial}
	for i, below := range w.levels {
		p.Levels = append(p.Levels, &Level{Version: w.version, Dir: filepath.Join(w.mount, below), Name: below, leaf: i == 0})
	}
	return p, nil
}

// way is the way from a process's group under one controller up to the root.
type way struct {
	version     int
	mount, name string
	partial     bool
	levels      []string // those that have the controller, from the leaf up
}

// resolve finds the group of a process under a controller: the v1 hierarchy that
// lists it, else the v2 one. A directory belongs to the controller if it has
// the file of that version: a v2 root has none, nor has a v2 group that the
// controller is not enabled for. It returns nil where there is none.
func resolve(proc, sys string, pid int, controller string, file [3]string) (*way, error) {
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
	for _, version := range []int{1, 2} {
		for _, g := range groups {
			if version == 1 && !slices.Contains(g.controllers, controller) || version == 2 && !g.unified() {
				continue
			}
			if w := climb(g, mounts, sys, version, controller, file[version]); w != nil {
				return w, nil
			}
		}
	}
	return nil, nil
}

// climb resolves a group to a directory and lists the levels above it.
func climb(g group, mounts []mount, sys string, version int, controller, file string) *way {
	// A later mount covers an earlier one at the same place.
	for i := len(mounts) - 1; i >= 0; i-- {
		m := mounts[i]
		if m.version != version || version == 1 && !slices.Contains(m.controllers, controller) {
			continue
		}
		below, ok := within(m.root, g.path)
		if !ok {
			continue
		}
		top := relocate(m.point, sys)
		w := &way{version: version, mount: top, name: g.path,
			partial: m.root != "/" || strings.HasPrefix(g.path, "/..")}
		for {
			if _, err := os.Stat(filepath.Join(top, below, file)); err == nil {
				w.levels = append(w.levels, below)
			}
			if below == "/" {
				break
			}
			below = path.Dir(below)
		}
		if len(w.levels) > 0 {
			return w
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
