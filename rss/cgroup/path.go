package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss/procfile"
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
	// the mount shows a part of the hierarchy (a container, a mount made in a
	// cgroup namespace). Limits up there still hold.
	Partial bool
}

// Open finds the memory cgroup of a process by /proc/PID/cgroup (cgroups(7))
// and the mounts in mountinfo (proc_pid_mountinfo(5)). sys stands for /sys: a
// mount point below /sys is looked for below it. The mounts are our own where
// proc has a self, since paths are opened from here, else those of the
// process. In a cgroup namespace whose mounts show the levels above it, the
// process is searched for in the cgroup.procs of the directories there.
//
// Where v1 and v2 are both mounted, memory belongs to the one that lists it.
// The error wraps [ErrNoMemory] where neither does.
func Open(proc, sys string, pid int) (*Path, error) {
	return resolve(proc, sys, pid, "memory", usageFile, ErrNoMemory)
}

// Close gives the descriptors back; they are opened again when needed. A nil Path has none.
func (p *Path) Close() {
	if p != nil {
		for _, l := range p.Levels {
			l.Close()
		}
	}
}

// resolve finds the group of a process under a controller: the v1 hierarchy that
// lists it, else the v2 one. A directory belongs to the controller if it has
// the file of that version: a v2 root has none, nor has a v2 group that the
// controller is not enabled for. The error is none where there is none.
func resolve(proc, sys string, pid int, controller string, file [3]string, none error) (*Path, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	b, err := procfile.Read(filepath.Join(dir, "cgroup"), procfile.Small)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cgroup of process %d: %w", pid, err)
	}
	groups, err := parseGroups(b)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the cgroup of process %d: %w", pid, err)
	}
	b, err = procfile.Read(filepath.Join(proc, "self", "mountinfo"), procfile.Table)
	if err != nil {
		b, err = procfile.Read(filepath.Join(dir, "mountinfo"), procfile.Table)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts of process %d: %w", pid, err)
	}
	mounts, err := parseMounts(b)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the mounts of process %d: %w", pid, err)
	}
	// cgroup.procs has process IDs of our PID namespace. Those in /proc are of another
	// one where /proc was mounted for that.
	self, err := os.Readlink(filepath.Join(proc, "self"))
	foreign := err == nil && self != strconv.Itoa(os.Getpid())
	listed := func(dir string) bool {
		b, err := procfile.Read(filepath.Join(dir, "cgroup.procs"), procfile.Table)
		if err != nil || foreign {
			return false
		}
		pids, err := parseProcs(b)
		return err == nil && slices.Contains(pids, pid)
	}
	for _, version := range []int{1, 2} {
		for _, g := range groups {
			if version == 1 && !slices.Contains(g.controllers, controller) || version == 2 && !g.unified() {
				continue
			}
			if p := climb(g, mounts, sys, version, controller, file[version], listed); p != nil {
				return p, nil
			}
		}
	}
	return nil, none
}

// climb resolves a group to a directory and lists the levels above it. Of several
// mounts that show the group it takes the one that shows most levels, one below
// /sys before one elsewhere, a later one before an earlier one.
func climb(g group, mounts []Hierarchy, sys string, version int, controller, file string, listed func(dir string) bool) *Path {
	var best *Path
	standard := false // best is mounted below /sys
	points := map[string]bool{}
	for _, m := range slices.Backward(mounts) {
		if points[m.Dir] {
			continue // covered by a later mount
		}
		points[m.Dir] = true
		if m.Version != version || version == 1 && !m.Is(controller) {
			continue
		}
		top := relocate(m.Dir, sys)
		unnamed, below, ok := within(m.root, g.path)
		if ok && unnamed > 0 {
			most := maxSearched
			below, ok = search(top, "/", unnamed, below, listed, &most)
		}
		if !ok {
			continue
		}
		p := &Path{Version: version, Mount: top, Name: g.path}
		for {
			l := &Level{Version: version, Dir: filepath.Join(top, below), Name: below, leaf: len(p.Levels) == 0}
			if _, err := os.Stat(l.File(file)); err == nil {
				p.Levels = append(p.Levels, l)
			}
			if below == "/" {
				break
			}
			below = path.Dir(below)
		}
		if len(p.Levels) == 0 {
			continue
		}
		if sysfs := strings.HasPrefix(m.Dir, "/sys/"); best == nil || len(p.Levels) > len(best.Levels) ||
			len(p.Levels) == len(best.Levels) && sysfs && !standard {
			best, standard = p, sysfs
		}
	}
	if best != nil {
		best.Partial = !best.rooted()
	}
	return best
}

// rooted says that the topmost directory of a mount is the root of its hierarchy.
// Of v1 only that one has release_agent; of v2 only that one lacks the files of the
// controllers (CFTYPE_ONLY_ON_ROOT and CFTYPE_NOT_ON_ROOT in kernel/cgroup). The root
// field of mountinfo does not say: for a mount made in a cgroup namespace it is "/".
func (p *Path) rooted() bool {
	if p.Version == 2 {
		return p.Levels[len(p.Levels)-1].Name != "/"
	}
	_, err := os.Stat(filepath.Join(p.Mount, "release_agent"))
	return err == nil
}

// within returns the path of a group below the root that a mount shows. Both are
// seen from the root of our cgroup namespace (cgroup_namespaces(7)), so that each
// may begin with "/..", once for each level above it. Where the mount shows more
// levels above the namespace than the path names, unnamed is how many of them, from
// the top, have names that are not known. A group above the mount's root, or beside
// it, is not within.
func within(root, name string) (unnamed int, below string, ok bool) {
	r, rootUp := up(root)
	n, nameUp := up(name)
	for ; rootUp && nameUp; n, nameUp = up(n) {
		root, name = r, n
		r, rootUp = up(root)
	}
	if nameUp {
		return 0, "", false
	}
	for ; rootUp; r, rootUp = up(root) {
		root = r
		unnamed++
	}
	name = path.Clean("/" + name)
	root = path.Clean("/" + root)
	switch {
	case root == "/":
		return unnamed, name, true
	case unnamed > 0:
		return 0, "", false // beside the namespace
	case name == root:
		return 0, "/", true
	case strings.HasPrefix(name, root+"/"):
		return 0, name[len(root):], true
	}
	return 0, "", false
}

// up takes a leading "/.." off a path.
func up(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "/..")
	if !ok || rest != "" && rest[0] != '/' {
		return name, false
	}
	return rest, true
}

// maxSearched is how many directories [search] looks at: a user may make very many
// cgroups.
const maxSearched = 10_000

// search finds a directory of which the first levels of the path, unnamed many, are
// not known by name, and the last part is: the one that lists the process. It
// returns its path below the mount.
func search(top, dir string, unnamed int, rest string, listed func(dir string) bool, most *int) (string, bool) {
	if unnamed == 0 {
		found := path.Join(dir, rest)
		return found, listed(filepath.Join(top, found))
	}
	entries, _ := os.ReadDir(filepath.Join(top, dir)) // what can be read of it
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if *most--; *most < 0 {
			break
		}
		if found, ok := search(top, path.Join(dir, e.Name()), unnamed-1, rest, listed, most); ok {
			return found, true
		}
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

var errMalformed = errors.New("malformed")

// group is one line of /proc/PID/cgroup: "4:memory:/slurm/uid_1000/job_7" for
// v1, "0::/system.slice/…" for v2.
type group struct {
	id          string
	controllers []string
	path        string
}

func (g group) unified() bool { return g.id == "0" && len(g.controllers) == 0 }

// parseGroups reads /proc/PID/cgroup. A path may hold colons, and ends in " (deleted)" where the
// directory was removed under the process.
func parseGroups(b []byte) (groups []group, err error) {
	for line := range bytes.Lines(b) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		f := strings.SplitN(string(line), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			return nil, errMalformed
		}
		g := group{id: f[0], path: strings.TrimSuffix(f[2], " (deleted)")}
		if f[1] != "" {
			g.controllers = strings.Split(f[1], ",")
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// Hierarchy is a mounted tree of cgroups, one mount of /proc/PID/mountinfo.
type Hierarchy struct {
	Version     int
	Dir         string   // where it is mounted
	Controllers []string // of v1, with its other super options; none of v2

	root string // what of the tree the mount shows
}

// parseMounts reads the cgroup mounts of /proc/PID/mountinfo
// (proc_pid_mountinfo(5)): ID, parent, device, root, mount point, options, any
// number of tags, "-", type, source, super options.
func parseMounts(b []byte) ([]Hierarchy, error) {
	var mounts []Hierarchy
	lines, bad := 0, 0
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		lines++
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+3 {
			bad++
			continue
		}
		m := Hierarchy{root: escapes.Replace(f[3]), Dir: escapes.Replace(f[4])}
		switch f[dash+1] {
		case "cgroup":
			m.Version = 1
			if len(f) > dash+3 {
				m.Controllers = strings.Split(f[dash+3], ",")
			}
		case "cgroup2":
			m.Version = 2
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	if lines > 0 && bad == lines {
		return nil, errMalformed
	}
	return mounts, nil
}

// escapes are the kernel's, in octal, of space, tab, newline and backslash.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Is says that a line of /proc/PID/cgroup with these controllers, "cpu,cpuacct", is of the
// hierarchy; one of v2 names none.
func (h Hierarchy) Is(controllers string) bool {
	first, _, _ := strings.Cut(controllers, ",")
	return (first == "") == (h.Version == 2) && (first == "" || slices.Contains(h.Controllers, first))
}

// Hierarchies lists what cgroup trees are mounted, by mountinfo of our own
// process; proc and sys stand for /proc and /sys as in [Open]. Of two mounts at one place the later
// one covers the other.
func Hierarchies(proc, sys string) ([]Hierarchy, error) {
	name := filepath.Join(proc, "self", "mountinfo")
	b, err := procfile.Read(name, procfile.Table)
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	mounts, err := parseMounts(b)
	if err != nil {
		return nil, fmt.Errorf("cannot parse %s: %w", name, err)
	}
	var out []Hierarchy
	for _, m := range mounts {
		m.Dir = relocate(m.Dir, sys)
		out = slices.DeleteFunc(out, func(o Hierarchy) bool { return o.Dir == m.Dir })
		out = append(out, m)
	}
	return out, nil
}
