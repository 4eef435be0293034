package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// JobFollower is a [Follower] of all processes that a Slurm job has on this
// node. The job has ended here when the last of them has.
type JobFollower struct {
	*Follower
	find *finder
	part func(pid int) (*limit.Set, []limit.Warning)

	mu  sync.Mutex
	now Population
}

// Population is what a job consists of on this node at one moment.
type Population struct {
	// Roots are the job's processes; what descends from them belongs to it too.
	// The first is the one that is spoken of as the command.
	Roots []rss.ProcID
	// Tasks are those that slurmstepd started for the user: who is asked for
	// anything.
	Tasks []rss.ProcID
	// Steps are the names of the steps, sorted.
	Steps []string
	parts []limit.Part
	warns []limit.Warning
}

// JobOptions say which job is followed, and where.
type JobOptions struct {
	Settings *Settings
	Proc     string
	Sys      string
	Job      string // "46", or "46_3" of an array
	Step     string // "0" or "batch"; empty for all
	Self     int    // our own PID: it is left out
	Conf     string // SLURM_CONF as we have it; see [EnvironmentOf]
}

// FollowJob follows a job's processes on this node. It is nil where there are
// none that can be seen.
func FollowJob(o JobOptions) (*JobFollower, error) {
	f := &JobFollower{find: newFinder(o.Proc, o.Job, o.Step, o.Self)}
	f.part = func(pid int) (*limit.Set, []limit.Warning) {
		return findLimits(o.Settings, o.Proc, o.Sys, pid, nil, EnvironmentOf(o.Proc, pid, o.Conf).Lookup)
	}
	members, err := f.find.find()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	f.publish(members)
	f.Follower = newFollower(f.now.Roots[0])
	go f.follow(members)
	return f, nil
}

// ID is the job's number, which of a task of an array is not what it is called.
func (f *JobFollower) ID() string { return f.find.job }

// Now returns the job as it was last seen.
func (f *JobFollower) Now() Population {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// lookAgain is how long a process of the job that has come or gone may stay
// unnoticed. What descends from one that is known is seen at each look.
const lookAgain = time.Second

// follow waits for the end of one process at a time: while one lives, the job
// does.
func (f *JobFollower) follow(members []member) {
	for len(members) > 0 {
		e := expect(f.find.proc, members[0].id)
		e.wait(lookAgain)
		e.close()
		next, err := f.find.find()
		if err != nil {
			time.Sleep(lookAgain)
			continue
		}
		if members = next; len(members) > 0 {
			f.publish(members)
		}
	}
	f.exited <- hold.Exit{}
}

// publish makes the population of these processes. Finding the limits of a new
// step may take a while: nobody waits for it but this goroutine.
func (f *JobFollower) publish(members []member) {
	old := f.Now()
	p := Population{warns: old.warns}
	steps := map[string]bool{}
	for _, m := range members {
		p.Roots = append(p.Roots, m.id)
		if m.task && m.step != "extern" {
			p.Tasks = append(p.Tasks, m.id)
		}
		steps[m.step] = true
	}
	p.Steps = slices.Sorted(maps.Keys(steps))
	for _, step := range p.Steps {
		name := fmt.Sprintf("%s.%s", f.find.job, step)
		i := slices.IndexFunc(old.parts, func(q limit.Part) bool { return q.Name == name })
		if i >= 0 {
			p.parts = append(p.parts, old.parts[i])
			continue
		}
		set, warnings := f.partOf(step, members)
		p.parts = append(p.parts, limit.Part{Name: name, Set: set})
		for _, warning := range warnings {
			if !slices.Contains(p.warns, warning) {
				p.warns = append(p.warns, warning)
			}
		}
	}
	// The command of the job is the first task of a step that srun started, else
	// that of the batch script: torchrun rather than the shell that waits for it.
	command := slices.IndexFunc(members, func(m member) bool { return m.task && numeric(m.step) })
	if command < 0 {
		command = max(0, slices.IndexFunc(members, func(m member) bool { return m.task && m.step != "extern" }))
	}
	if i := slices.Index(p.Roots, firstOf(old.Roots)); i >= 0 {
		command = i // as long as it lives
	}
	p.Roots[0], p.Roots[command] = p.Roots[command], p.Roots[0]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = p
}

// partOf finds the limits of a step by the first of its processes that still
// lives then, a task where there is one. What is found counts for as long as the
// step lasts, and of a process that ended meanwhile nothing is.
func (f *JobFollower) partOf(step string, members []member) (set *limit.Set, warnings []limit.Warning) {
	for _, m := range members {
		if m.step != step {
			continue
		}
		if set != nil {
			set.Close()
		}
		if set, warnings = f.part(m.id.PID); lives(f.find.proc, m.id) {
			break
		}
	}
	return set, warnings
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
