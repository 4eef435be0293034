package observe

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// stepLimits are the limits of each step that is watched. What is found of a step counts
// for as long as it lasts.
type stepLimits struct {
	proc    string
	probes  *probe.Set
	find    func(pid int) (*limit.Set, []limit.Warning)
	own     *limit.Set // of the command that we hold or attached to; nil for a job
	ownStep string
	steps   []string
	// sets are the limits of other steps; nil while they are looked for.
	sets    map[string]*limit.Set
	looking []*probe.Reader[[]rss.ProcID, stepSet]
}

// stepSet is the limits of a step that is not ours.
type stepSet struct {
	step     string
	set      *limit.Set
	warnings []limit.Warning
}

// of makes these the limits of the job's steps, and says whether they are others than
// before. Those of a new step are looked for on the side, as Slurm's files may hang, or at
// once. Those of steps that are gone are closed by who replaces them.
func (l *stepLimits) of(j *population.Job, atOnce bool) (changed bool) {
	if slices.Equal(l.steps, j.Steps) {
		return false
	}
	l.steps = slices.Clone(j.Steps)
	for step := range l.sets {
		if !slices.Contains(l.steps, step) {
			delete(l.sets, step)
		}
	}
	for _, step := range l.steps {
		if _, asked := l.sets[step]; asked || l.own != nil && step == l.ownStep {
			continue
		}
		l.sets[step] = nil
		r := probe.New(l.probes, func(ids []rss.ProcID) stepSet { return l.findStep(step, ids) })
		r.Ask(j.In(step), !atOnce)
		for atOnce && !r.Wait(time.Minute) {
		}
		l.looking = append(l.looking, r)
	}
	return true
}

// findStep finds the limits of a step by the first of its processes that still lives then.
// Of one that ended meanwhile nothing is found: where all have, what could not be read of
// them is no warning.
func (l *stepLimits) findStep(step string, ids []rss.ProcID) stepSet {
	s := stepSet{step: step}
	for _, id := range ids {
		if s.set != nil {
			s.set.Close()
		}
		if s.set, s.warnings = l.find(id.PID); proctree.Lives(l.proc, id) {
			return s
		}
	}
	s.warnings = nil
	return s
}

// take takes in the limits that were found, and says of how many steps.
func (l *stepLimits) take() (warnings []limit.Warning, found int) {
	l.looking = slices.DeleteFunc(l.looking, func(r *probe.Reader[[]rss.ProcID, stepSet]) bool {
		s, ok := r.Take()
		if !ok {
			return false
		}
		found++
		if set, asked := l.sets[s.step]; !asked || set != nil {
			s.set.Close() // the step has ended meanwhile
			return true
		}
		l.sets[s.step] = s.set
		warnings = append(warnings, s.warnings...)
		return true
	})
	return warnings, found
}

// parts are the limits that have been found. As long as our own step is the only one they
// need no names.
func (l *stepLimits) parts(job string) []limit.Part {
	if l.own != nil && len(l.steps) <= 1 {
		return []limit.Part{{Set: l.own}}
	}
	var parts []limit.Part
	if l.own != nil {
		parts = append(parts, limit.Part{Name: PartName(job, l.ownStep), Set: l.own})
	}
	for _, step := range l.steps {
		if set := l.sets[step]; set != nil {
			parts = append(parts, limit.Part{Name: PartName(job, step), Set: set})
		}
	}
	return parts
}

// PartName is what the limits of a step are called among those of several, "46.0".
func PartName(job, step string) string {
	job, _, _ = strings.Cut(job, ".") // of a step that we attached to
	return job + "." + step
}
