package main

import (
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// daemon looks at the jobs. One goroutine owns it; snap alone is read by others.
type daemon struct {
	settings
	log  *slog.Logger
	jobs *nodejobs.Node
	snap atomic.Pointer[view]

	oom    map[string]*oom
	killed map[string]killed
	file   *recordFile
	text   *textfile
	where  string // as it was told last
	before string // as the last look found it
	failed string
	extra  time.Time // until then no look but those of the interval
}

// view is what scrapes are told of. Nobody changes it.
type view struct {
	*nodejobs.Snapshot
	killed []killed
}

func newDaemon(s settings, log *slog.Logger) *daemon {
	d := &daemon{settings: s, log: log, jobs: nodejobs.New("/proc", "/sys", s.node), oom: map[string]*oom{}, killed: map[string]killed{}, where: "?"}
	if s.records != "" {
		d.file = &recordFile{dir: s.records}
	}
	if s.textfile != "" {
		d.text = &textfile{dir: s.textfile}
	}
	return d
}

// look takes a snapshot, and tells what it says to whom.
func (d *daemon) look() {
	snap, err := d.jobs.Look(time.Now())
	if err != nil {
		d.complain("", err)
		return
	}
	if snap.Failures > 0 {
		d.complain("files of jobs cannot be read", snap.Failure)
	} else {
		d.failed = ""
	}
	d.tellWhere(&snap)
	d.watchOOM(&snap)
	v := &view{&snap, slices.Collect(maps.Values(d.killed))}
	d.snap.Store(v)
	if d.text != nil {
		if err := d.text.write(v); err != nil {
			d.complain("", err)
		}
	}
}

// lookForKills looks before it is time where the OOM killer was at work: on v1 a step
// that it hit takes its count with it. Where it is at work all the time the looks take
// a fiftieth of a core.
func (d *daemon) lookForKills() {
	if now := time.Now(); now.After(d.extra) && d.jobs.Killed() {
		d.look()
		d.extra = now.Add(50 * time.Since(now))
	}
}

// complain says what does not work, and again only once it has worked or is another.
func (d *daemon) complain(what string, err error) {
	if text := what + err.Error(); text != d.failed {
		d.failed = text
		if what == "" {
			what = "this look failed"
		}
		d.log.Warn(what, "error", err)
	}
}

// tellWhere says in which way jobs can be seen here, when that changes.
func (d *daemon) tellWhere(s *nodejobs.Snapshot) {
	where := s.Where
	if len(s.Jobs) > 0 && !s.Memory {
		where += " without memory"
	}
	// A job that is being made has its directory in one hierarchy before the other: what
	// holds is what two looks find.
	again := where == d.before
	d.before = where
	if where == d.where || !again && d.where != "?" || len(s.Jobs) == 0 && s.Found && d.where != "?" && d.where != "" {
		return
	}
	d.where = where
	switch {
	case !s.Found:
		d.log.Info("no cgroup of Slurm yet: no job has run since the node started, or this site has neither proctrack/cgroup nor task/cgroup, and then no job can be seen")
	case len(s.Jobs) == 0:
		d.log.Info("no job runs", "hierarchy", s.Where)
	case !s.Memory:
		d.log.Info("jobs have no memory cgroup (ConstrainRAMSpace, JobAcctGatherType): their processes alone are told, and no limit", "hierarchy", s.Where, "jobs", len(s.Jobs))
	default:
		d.log.Info("jobs are seen by their memory cgroups", "hierarchy", s.Where, "jobs", len(s.Jobs))
	}
}

// stale is after how many intervals without a look nothing is told of jobs.
const stale = 5

func (d *daemon) isFresh(v *view) bool { return time.Since(v.At) <= stale*d.interval }

// healthy says that there is a last look that is of now.
func (d *daemon) healthy() bool {
	v := d.snap.Load()
	return v != nil && d.isFresh(v)
}

// close writes what would be lost, and gives everything back.
func (d *daemon) close() {
	for key, o := range d.oom {
		d.record(o, false, time.Now())
		delete(d.oom, key)
	}
	if d.text != nil {
		d.text.remove()
	}
	if d.file != nil {
		d.file.close()
	}
	d.jobs.Close()
}

// limited says that there is a limit to tell.
func limited(u *nodejobs.Use) bool {
	return u.Measured && u.Limit != cgroup.Unlimited && u.Limit > 0
}
