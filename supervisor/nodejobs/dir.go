package nodejobs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/slurm"
)

// kind is what a directory of the cgroup tree is to Slurm.
type kind int

const (
	kindMount kind = iota // of v1
	kindSlice             // the mount of v2, and slices
	kindTop               // of all jobs of a node: slurm_NODE, NODE_slurmstepd.scope
	kindUser              // uid_N, of v1
	kindJob
	kindStep
	kindInner // whatever is below a step
)

// Bounds on what is followed: below a step directories may be its user's (v1 before
// Slurm 23.11), and whoever makes very many would have us read them all.
const (
	deepest    = 16   // levels below a step
	mostInner  = 4096 // directories below a step, on all levels
	mostSlices = 4    // levels of slices
)

// dir is one directory that is followed.
type dir struct {
	path, name string
	kind       kind
	id         string // of a node, user, job or step
	depth      int    // below the mount, or below the step
	ino, links uint64 // as of the last listing
	kids       []*dir
	inner      *int // of a step and all below it: how many directories that are
	freshAt    int  // the look in which it was brought up to date

	group   *group          // of a job and of a step
	procs   int             // processes of its own, as of the last time they were counted
	countAt int             // the look from which on they are counted again where there were none
	kills   uint64          // v1: the directory's own count
	gone    uint64          // v1: the counts of directories below that are no more
	told    uint64          // of a step: its count as the kernel's notice had it read
	lost    map[string]lost // of a job: steps that are gone, by their IDs
}

// child says what a subdirectory is, nil for one that is not followed.
func (d *dir) child(name string) *dir {
	c := &dir{name: name, path: filepath.Join(d.path, name), kind: kindInner, depth: d.depth + 1}
	ok := true
	switch d.kind {
	case kindMount:
		c.kind = kindTop
		c.id, ok = strings.CutPrefix(name, "slurm")
		if ok && c.id != "" {
			c.id, ok = strings.CutPrefix(c.id, "_")
		}
	case kindSlice:
		c.kind = kindTop
		if c.id, ok = strings.CutSuffix(name, "slurmstepd.scope"); ok {
			if c.id != "" {
				c.id, ok = strings.CutSuffix(c.id, "_")
			}
			break
		}
		c.kind, ok = kindSlice, strings.HasSuffix(name, ".slice") && c.depth <= mostSlices
	case kindTop, kindUser:
		if uid, isUser := strings.CutPrefix(name, "uid_"); isUser && d.kind == kindTop {
			_, err := strconv.ParseUint(uid, 10, 32)
			c.kind, c.id, ok = kindUser, uid, err == nil
			break
		}
		c.kind = kindJob
		c.id, ok = slurm.JobOfDir(name)
	case kindJob:
		c.kind, c.depth = kindStep, 0
		c.id, ok = slurm.StepOfDir(name)
		c.inner = new(int)
	default:
		c.inner = d.inner
		ok = c.depth <= deepest
	}
	if !ok || c.kind == kindTop && c.id != "" && !IsNodeName(c.id) {
		return nil
	}
	return c
}

// IsNodeName recognizes what Slurm may call a node.
func IsNodeName(name string) bool {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-_.", rune(c)) {
			return false
		}
	}
	return name != "" && len(name) <= 255
}

// update brings a directory and all below it up to date, but for what is below a step that
// is there as before: that is looked at where the step has changed. It returns false where
// the directory is gone, or another one has its name.
func (n *Node) update(d *dir) bool {
	return d.kind == kindStep && n.lives(d) || n.refresh(d)
}

// lives reports whether a step is surely there: a kept descriptor of a cgroup that is gone
// gives ENODEV. The charge that was read is that of this look.
func (n *Node) lives(d *dir) bool {
	g := d.group
	if !n.real || g == nil || !g.kept || !g.use.Measured {
		return false
	}
	charged, err := g.level.Usage()
	if err != nil {
		return false
	}
	g.charged, g.chargedAt = charged, n.looks
	return true
}

// refresh is update by the directory itself, whatever it is.
func (n *Node) refresh(d *dir) bool {
	var st unix.Stat_t
	if err := unix.Lstat(d.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	if d.ino != 0 && d.ino != st.Ino {
		return false
	}
	// What the file system does not count, or only for its own kind, is listed anew.
	listed := d.ino == 0 || uint64(st.Nlink) != d.links || st.Nlink < 2
	d.ino, d.links, d.freshAt = st.Ino, uint64(st.Nlink), n.looks
	if listed {
		n.list(d)
	}
	if n.updateKids(d) && !listed {
		// One ended and perhaps one began: the number of links may be the same.
		n.list(d)
		n.updateKids(d)
	}
	return true
}

// updateKids updates what is below a directory, and drops what is gone.
func (n *Node) updateKids(d *dir) (lost bool) {
	d.kids = slices.DeleteFunc(d.kids, func(c *dir) bool {
		if n.update(c) {
			return false
		}
		lost = true
		n.drop(d, c)
		return true
	})
	return lost
}

// list adds the subdirectories that are new. One that is in both lists stays: if
// it is another by now, update finds out.
func (n *Node) list(d *dir) {
	if d.links == 2 { // a leaf
		return
	}
	n.lists++
	// What cannot be listed has nothing to follow; a directory that goes meanwhile gives
	// what was read of it.
	entries, _ := os.ReadDir(d.path)
	known := make(map[string]bool, len(d.kids))
	for _, c := range d.kids {
		known[c.name] = true
	}
	for _, e := range entries {
		if !e.IsDir() || known[e.Name()] {
			continue
		}
		if d.inner != nil && *d.inner >= mostInner {
			break
		}
		if c := d.child(e.Name()); c != nil {
			d.kids = append(d.kids, c)
			if d.inner != nil {
				*d.inner++
			}
		}
	}
	slices.SortFunc(d.kids, func(a, b *dir) int { return compareIDs(a.name, b.name) })
}

// compareIDs orders names as people do: job_9 before job_10.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// each calls do for a directory and all below it.
func (d *dir) each(do func(*dir)) {
	do(d)
	for _, c := range d.kids {
		c.each(do)
	}
}
