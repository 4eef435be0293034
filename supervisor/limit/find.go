package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Config says whose limits are to be found, and where to look.
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

// Looked is one place that was looked at, and what was found there.
type Looked struct {
	Where string `json:"where"`
	Found string `json:"found"`
}

// Set is every limit of one job on this node.
type Set struct {
	cfg     Config
	job     slurm.Job
	inJob   bool
	inStep  bool // slurmstepd counts us
	end     time.Time
	stepd   int // slurmstepd, 0 where none is above us
	task    int // its child that is us or stands above us
	rules   slurm.Enforcement
	asked   bool // all who could tell the rules were asked
	given   []slurm.Memory
	sum     jobSum
	meminfo *proctree.Node
	node    proctree.MemInfo
	nodeOK  bool

	nodeKills   uint64 // of the node when the set was made
	nodeKillsOK bool

	path   *cgroup.Path
	levels []*level // those that may limit, leaf first, and the leaf itself
	kills  []killCount

	moved    []*level // those of cgroups that processes of the tree have moved to
	followed followed

	tick   uint64 // full readings so far
	user   userLimit
	fast   fastState
	looked []Looked
	warned map[string]bool
	warns  []Warning
}

// Find looks at everything that can limit the job: the cgroups of cfg.PID up
// to the root, Slurm's environment, limits and configuration, the node's
// memory. What fails becomes a warning and the rest goes on.
func Find(ctx context.Context, cfg Config) (*Set, []Warning) {
	if cfg.Lookup == nil {
		cfg.Lookup = func(string) (string, bool) { return "", false }
	}
	s := &Set{cfg: cfg, warned: map[string]bool{}}
	s.findNode()
	s.findCgroup()
	s.findSlurm(ctx)
	s.findUser()
	return s, s.Warnings()
}

// Warnings returns what could not be found out since the last call, each only
// once.
func (s *Set) Warnings() []Warning {
	w := s.warns
	s.warns = nil
	return w
}

func (s *Set) warn(part, format string, args ...any) {
	w := Warning{part, fmt.Sprintf(format, args...)}
	if !s.warned[w.String()] {
		s.warned[w.String()] = true
		s.warns = append(s.warns, w)
	}
}

func (s *Set) look(where, format string, args ...any) {
	s.looked = append(s.looked, Looked{where, fmt.Sprintf(format, args...)})
}

func (s *Set) findNode() {
	s.meminfo = proctree.NewNode(s.cfg.Proc)
	m, err := s.meminfo.Read()
	if err != nil {
		s.warn("node", "%v", err)
		s.look("meminfo", "%v", err)
		return
	}
	s.nodeKills, s.nodeKillsOK = proctree.NodeKills(s.cfg.Proc)
	s.node, s.nodeOK = m, true
	s.look("meminfo", "MemTotal %v, swap %v", m.Total, m.SwapTotal)
}

func (s *Set) findCgroup() {
	own := &group{}
	if b, err := s.followed.groupOf(s.cfg.Proc, s.cfg.PID); err == nil {
		s.followed.own, s.followed.of = string(b), map[rss.ProcID]place{}
		s.followed.groups = map[string]*group{s.followed.own: own}
	}
	p, err := cgroup.Open(s.cfg.Proc, s.cfg.Sys, s.cfg.PID)
	if err != nil {
		s.look("cgroup", "%v", err)
		if !errors.Is(err, cgroup.ErrNoMemory) {
			s.warn("cgroup", "%v", err)
		}
		return
	}
	s.path = p
	s.look("cgroup", "v%d, %s, mounted at %s, %d levels", p.Version, p.Name, p.Mount, len(p.Levels))
	if p.Partial {
		s.look("cgroup", "levels above %s cannot be seen from here; a limit there holds all the same", p.Mount)
	}
	own.dir = p.Levels[0].Dir
	for i, l := range p.Levels {
		lim, err := l.Limits()
		if err != nil && ended(l, err) {
			continue
		}
		if err != nil {
			s.warn("cgroup", "%v", err)
			continue
		}
		if !limited(lim) {
			s.look(l.MaxFile(), "no limit")
		}
		lv := &level{Level: l, scope: event.ScopeOfCgroup(l.Name)}
		s.levels = append(s.levels, lv)
		if limited(lim) || i == 0 {
			s.countKills(l, i == 0)
		}
	}
}

// limited says that a level sets a limit.
func limited(lim cgroup.Limits) bool {
	return lim.Max != cgroup.Unlimited || lim.Swap != cgroup.Unlimited || lim.High != cgroup.Unlimited
}

// Close gives back the descriptors that the set keeps.
func (s *Set) Close() {
	s.meminfo.Close()
	s.sum.close()
	if s.path != nil {
		for _, l := range s.path.Levels {
			l.Close()
		}
	}
	for _, l := range s.moved {
		l.Close()
	}
}
