package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// level is one directory with what must be remembered of it between readings.
type level struct {
	*cgroup.Level
	scope event.Scope

	last   cgroup.Limits // as of the last reading that worked
	known  bool
	gone   bool // its Slurm step or job has ended
	mem    cgroup.Memory
	statAt time.Duration // when memory.stat was read
	tick   uint64        // the full reading it was read in, 0 for none
	// statCost is what Usage and memory.stat took.
	statCost rss.Meter
	faults   uint64
	faultAt  time.Duration
}

const killer = "kernel OOM killer"

// cgroups are those above Config.PID, and those that processes of the tree have
// moved to.
type cgroups struct {
	*search
	node *node // its swap

	path   *cgroup.Path
	levels []*level // those that may limit, leaf first, and the leaf itself
	kills  []killCount
	tick   uint64 // full readings so far

	moved    []*level // those of cgroups that processes of the tree have moved to
	followed followed
}

func findCgroups(in *search, n *node) *cgroups {
	s := &cgroups{search: in, node: n}
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
		return s
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
	return s
}

func limited(lim cgroup.Limits) bool {
	return lim.Max != cgroup.Unlimited || lim.Swap != cgroup.Unlimited || lim.High != cgroup.Unlimited
}

func (s *cgroups) close() {
	s.path.Close()
	for _, l := range s.moved {
		l.Close()
	}
}

// ended says that a level could not be read because its Slurm step or job has
// ended, and its directory with it: there is nothing left to watch in it, and
// nothing that does not work. Of a job that is watched as a whole steps end all
// the time.
func ended(l *cgroup.Level, err error) bool {
	if !strings.Contains(l.Name, "/step_") && event.ScopeOfCgroup(l.Name) != event.ScopeJob {
		return false
	}
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(l.Dir) // it may be one file alone that is not there
		return errors.Is(err, fs.ErrNotExist)
	}
	return errors.Is(err, unix.ENODEV) // it was open when the directory went
}

// restful is in how many full readings a level without a limit is asked for one, where
// only a part of the tree is in it.
const restful = 16

func (s *cgroups) limits(now time.Duration) []event.Limit {
	s.tick++
	var out []event.Limit
	visible := cgroup.Unlimited
	// All limits first: what swap a level may use depends on those above it.
	levels := s.all()
	for i, l := range levels {
		moved := i >= len(s.levels)
		if moved && l.known && !limited(l.last) && (s.tick+uint64(i))%restful != 0 {
			continue
		}
		lim, err := l.Limits()
		if l.gone = err != nil && (moved || ended(l.Level, err)); l.gone {
			continue
		}
		if err != nil {
			s.warn("cgroup", "%v", err)
			continue // the last known limit still is the best there is
		}
		l.last, l.known = lim, true
		if moved && !limited(lim) {
			l.Close() // there may be one for each rank
		}
	}
	for i, l := range levels {
		lim := l.last
		if l.gone || !l.known {
			continue
		}
		if i < len(s.levels) {
			visible = min(visible, lim.Max)
		}
		if !limited(lim) {
			continue
		}
		if !s.readMemory(l, now) {
			continue
		}
		if e, ok := s.killLimit(l, lim, now); ok {
			out = append(out, e)
		}
		if lim.High < lim.Max {
			out = append(out, throttle(l, lim))
		}
	}
	if e, ok := s.hiddenLimit(visible, now); ok {
		out = append(out, e)
	}
	return out
}

// readMemory reads a level's charge and its parts. Where memory.stat cannot be
// read, all that is charged counts as unreclaimable.
func (s *cgroups) readMemory(l *level, now time.Duration) bool {
	l.tick = 0
	began := time.Now()
	mem, err := l.Memory()
	l.statCost.Add(time.Since(began))
	if err != nil && ended(l.Level, err) {
		return false
	}
	if err != nil {
		s.warn("cgroup", "%v", err)
		charged, err := l.Usage()
		if err != nil {
			return false
		}
		mem = cgroup.Memory{Charged: charged, WorkingSet: charged, Unreclaimable: charged}
	}
	l.mem, l.statAt, l.tick = mem, now, s.tick
	return true
}

// killLimit is where the OOM killer strikes at this level. Swap that the level
// may still use puts it off: it is counted in, on both sides.
func (s *cgroups) killLimit(l *level, lim cgroup.Limits, now time.Duration) (event.Limit, bool) {
	if lim.Max == cgroup.Unlimited && (l.Version == 2 || lim.Swap == cgroup.Unlimited) {
		return event.Limit{}, false
	}
	e := l.charged(event.LimitCgroup, lim.Max, killer, l.MaxFile())
	swapped, room, from := s.swap(l, lim)
	switch {
	case lim.Max == cgroup.Unlimited:
		e.Used, e.Limit, e.LimitSource = e.Used+swapped, lim.Swap, l.SwapFile()
	case room > 0 || swapped > 0:
		e.Used += swapped
		e.Limit += room
		e.UsedSource += " and " + l.SwapUsageFile()
		e.LimitSource += " and " + from
		if room > 0 {
			e.Note = fmt.Sprintf("%v of swap is counted in", room)
		}
	}
	e.UsedMax = e.Used
	if note := s.pressure(l, &e, now); note != "" {
		e.Note = note
	}
	return e, true
}

// swap returns how much swap the level has, how much it could have in all, and the
// file that says so. Swap must be allowed by the level and by each above it.
func (s *cgroups) swap(l *level, lim cgroup.Limits) (swapped, room rss.Bytes, from string) {
	if !s.node.memOK || s.node.mem.SwapTotal == 0 {
		return 0, 0, ""
	}
	n, err := l.SwapUsage()
	if err != nil {
		return 0, 0, ""
	}
	if l.Version == 1 {
		n = n.Sub(l.mem.Charged)
	}
	left := s.node.mem.SwapFree
	from = l.SwapFile()
	for _, a := range s.all() {
		// mem_cgroup_get_nr_swap_pages in mm/memcontrol.c. What the command may not swap
		// out, no level above it can have swapped out.
		if a.Version == 1 || a.gone || !a.known || a.last.Swap == cgroup.Unlimited ||
			!inside(l.Dir, a.Dir) && !(inside(a.Dir, l.Dir) && len(s.levels) > 0 && inside(s.levels[0].Dir, a.Dir)) {
			continue
		}
		if used, err := a.SwapUsage(); err == nil && a.last.Swap.Sub(used) < left {
			left, from = a.last.Swap.Sub(used), a.SwapFile()
		}
	}
	if !lim.Swappable {
		left = 0
	}
	room = n + left
	if l.Version == 1 && lim.Max != cgroup.Unlimited {
		// memory.memsw.limit_in_bytes is of memory and swap together.
		most := lim.Swap
		if least := l.mem.LeastSwap; least != 0 && least < most {
			most, from = least, l.File("memory.stat")+": hierarchical_memsw_limit"
		}
		if most != cgroup.Unlimited {
			room = min(room, most.Sub(lim.Max))
		}
	}
	// Pages that are in swap and still in memory are charged on both sides.
	return n.Sub(l.mem.SwapCached), room, from
}

// full is the share of a limit from which on the charge counts as at it.
const full = 0.95

// thrash is how many major faults a second are too many.
const thrash = 200

func (s *cgroups) pressure(l *level, e *event.Limit, now time.Duration) string {
	perSecond := 0.0
	if d := now - l.faultAt; l.faultAt > 0 && d > 0 && l.mem.PgMajFault >= l.faults {
		perSecond = float64(l.mem.PgMajFault-l.faults) / d.Seconds()
	}
	l.faults, l.faultAt = l.mem.PgMajFault, now
	switch {
	case l.mem.Charged.Of(l.last.Max) < full:
		return ""
	case perSecond > thrash:
		return fmt.Sprintf("the charge is at the limit and %.0f major faults a second read back what was dropped: thrashing", perSecond)
	case e.Ratio() < 0.8:
		return fmt.Sprintf("page cache fills the charge to %.0f %% of the limit; it is given back on demand and kills nothing",
			100*l.mem.Charged.Of(l.last.Max))
	}
	return ""
}

// charged is a limit on what cannot be reclaimed of a level's charge, as last read.
func (l *level) charged(name event.LimitName, limit rss.Bytes, enforcer, source string) event.Limit {
	return event.Limit{
		Name: name, Scope: l.scope, Accounting: event.AccountingCgroup, Level: l.Dir,
		Used: l.mem.Unreclaimable, UsedMax: l.mem.Unreclaimable, Limit: limit,
		Charged: l.mem.Charged, WorkingSet: l.mem.WorkingSet,
		Enforcer: enforcer, UsedSource: l.UsageFile() + " and memory.stat", LimitSource: source,
	}
}

func throttle(l *level, lim cgroup.Limits) event.Limit {
	e := l.charged(event.LimitThrottle, lim.High, "kernel, by slowing allocations down", l.File("memory.high"))
	e.Used, e.UsedMax, e.UsedSource = e.Charged, e.Charged, l.UsageFile()
	e.Note = "above it the job becomes slow; nothing ends it"
	return e
}

// hiddenLimit is a v1 limit above the topmost visible level, which memory.stat shows.
func (s *cgroups) hiddenLimit(visible rss.Bytes, now time.Duration) (event.Limit, bool) {
	if s.path == nil || s.path.Version != 1 || !s.path.Partial || len(s.levels) == 0 {
		return event.Limit{}, false
	}
	top := s.levels[len(s.levels)-1]
	if top.tick != s.tick && !s.readMemory(top, now) {
		return event.Limit{}, false
	}
	if top.mem.LeastMax == 0 || top.mem.LeastMax >= visible {
		return event.Limit{}, false
	}
	e := top.charged(event.LimitCgroup, top.mem.LeastMax, killer, top.File("memory.stat")+": hierarchical_memory_limit")
	e.Scope, e.Note = event.ScopeCgroup, "the level with this limit cannot be seen: used is at least what is shown"
	return e, true
}

// limiting returns the level with the least limit, and that; the leaf and Unlimited without one.
func (s *cgroups) limiting() (best *level, least rss.Bytes) {
	least = cgroup.Unlimited
	for i, l := range s.levels {
		if lim, err := l.Limits(); i == 0 || err == nil && lim.Max < least {
			best = l
			least = min(least, lim.Max)
		}
	}
	return best, least
}

type group struct {
	dir   string // of the innermost level that accounts memory; empty where there is none
	count int    // of the processes
	root  bool   // of a hierarchy of cgroup v1
}

// followed is which cgroups the tree is in. A process may be moved, by itself or by
// a process that may write cgroup.procs, and so may a child: cgexec(1), systemd-run --scope,
// a container.
type followed struct {
	own    string               // /proc/PID/cgroup of Config.PID
	groups map[string]*group    // by /proc/PID/cgroup
	of     map[rss.ProcID]place // where each process was last seen
	turn   int
	buf    []byte
}

type place struct {
	*group
	again bool // a child that moves itself does so after its first look
}

// followEach is how many processes are looked at in each full reading, beside the
// first and those that are new: /proc/PID/cgroup takes some microseconds.
const followEach = 16

// groupOf reads /proc/PID/cgroup; the result is valid until the next call.
func (f *followed) groupOf(proc string, pid int) ([]byte, error) {
	fd, err := unix.Open(filepath.Join(proc, strconv.Itoa(pid), "cgroup"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if f.buf == nil {
		f.buf = make([]byte, 4<<10)
	}
	n, err := unix.Read(fd, f.buf)
	if err != nil {
		return nil, err
	}
	return f.buf[:n], nil
}

// follow brings up to date which cgroups the tree is in, and adds their levels to
// those that are read.
func (s *cgroups) follow(sample *rss.Sample) {
	f := &s.followed
	if f.groups == nil {
		return
	}
	for _, g := range f.groups {
		g.count = 0
	}
	seen := 0
	for i := range sample.Procs {
		p := &sample.Procs[i]
		at, known := f.of[p.ID]
		turn := len(sample.Procs) <= followEach || (i-f.turn+len(sample.Procs))%len(sample.Procs) < followEach
		if (!known || at.again || i == 0 || turn) && p.State != 'Z' && p.State != 'X' {
			// cgroup v1 shows what is ending in the root (PF_EXITING in
			// proc_cgroup_show), while it may still have all of its memory.
			if g := s.groupFor(p.ID.PID); g != nil && !(g.root && known && at.group != g) {
				at = place{g, !known}
				f.of[p.ID] = at
			}
		}
		if at.group != nil {
			seen++
			at.count++
		}
	}
	if len(f.of) > seen {
		lives := make(map[rss.ProcID]bool, len(sample.Procs)) // not by a search for each: there may be 10,000
		for i := range sample.Procs {
			lives[sample.Procs[i].ID] = true
		}
		maps.DeleteFunc(f.of, func(id rss.ProcID, _ place) bool { return !lives[id] })
	}
	f.turn = (f.turn + followEach) % max(len(sample.Procs), 1)
	s.forgetGroups()
}

// groupFor returns the group that a process is in, nil where it cannot be read.
func (s *cgroups) groupFor(pid int) *group {
	b, err := s.followed.groupOf(s.cfg.Proc, pid)
	if err != nil {
		return nil
	}
	if g := s.followed.groups[string(b)]; g != nil {
		return g
	}
	text := string(b)
	g := &group{}
	p, err := cgroup.Open(s.cfg.Proc, s.cfg.Sys, pid)
	switch {
	case errors.Is(err, cgroup.ErrNoMemory):
	case err != nil, !strings.Contains(text, ":"+p.Name):
		return nil // it has ended, or was moved again
	default:
		g.dir, g.root = p.Levels[0].Dir, p.Version == 1 && p.Name == "/"
		for i, l := range p.Levels {
			if slices.ContainsFunc(s.all(), func(o *level) bool { return o.Dir == l.Dir }) {
				continue
			}
			s.moved = append(s.moved, &level{Level: l, scope: event.ScopeOfCgroup(l.Name)})
			if lim, err := l.Limits(); err == nil && l.Name != "/" && (limited(lim) || i == 0) {
				s.countKills(l, i == 0)
			}
		}
	}
	s.followed.groups[text] = g
	return g
}

// forgetGroups drops the levels of groups that none of the tree is in any more. What
// was killed in them stays counted.
func (s *cgroups) forgetGroups() {
	f := &s.followed
	gone := false
	for text, g := range f.groups {
		if g.count == 0 && text != f.own {
			delete(f.groups, text)
			gone = true
		}
	}
	if !gone {
		return
	}
	s.moved = slices.DeleteFunc(s.moved, func(l *level) bool {
		for _, g := range f.groups {
			if inside(g.dir, l.Dir) {
				return false
			}
		}
		s.closeKills(l.Level)
		l.Close()
		return true
	})
}

// all are the levels above Config.PID, and those of the tree elsewhere.
func (s *cgroups) all() []*level { return slices.Concat(s.levels, s.moved) }

// hasMoved says that a level is one that a part of the tree has moved to. It may be
// removed as soon as that has ended.
func (s *cgroups) hasMoved(l *cgroup.Level) bool {
	return slices.ContainsFunc(s.moved, func(o *level) bool { return o.Level == l })
}

// inside says that a directory is top or below it.
func inside(dir, top string) bool {
	return dir == top || strings.HasPrefix(dir, strings.TrimSuffix(top, "/")+"/")
}

// Outside is the RSS of the tree that a limit of a cgroup does not count, because the
// processes are in another one. What they had charged before they moved stays charged
// where it was.
func (s *cgroups) Outside(l *event.Limit, sample *rss.Sample) (out rss.Bytes) {
	if l.Level == "" || l.Accounting != event.AccountingCgroup || l.Name == event.LimitSlurm {
		return 0
	}
	for i := range sample.Procs {
		p := &sample.Procs[i]
		if at := s.followed.of[p.ID]; at.group != nil && !inside(at.dir, l.Level) {
			out += p.RSS
		}
	}
	return out
}

// holdsTree says that all of the tree is in a directory or below it.
func (s *cgroups) holdsTree(dir string) bool {
	for _, at := range s.followed.of {
		if !inside(at.dir, dir) {
			return false
		}
	}
	return true
}
