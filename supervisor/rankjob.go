package supervisor

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/leader"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// This file makes the population of who leads: all that the job has on this node
// under rsswarden, and the steps that somebody started without it.

// stepSet is the limits of a step that is not ours.
type stepSet struct {
	step     string
	set      *limit.Set
	warnings []limit.Warning
}

// rankJob is what the leader's population is made of beside the members.
type rankJob struct {
	stale bool // the population is to be made anew
	// sets are the limits of other steps, by step; nil while they are looked for.
	sets      map[string]*limit.Set
	looking   []*probe.Reader[int, stepSet]
	strange   strangeTasks
	strangers *strangers
}

// rankRoots are the commands of all ranks and the tasks of steps without any; of a
// rank that is alone its command.
func (w *watcher) rankRoots() []rss.ProcID {
	p := &w.peers
	j := &p.job
	switch {
	case len(p.others)+len(j.strange.tasks) == 0:
		if len(w.job.Roots) > 0 {
			w.job, w.tasks, w.steps = Population{}, nil, nil
			w.keepSteps(nil)
			w.limits.Replace([]limit.Part{{Set: w.own}})
		}
		return []rss.ProcID{w.command}
	case !j.stale && len(w.job.Roots) > 0:
		return w.job.Roots
	}
	j.stale = false
	w.job = Population{Roots: []rss.ProcID{w.command}, StepOf: map[rss.ProcID]string{w.command: p.me.Step}, Steps: []string{p.me.Step}}
	add := func(id rss.ProcID, step string) {
		if slices.Contains(w.job.Roots, id) {
			return
		}
		w.job.Roots = append(w.job.Roots, id)
		w.job.StepOf[id] = step
		if !slices.Contains(w.job.Steps, step) {
			w.job.Steps = append(w.job.Steps, step)
		}
	}
	for i := range p.others {
		add(p.others[i].Command, p.others[i].Step)
	}
	for _, m := range j.strange.tasks {
		add(m.ID, m.Step)
	}
	w.job.Kept = j.strange.kept
	w.tasks = slices.DeleteFunc(slices.Clone(w.job.Roots), func(id rss.ProcID) bool {
		return slices.Contains(w.job.Kept, w.job.StepOf[id])
	})
	slices.Sort(w.job.Steps)
	w.keepSteps(w.job.Steps)
	w.limits.Replace(w.stepParts())
	return w.job.Roots
}

// stepParts are the limits of the steps. As long as all ranks are in one step
// there is nothing to tell apart.
func (w *watcher) stepParts() []limit.Part {
	p := &w.peers
	if len(w.job.Steps) == 1 {
		return []limit.Part{{Set: w.own}}
	}
	job := w.jobName()
	parts := []limit.Part{{Name: partName(job, p.me.Step), Set: w.own}}
	for _, step := range w.job.Steps {
		if set := p.job.sets[step]; set != nil {
			parts = append(parts, limit.Part{Name: partName(job, step), Set: set})
		}
	}
	return parts
}

// keepSteps has the limits of new steps looked for, on the side: Slurm's files may
// hang. Those of steps that are gone are closed by who replaces them.
func (w *watcher) keepSteps(steps []string) {
	j := &w.peers.job
	for step := range j.sets {
		if !slices.Contains(steps, step) {
			delete(j.sets, step)
		}
	}
	for _, step := range steps {
		if _, asked := j.sets[step]; asked || step == w.peers.me.Step {
			continue
		}
		pid := w.someoneIn(step)
		if pid == 0 {
			continue
		}
		if j.sets == nil {
			j.sets = map[string]*limit.Set{}
		}
		j.sets[step] = nil
		conf, _ := w.Lookup("SLURM_CONF")
		r := probe.New(&w.probes, func(pid int) stepSet {
			set, warnings := findLimits(&w.Settings, w.Proc, w.Sys, pid, nil, population.EnvironmentOf(w.Proc, w.Sys, pid, conf).Lookup)
			return stepSet{step, set, warnings}
		})
		r.Ask(pid, true)
		j.looking = append(j.looking, r)
	}
}

func (w *watcher) someoneIn(step string) int {
	for id, s := range w.job.StepOf {
		if s == step {
			return id.PID
		}
	}
	return 0
}

// heardSteps takes in the limits of other steps, and says whether any were found.
func (w *watcher) heardSteps() bool {
	j := &w.peers.job
	before := len(j.looking)
	j.looking = slices.DeleteFunc(j.looking, func(r *probe.Reader[int, stepSet]) bool {
		s, ok := r.Take()
		if !ok {
			return false
		}
		if set, asked := j.sets[s.step]; !asked || set != nil {
			s.set.Close() // the step has ended meanwhile
			return true
		}
		j.sets[s.step], j.stale = s.set, true
		w.warn(s.warnings)
		return true
	})
	return len(j.looking) < before
}

// rankNamed finds a rank of this node by SLURM_PROCID, ours included.
func (w *watcher) rankNamed(task int) (m *leader.Member, ok bool) {
	p := &w.peers
	if p.me.Task == task {
		return &p.me, true
	}
	for i := range p.others {
		if p.others[i].Task == task {
			return &p.others[i], true
		}
	}
	return nil, false
}
