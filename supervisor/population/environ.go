package population

import (
	"errors"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

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
