package population

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

// Extern is the name of the step that holds what did not come by Slurm.
const Extern = "extern"

// Job is what of a job is watched on this node at one moment, or of a run of several ranks.
type Job struct {
	// Name is "46", or "46.0" where only that step is watched.
	Name string
	// Roots are the job's processes; their descendants belong to it too. The first is the
	// one that is spoken of as the command.
	Roots []rss.ProcID
	// Tasks are those that a rule may ask for something: what slurmstepd started for the
	// user. The command goes first where it is one.
	Tasks []rss.ProcID
	// Steps are the names of the steps, sorted.
	Steps []string
	// StepOf is the step of each of Roots.
	StepOf map[rss.ProcID]string
	// Excluded are the steps whose processes are watched and never signalled: extern unless
	// it was asked for, with login shells that pam_slurm_adopt took in and the sleep by
	// which slurmd holds the step; and steps with a rsswarden of their own.
	Excluded []string
}

func (j *Job) In(step string) []rss.ProcID {
	return slices.DeleteFunc(slices.Clone(j.Roots), func(id rss.ProcID) bool { return j.StepOf[id] != step })
}

// String gives "steps batch and 0".
func (j *Job) String() string {
	if len(j.Steps) == 1 {
		return "step " + j.Steps[0]
	}
	n := len(j.Steps) - 1
	return "steps " + strings.Join(j.Steps[:n], ", ") + " and " + j.Steps[n]
}

// jobOf is the job of these members, of which asked is the step that is watched, empty for
// all. before is what was the command so far.
func jobOf(name, asked string, members []Member, before rss.ProcID) Job {
	j := Job{Name: name, StepOf: make(map[rss.ProcID]string, len(members))}
	if asked != "" {
		j.Name += "." + asked
	}
	if asked != Extern {
		j.Excluded = []string{Extern}
	}
	isTask := func(m Member) bool { return m.Task && !slices.Contains(j.Excluded, m.Step) }
	steps := map[string]bool{}
	for _, m := range members {
		j.Roots = append(j.Roots, m.ID)
		j.StepOf[m.ID] = m.Step
		if isTask(m) {
			j.Tasks = append(j.Tasks, m.ID)
		}
		steps[m.Step] = true
	}
	j.Steps = slices.Sorted(maps.Keys(steps))
	// The command of the job is the first task of a step that srun started, else
	// that of the batch script: torchrun rather than the shell that waits for it.
	command := slices.IndexFunc(members, func(m Member) bool { return m.Task && isNumber(m.Step) })
	if command < 0 {
		command = max(0, slices.IndexFunc(members, isTask))
	}
	if i := slices.Index(j.Roots, before); i >= 0 {
		command = i // as long as it lives
	}
	j.Roots[0], j.Roots[command] = j.Roots[command], j.Roots[0]
	if i := slices.Index(j.Tasks, j.Roots[0]); i > 0 {
		j.Tasks[0], j.Tasks[i] = j.Tasks[i], j.Tasks[0]
	}
	return j
}

// Followed is a job on this node whose processes are looked for again and again.
type Followed struct {
	find  *Finder
	step  string   // empty for all
	first []Member // as they were found at first

	mu  sync.Mutex
	now Job
}

// FollowJob looks for the processes of a job, as [NewFinder] does. It is nil where there
// are none that can be seen.
func FollowJob(proc, sys, job, step string, self int) (*Followed, error) {
	f := &Followed{find: NewFinder(proc, sys, job, step, self), step: step}
	members, err := f.find.Find()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	f.first = members
	f.set(members)
	return f, nil
}

// Job returns the job as it was last seen.
func (f *Followed) Job() Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *Followed) set(members []Member) {
	j := jobOf(f.find.job, f.step, members, f.command())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = j
}

func (f *Followed) command() (id rss.ProcID) {
	if j := f.Job(); len(j.Roots) > 0 {
		id = j.Roots[0]
	}
	return id
}

func (f *Followed) Lives() bool {
	return slices.ContainsFunc(f.Job().Roots, func(id rss.ProcID) bool { return proctree.Lives(f.find.proc, id) })
}

// lookAgain is how long a process of the job that has come or gone may stay
// unnoticed. What descends from one that is known is seen at each look.
const lookAgain = time.Second

// Wait returns when the job's last process here has ended, and keeps [Followed.Job] up to
// date until then. It waits for one process at a time: while one lives, the job does.
func (f *Followed) Wait() {
	for members := f.first; len(members) > 0; {
		e := proctree.Expect(f.find.proc, members[0].ID)
		e.Wait(lookAgain)
		e.Close()
		next, err := f.find.Find()
		if err != nil {
			time.Sleep(lookAgain)
			continue
		}
		if members = next; len(members) > 0 {
			f.set(members)
		}
	}
}

// Environment is what a process that we did not start knows of Slurm.
type Environment struct {
	vars map[string]string
	// Err says that the process's own environment cannot be read, or is not
	// believed; what is there then comes from its cgroup and from slurmstepd.
	Err error
}

// ErrNotBelieved is the error of an environment that is not read: that of another
// user's process, and of any process for root, who also sees those of set-user-ID
// programs that another user started.
var ErrNotBelieved = errors.New("the environment of this process is not believed")

func (e *Environment) Lookup(name string) (string, bool) {
	v, ok := e.vars[name]
	return v, ok
}

// slurmVariable says that a variable is Slurm's. No other is kept.
func slurmVariable(name string) bool {
	return strings.HasPrefix(name, "SLURM") || strings.HasPrefix(name, "SBATCH_")
}

const (
	jobVariable  = "SLURM_JOB_ID"
	oldVariable  = "SLURM_JOBID"
	stepVariable = "SLURM_STEP_ID"
	confVariable = "SLURM_CONF"
)

// EnvironmentOf reads Slurm's variables of a process: its own, or where it was
// started without any, as by env -i, those of the nearest parent below
// slurmstepd that has them. Whatever the cgroup says of job and step counts for
// more: an environment may be inherited from another job. It may hang, as
// [proctree.Environ].
//
// An environment is believed only of a process of our own user, and by root of
// none: see [ErrNotBelieved]. Root takes the job from the cgroup and from
// slurmstepd, whose SLURM_CONF is slurmd's.
//
// Our own environment plays no part: we may run in a job of our own. ourConf is
// SLURM_CONF as we have it, which is the site's, for a process whose
// environment we may not read.
func EnvironmentOf(proc, sys string, pid int, ourConf string) *Environment {
	return newViewer(proc, sys).environment(pid, ourConf)
}

func (v *viewer) environment(pid int, ourConf string) *Environment {
	e := &Environment{vars: map[string]string{}}
	for i, err := range proctree.Parents(v.proc, pid) {
		if err != nil || i.ID.PID <= 1 || i.ID.PID != pid && strings.HasPrefix(i.Comm, "slurmstepd") {
			break
		}
		vars, err := v.variables(i)
		if i.ID.PID == pid {
			e.Err = err
			if err == nil {
				e.vars = vars
			}
		}
		if vars[jobVariable] != "" || vars[oldVariable] != "" {
			e.vars = vars
			break
		}
	}
	if len(e.vars) == 0 && ourConf != "" {
		e.vars[confVariable] = ourConf
	}
	if v.uid == 0 {
		if s, ok := v.stepdAbove(pid); ok {
			e.vars[jobVariable], e.vars[stepVariable] = s.job, s.step
			if ourConf == "" && s.conf != "" {
				e.vars[confVariable] = s.conf
			}
		}
	}
	e.correct(v, pid)
	return e
}

// correct puts in what the cgroup says, where the variables are of another job
// or say nothing.
func (e *Environment) correct(v *viewer, pid int) {
	id, step, ok := v.stepOf(pid)
	if !ok {
		return
	}
	if job, known := slurm.FromEnv(e.Lookup); known && (job.ID == id || !isNumber(id)) {
		return // package limit corrects the step
	}
	if !isNumber(id) {
		return // a SLUID, which scontrol takes; what reads SLURM_JOB_ID does not
	}
	conf := e.vars[confVariable]
	e.vars = map[string]string{jobVariable: id, stepVariable: step}
	if conf != "" {
		e.vars[confVariable] = conf
	}
}

// isNumber tells the numbered steps from batch, extern and interactive.
func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
