package supervisor

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// JobFollower is a [Follower] of all processes that a Slurm job has on this
// node. The job has ended here when the last of them has.
type JobFollower struct {
	*Follower
	find *population.Finder
	proc string
	step string // empty for all
	part func(pid int) (*limit.Set, []limit.Warning)

	mu    sync.Mutex
	now   Population
	taken []limit.Part               // those of the population that was taken last
	warns map[string][]limit.Warning // by the name of the part
}

// Population is what a job consists of on this node at one moment.
type Population struct {
	// Roots are the job's processes; what descends from them belongs to it too.
	// The first is the one that is spoken of as the command.
	Roots []rss.ProcID
	// Tasks are those that slurmstepd started for the user: who is asked for
	// anything. The command goes first where it is one.
	Tasks []rss.ProcID
	// Steps are the names of the steps, sorted.
	Steps []string
	// StepOf is the step of each of Roots.
	StepOf map[rss.ProcID]string
	// Spared says that the processes of the step extern are watched and never
	// signalled: login shells that pam_slurm_adopt took in, and the sleep by
	// which slurmd holds the step. They are no task, unless the step was asked
	// for.
	Spared bool
	// Kept are steps with a rsswarden of their own, whose processes are watched
	// and left to that one.
	Kept  []string
	parts []limit.Part
	warns []limit.Warning
}

// extern is the name of the step that holds what did not come by Slurm.
const extern = "extern"

// JobOptions say which job is followed, and where.
type JobOptions struct {
	Settings *Settings
	Proc     string
	Sys      string
	Job      string // "46", or "46_3" of an array
	Step     string // "0" or "batch"; empty for all
	Self     int    // our own PID: it is left out
	Conf     string // SLURM_CONF as we have it; see [population.EnvironmentOf]
}

// FollowJob follows a job's processes on this node. It is nil where there are
// none that can be seen.
func FollowJob(o JobOptions) (*JobFollower, error) {
	f := &JobFollower{proc: o.Proc, step: o.Step, find: population.NewFinder(o.Proc, o.Sys, o.Job, o.Step, o.Self)}
	f.part = func(pid int) (*limit.Set, []limit.Warning) {
		return findLimits(o.Settings, o.Proc, o.Sys, pid, nil, population.EnvironmentOf(o.Proc, o.Sys, pid, o.Conf).Lookup)
	}
	members, err := f.find.Find()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	f.publish(members)
	f.Follower = newFollower(f.now.Roots[0])
	f.lives = func() bool {
		return slices.ContainsFunc(f.population().Roots, func(id rss.ProcID) bool { return proctree.Lives(o.Proc, id) })
	}
	probe.Run(func() { f.follow(members) })
	return f, nil
}

// ID is the job's number, which of a task of an array is not what it is called.
func (f *JobFollower) ID() string { return f.find.Job() }

// Take returns the job as it was last seen. Its limits belong to the caller,
// one goroutine, which closes those that a later population has no more: see
// [limit.Union.Replace].
func (f *JobFollower) Take() Population {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = f.now.parts
	return f.now
}

// lookAgain is how long a process of the job that has come or gone may stay
// unnoticed. What descends from one that is known is seen at each look.
const lookAgain = time.Second

// follow waits for the end of one process at a time: while one lives, the job
// does.
func (f *JobFollower) follow(members []population.Member) {
	for len(members) > 0 {
		e := expect(f.proc, members[0].ID)
		e.wait(lookAgain)
		e.close()
		next, err := f.find.Find()
		if err != nil {
			time.Sleep(lookAgain)
			continue
		}
		if members = next; len(members) > 0 {
			f.publish(members)
		}
	}
	f.end()
}

// population is the job as it was last seen.
func (f *JobFollower) population() Population {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// publish makes the population of these processes. Finding the limits of a new
// step may take a while: nobody waits for it but this goroutine.
func (f *JobFollower) publish(members []population.Member) {
	old := f.now // nobody else writes it
	p := Population{Spared: f.step != extern, StepOf: make(map[rss.ProcID]string, len(members))}
	asked := func(m population.Member) bool { return m.Task && !(p.Spared && m.Step == extern) }
	steps := map[string]bool{}
	for _, m := range members {
		p.Roots = append(p.Roots, m.ID)
		p.StepOf[m.ID] = m.Step
		if asked(m) {
			p.Tasks = append(p.Tasks, m.ID)
		}
		steps[m.Step] = true
	}
	p.Steps = slices.Sorted(maps.Keys(steps))
	warns := map[string][]limit.Warning{}
	for _, step := range p.Steps {
		part := limit.Part{Name: partName(f.find.Job(), step)}
		i := slices.IndexFunc(old.parts, func(q limit.Part) bool { return q.Name == part.Name })
		if i >= 0 {
			part, warns[part.Name] = old.parts[i], f.warns[part.Name]
		} else {
			part.Set, warns[part.Name] = f.partOf(step, members)
		}
		p.parts = append(p.parts, part)
		for _, warning := range warns[part.Name] {
			if !slices.Contains(p.warns, warning) {
				p.warns = append(p.warns, warning)
			}
		}
	}
	f.warns = warns // those of a step that has ended went with it
	// The command of the job is the first task of a step that srun started, else
	// that of the batch script: torchrun rather than the shell that waits for it.
	command := slices.IndexFunc(members, func(m population.Member) bool { return m.Task && population.IsNumber(m.Step) })
	if command < 0 {
		command = max(0, slices.IndexFunc(members, asked))
	}
	if i := slices.Index(p.Roots, firstOf(old.Roots)); i >= 0 {
		command = i // as long as it lives
	}
	p.Roots[0], p.Roots[command] = p.Roots[command], p.Roots[0]
	if i := slices.Index(p.Tasks, p.Roots[0]); i > 0 {
		p.Tasks[0], p.Tasks[i] = p.Tasks[i], p.Tasks[0]
	}
	f.replace(p)
}

// replace publishes a population. Limits of a step that ended before anybody
// took them have no reader, and are closed here.
func (f *JobFollower) replace(p Population) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.now.parts {
		same := func(o limit.Part) bool { return o.Set == q.Set }
		if !slices.ContainsFunc(p.parts, same) && !slices.ContainsFunc(f.taken, same) {
			q.Close()
		}
	}
	f.now = p
}

// partName gives "46.0".
func partName(job, step string) string { return job + "." + step }

// partOf finds the limits of a step by the first of its processes that still
// lives then, a task where there is one. What is found counts for as long as the
// step lasts, and of a process that ended meanwhile nothing is: where all have,
// what could not be read of them is no warning.
func (f *JobFollower) partOf(step string, members []population.Member) (set *limit.Set, warnings []limit.Warning) {
	for _, m := range members {
		if m.Step != step {
			continue
		}
		if set != nil {
			set.Close()
		}
		if set, warnings = f.part(m.ID.PID); proctree.Lives(f.proc, m.ID) {
			return set, warnings
		}
	}
	return set, nil
}

func firstOf(ids []rss.ProcID) rss.ProcID {
	if len(ids) == 0 {
		return rss.ProcID{}
	}
	return ids[0]
}

// String gives "steps batch and 0".
func (p *Population) String() string {
	if len(p.Steps) == 1 {
		return "step " + p.Steps[0]
	}
	n := len(p.Steps) - 1
	return "steps " + strings.Join(p.Steps[:n], ", ") + " and " + p.Steps[n]
}
