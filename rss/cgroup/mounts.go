package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Hierarchy is a mounted tree of cgroups.
type Hierarchy struct {
	Version     int
	Dir         string   // where it is mounted
	Controllers []string // of v1, with its other super options; none of v2
}

// Has says that a v1 hierarchy is that of a controller.
func (h Hierarchy) Has(controller string) bool { return slices.Contains(h.Controllers, controller) }

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
		h := Hierarchy{m.version, relocate(m.point, sys), m.controllers}
		out = slices.DeleteFunc(out, func(o Hierarchy) bool { return o.Dir == h.Dir })
		out = append(out, h)
	}
	return out, nil
}
