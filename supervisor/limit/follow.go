package limit

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
		maps.DeleteFunc(f.of, func(id rss.ProcID, _ place) bool {
			p := sample.Find(id.PID)
			return p == nil || p.ID != id
		})
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
