package population

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
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// unmanagedSteps finds, on the side, the tasks that srun has started on this node without
// us before them: where the prefix is in the batch script they are no descendants of
// its command. A step whose tasks have a rsswarden of their own, one with other options,
// is counted, for the limit counts it, and left to that one.
type unmanagedSteps struct {
	*probe.Reader[unmanaged, unmanaged]
	find  *Finder
	dir   string // the job's cgroup, whose folders are its steps; empty where Slurm makes none
	batch bool   // our own command is in the batch script
	// covered are the steps that ranks of ours are in.
	covered atomic.Pointer[[]string]
	open    string // the steps that were looked at last
}

// unmanaged are the tasks of steps that no rank of ours is in.
type unmanaged struct {
	tasks []Member
	// kept are the steps among them that have a rsswarden of their own.
	kept []string
}

// unmanagedEvery is how often new steps are looked for.
const unmanagedEvery = time.Second

// newUnmanagedSteps is nil where the command at that PID is in no step.
func newUnmanagedSteps(proc, sys string, command, self int, job slurm.Job) *unmanagedSteps {
	if job.StepID == "" {
		return nil
	}
	s := &unmanagedSteps{find: NewFinder(proc, sys, job.ID, "", self), batch: job.StepID == slurm.StepBatch}
	if p, err := cgroup.Open(proc, sys, command); err == nil {
		for _, l := range p.Levels {
			if base := filepath.Base(l.Dir); base == "job_"+job.ID || slurm.IsSLUID(base) {
				s.dir = l.Dir
			}
		}
	}
	if s.dir == "" && !s.batch {
		return nil // to look at every process of the node each second is too much
	}
	return s
}

// cover says which steps need not be looked at.
func (s *unmanagedSteps) cover(steps []string) {
	if s != nil {
		s.covered.Store(&steps)
	}
}

// changed waits until the tasks are others than the last ones, and returns them.
func (s *unmanagedSteps) changed(last unmanaged) unmanaged {
	for {
		time.Sleep(unmanagedEvery)
		fault.Point("strangers")
		// A rank that has just been started says so within its first second.
		open := strings.Join(s.openSteps(), " ")
		var now unmanaged
		if open != "" && open == s.open || len(last.tasks) > 0 {
			all, err := s.find.Find()
			if err != nil {
				continue
			}
			now = s.among(all)
		}
		s.open = open
		same := slices.EqualFunc(now.tasks, last.tasks, func(a, b Member) bool { return a.ID == b.ID })
		if !same || !slices.Equal(now.kept, last.kept) {
			return now
		}
	}
}

// openSteps lists the numbered steps on this node that no rank of ours is in. Without
// cgroups there may be one.
func (s *unmanagedSteps) openSteps() []string {
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
		if ok && isNumber(step) && !slices.Contains(*s.covered.Load(), step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// among are the tasks of steps that no rank of ours is in.
func (s *unmanagedSteps) among(all []Member) (found unmanaged) {
	covered := *s.covered.Load()
	for _, m := range all {
		if !isNumber(m.Step) || slices.Contains(covered, m.Step) {
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
func (s *unmanagedSteps) isRsswarden(m Member) bool {
	if m.Comm == holderName {
		return true
	}
	program := func(pid int) string {
		name, _ := os.Readlink(filepath.Join(s.find.proc, strconv.Itoa(pid), "exe"))
		return strings.TrimSuffix(name, " (deleted)")
	}
	of := program(m.ID.PID)
	return of != "" && (filepath.Base(of) == holderName || of == program(s.find.self))
}
