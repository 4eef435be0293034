package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// strangers finds, on the side, the tasks that srun has started on this node
// without us before them: where the prefix stands in the batch script they are no
// descendants of its command. A step whose tasks have a rsswarden of their own, one
// with other options, is counted, for the limit counts it, and left to that one.
type strangers struct {
	*probe.Reader[strangeTasks, strangeTasks]
	find  *population.Finder
	proc  string
	self  int    // our PID
	dir   string // the job's cgroup, whose folders are its steps; empty where Slurm makes none
	batch bool   // our own command is in the batch script
	// covered are the steps that members are in.
	covered atomic.Pointer[[]string]
	open    string // the steps that were looked at last
}

// strangeTasks are the tasks of steps that no member is in.
type strangeTasks struct {
	tasks []population.Member
	// kept are the steps among them that have a rsswarden of their own.
	kept []string
}

func (a strangeTasks) equal(b strangeTasks) bool {
	return slices.EqualFunc(a.tasks, b.tasks, func(a, b population.Member) bool { return a.ID == b.ID }) && slices.Equal(a.kept, b.kept)
}

// strangeEvery is how often it is looked for steps that are new.
const strangeEvery = time.Second

// newStrangers is nil outside Slurm's steps.
func (w *watcher) newStrangers() *strangers {
	job, ok := w.limits.Job()
	if !ok || job.StepID == "" || w.peers.post == nil {
		return nil
	}
	s := &strangers{
		proc: w.Proc, self: w.Self, find: population.NewFinder(w.Proc, w.Sys, job.ID, "", w.Self), batch: job.StepID == slurm.StepBatch,
	}
	if p, err := cgroup.Open(w.Proc, w.Sys, w.command.PID); err == nil {
		for _, l := range p.Levels {
			if base := filepath.Base(l.Dir); base == "job_"+job.ID || slurm.IsSLUID(base) {
				s.dir = l.Dir
			}
		}
	}
	if s.dir == "" && !s.batch {
		return nil // to look at every process of the node each second is too much
	}
	s.cover(w.memberSteps())
	s.Reader = probe.New(&w.probes, s.changed)
	s.Ask(strangeTasks{}, true)
	return s
}

// cover says which steps need not be looked at.
func (s *strangers) cover(steps []string) {
	if s != nil {
		s.covered.Store(&steps)
	}
}

// changed waits until the tasks are others than the last ones, and returns them.
func (s *strangers) changed(last strangeTasks) strangeTasks {
	for {
		time.Sleep(strangeEvery)
		fault.Point("strangers")
		// A rank that has just been started says so within its first second.
		open := strings.Join(s.openSteps(), " ")
		var now strangeTasks
		if open != "" && open == s.open || len(last.tasks) > 0 {
			all, err := s.find.Find()
			if err != nil {
				continue
			}
			now = s.strange(all)
		}
		s.open = open
		if !now.equal(last) {
			return now
		}
	}
}

// openSteps lists the numbered steps on this node that no member is in. Without cgroups
// to tell there may be one.
func (s *strangers) openSteps() []string {
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
		if ok && population.IsNumber(step) && !slices.Contains(*s.covered.Load(), step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// strange are the tasks of steps that no member is in.
func (s *strangers) strange(all []population.Member) (found strangeTasks) {
	covered := *s.covered.Load()
	for _, m := range all {
		if !population.IsNumber(m.Step) || slices.Contains(covered, m.Step) {
			continue
		}
		if m.Task {
			found.tasks = append(found.tasks, m)
		}
		if !slices.Contains(found.kept, m.Step) && s.isRsswarden(m) {
			found.kept = append(found.kept, m.Step)
		}
	}
	slices.Sort(found.kept)
	return found
}

// isRsswarden knows one by its name, or by its program where that is ours.
func (s *strangers) isRsswarden(m population.Member) bool {
	if m.Comm == "rsswarden" {
		return true
	}
	program := func(pid int) string {
		name, _ := os.Readlink(filepath.Join(s.proc, strconv.Itoa(pid), "exe"))
		return strings.TrimSuffix(name, " (deleted)")
	}
	of := program(m.ID.PID)
	return of != "" && (filepath.Base(of) == "rsswarden" || of == program(s.self))
}

// heardStrangers takes in the tasks that are there now, if they have changed, and says
// whether they have.
func (w *watcher) heardStrangers() bool {
	j := &w.peers.job
	if j.strangers == nil {
		return false
	}
	found, ok := j.strangers.Take()
	if ok {
		j.strangers.Ask(found, true)
		j.strange, j.stale = found, true
	}
	return ok
}
