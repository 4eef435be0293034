package nodejobs

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

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
	// What the file system does not count, or only for its own kind, is listed again.
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
		if d.inner != nil && *d.inner >= maxInner {
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
