// Package limit finds every way in which memory can end the job, and says how
// far off each is, in exactly the accounting of its enforcer.
//
// A [Set] is made once by [Find] and read at every full tick; limits are read
// again each time, since they may shrink under a running job. Every number
// comes with the place it was read from. What cannot be found out is a
// [Warning], never an error: with no cgroup and no Slurm there is still the
// node. Places that were looked at and gave nothing are kept too, for
// `rsswarden limits`.
//
// For a cgroup, used is the unreclaimable part of the charge of the same level
// that has the limit: page cache at the limit is normal and kills nothing. For
// Slurm, used is the sum that slurmstepd compares, over the processes that it
// counts, orphans left out where it sums by parent. PSS is known only to lie
// between two bounds: Used is the lower, UsedMax the upper. Both allow for what
// other processes have mapped and given up since each reading.
//
// In a step where neither Slurm's configuration nor scontrol can be read, as in
// a container, it is not known whether slurmstepd kills. A kernel limit of the
// step or job says that it does not: Slurm refuses to do both. Else the worst is
// assumed, summed RSS against RLIMIT_RSS, and called an assumption.
//
// A Set belongs to one goroutine.
package limit

import (
	"context"
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

type Config struct {
	Proc, Sys string // "/proc" and "/sys" outside tests
	// PID is the command, or any process whose limits are wanted.
	PID int
	// Self are our own processes, the holder and the watcher: they count in
	// what Slurm sums.
	Self []int
	// User is --limit in bytes; UserShare is --limit as a share of the least
	// limit that is found, 0.8 for 80 %. Both 0: no such limit.
	User      rss.Bytes
	UserShare float64
	// UserSource is where the user wrote it, for people; empty for --limit.
	UserSource string
	// Accounting is --accounting, how the tree is added up for --limit.
	Accounting event.Accounting
	// Lookup reads the environment of the job; nil means an empty one.
	Lookup func(string) (string, bool)
	// Slurm says how Slurm's configuration is found. With a Scontrol in it,
	// Find may take as long as scontrol does; see [Set.LeftOpen].
	Slurm slurm.Search
}

// Warning is something that could not be found out and what follows from it.
type Warning struct {
	Part string // "cgroup", "slurm", "node", "user"
	Text string
}

func (w Warning) String() string { return w.Part + ": " + w.Text }

type Looked struct {
	Where string `json:"where"`
	Found string `json:"found"`
}

// search is where limits are looked for, and what was noticed on the way.
type search struct {
	cfg    Config
	looked []Looked
	warned map[string]bool
	warns  []Warning
}

// Warnings returns what could not be found out since the last call, each only
// once.
func (s *search) Warnings() []Warning {
	w := s.warns
	s.warns = nil
	return w
}

func (s *search) warn(part, format string, args ...any) {
	w := Warning{part, fmt.Sprintf(format, args...)}
	if !s.warned[w.String()] {
		s.warned[w.String()] = true
		s.warns = append(s.warns, w)
	}
}

func (s *search) look(where, format string, args ...any) {
	s.looked = append(s.looked, Looked{where, fmt.Sprintf(format, args...)})
}

// Set is every limit of one job on this node, found by one reader for each possible
// enforcer.
type Set struct {
	*search
	*node
	*cgroups
	*step
	user userLimit
	fast fastState
}

// Find looks at everything that can limit the job: the cgroups of cfg.PID up
// to the root, Slurm's environment, limits and configuration, the node's
// memory. What fails becomes a warning and the rest goes on.
func Find(ctx context.Context, cfg Config) (*Set, []Warning) {
	if cfg.Lookup == nil {
		cfg.Lookup = func(string) (string, bool) { return "", false }
	}
	s := &Set{search: &search{cfg: cfg, warned: map[string]bool{}}}
	s.node = findNode(s.search)
	s.cgroups = findCgroups(s.search, s.node)
	s.step = findStep(ctx, s.search, s.cgroups)
	s.findUser()
	return s, s.Warnings()
}

func (s *Set) Close() {
	s.meminfo.Close()
	s.sum.close()
	s.cgroups.close()
}
