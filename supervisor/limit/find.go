// Package limit finds every way in which memory can end the job, and says how
// far off each is, in exactly the accounting of whoever enforces it.
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
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// unanswered is how long after the start scontrol may still answer: a random
// pause and its own timeout.
const unanswered = 20 * time.Second

const (
	assumedEnforcer = stepdName + " perhaps, by OverMemoryKill"
	assumedNote     = "an assumption: no configuration of Slurm can be read here, so it is not known whether slurmstepd kills; " +
		"no kernel limit of this job is to be seen, and RLIMIT_RSS is what slurmstepd would compare with"
)

// sums is how slurmstepd adds the step up before it compares, empty where it
// does not. assumed says that nobody could tell and the worst is taken for
// granted; see assume. now is the time since the watcher started.
func (s *Set) sums(now time.Duration) (acc event.Accounting, assumed bool) {
	if sums, _ := s.rules.Sums(); sums != "" {
		return event.Accounting(sums), false
	}
	if s.inStep && !s.rules.Known && (s.asked || now > unanswered) {
		if acc := s.assume(); acc != "" {
			return acc, true
		}
	}
	return "", false
}

// assume is what to be afraid of in a step of which nothing is known, as in a
// container that has neither slurm.conf nor scontrol: that slurmstepd compares
// summed RSS, which is the most it can sum, with RLIMIT_RSS, which it sets
// wherever it has a limit. Two things that can be seen speak against that. A
// kernel limit of the step or job says that the kernel kills. And a directory
// of the task in the memory hierarchy is of jobacct_gather/cgroup, which does
// not sum RSS.
func (s *Set) assume() event.Accounting {
	if len(s.given) == 0 || s.given[0].Source != "RLIMIT_RSS" {
		return ""
	}
	acc := event.AccountingRSS
	for _, l := range s.levels {
		if l.scope != event.ScopeStep && l.scope != event.ScopeJob {
			continue
		}
		if lim, err := l.Limits(); err == nil && lim.Max != cgroup.Unlimited {
			return ""
		}
	}
	if s.path != nil && slices.ContainsFunc(s.path.Levels, ofTask) {
		acc = event.AccountingCgroup
	}
	return acc
}

// ofTask says that a level is the directory of a task. It need not be the leaf:
// its user may have made one below it.
func ofTask(l *cgroup.Level) bool { return strings.HasPrefix(filepath.Base(l.Dir), "task_") }
