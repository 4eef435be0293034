package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/slurm"
)

// strangers finds, on the side, the tasks that srun has started on this node
// without rsswarden before them: where the prefix stands in the batch script they
// are no descendants of its command.
type strangers struct {
	find  *finder
	dir   string // the job's cgroup, whose folders are its steps; empty where Slurm makes none
	batch bool   // our own command is in the batch script
	// covered are the steps that members are in.
	covered atomic.Pointer[[]string]
	found   chan []member
}

// strangeEvery is how often it is looked for steps that are new.
const strangeEvery = time.Second

// newStrangers is nil outside Slurm's steps.
func (w *watcher) newStrangers() *strangers {
	job, ok := w.limits.Job()
	if !ok || job.StepID == "" || w.peers.post == nil || w.Settings.GuardCgroup {
		return nil
	}
	s := &strangers{
		find: newFinder(w.Proc, job.ID, "", w.Self), batch: job.StepID == slurm.StepBatch,
		found: make(chan []member, 1),
	}
	if p, err := cgroup.Open(w.Proc, w.Sys, w.command.PID); err == nil {
		for _, l := range p.Levels {
			if filepath.Base(l.Dir) == "job_"+job.ID {
				s.dir = l.Dir
			}
		}
	}
	if s.dir == "" && !s.batch {
		return nil // to look at every process of the node each second is too much
	}
	s.cover(nil)
	go s.watch()
	return s
}

// cover says which steps need not be looked at.
func (s *strangers) cover(steps []string) {
	if s != nil {
		s.covered.Store(&steps)
	}
}

// arrived yields the tasks that are there now, whenever they have changed.
func (s *strangers) arrived() <-chan []member {
	if s == nil {
		return nil
	}
	return s.found
}

func (s *strangers) watch() {
	var last []member
	pending := ""
	for {
		time.Sleep(strangeEvery)
		// A rank that has just been started says so within its first second.
		open := strings.Join(s.open(), " ")
		var now []member
		if open != "" && open == pending || len(last) > 0 {
			all, err := s.find.find()
			if err != nil {
				continue
			}
			now = s.strange(all)
		}
		pending = open
		if slices.EqualFunc(now, last, func(a, b member) bool { return a.id == b.id }) {
			continue
		}
		last = now
		s.found <- now
	}
}

// open lists the numbered steps on this node that no member is in. Without cgroups
// to tell there may be one.
func (s *strangers) open() []string {
	if s.dir == "" {
		return []string{"?"}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil
	}
	var steps []string
	for _, e := range entries {
		step, ok := strings.CutPrefix(e.Name(), "step_")
		if ok && numeric(step) && !slices.Contains(*s.covered.Load(), step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// strange are the tasks of steps that no member is in.
func (s *strangers) strange(all []member) []member {
	covered := *s.covered.Load()
	return slices.DeleteFunc(slices.Clone(all), func(m member) bool {
		return !m.task || !numeric(m.step) || slices.Contains(covered, m.step)
	})
}

// foundStrangers takes them in.
func (w *watcher) foundStrangers(list []member) {
	j := &w.peers.job
	j.strange, j.stale = list, true
}
