package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

// Environment is what a process that somebody else started knows of Slurm.
type Environment struct {
	vars map[string]string
	// Err says that the process's own environment cannot be read; what is
	// there then comes from its cgroup.
	Err error
}

// Lookup reads a variable.
func (e *Environment) Lookup(name string) (string, bool) {
	v, ok := e.vars[name]
	return v, ok
}

// Distrust forgets the directory that the job was submitted from, where journals are kept:
// the process may name any, and ours is another user, root for one.
func (e *Environment) Distrust() { delete(e.vars, submitVariable) }

// slurmVariable says that a variable is Slurm's. No other is kept: they are
// none of our business.
func slurmVariable(name string) bool {
	return strings.HasPrefix(name, "SLURM") || strings.HasPrefix(name, "SBATCH_")
}

const (
	jobVariable  = "SLURM_JOB_ID"
	oldVariable  = "SLURM_JOBID"
	stepVariable = "SLURM_STEP_ID"
	confVariable = "SLURM_CONF"

	submitVariable = "SLURM_SUBMIT_DIR"
)

// climb is how far up the parents a job's environment is looked for.
const climb = 64

// EnvironmentOf reads Slurm's variables of a process: its own, or where it was
// started without any, as by env -i, those of the nearest parent below
// slurmstepd that has them. Whatever the cgroup says of job and step counts for
// more: an environment may be inherited from another job. It may hang, as
// [proctree.Environ].
//
// Our own environment plays no part: we may run in a job of our own. ourConf is
// SLURM_CONF as we have it, which is the site's, for a process whose
// environment we may not read.
func EnvironmentOf(proc string, pid int, ourConf string) *Environment {
	e := &Environment{vars: map[string]string{}}
	for p, n := pid, 0; p > 1 && n < climb; n++ {
		vars, err := proctree.Environ(proc, p, slurmVariable)
		if p == pid {
			e.Err = err
			if err == nil {
				e.vars = vars
			}
		}
		if vars[jobVariable] != "" || vars[oldVariable] != "" {
			e.vars = vars
			break
		}
		i, err := proctree.Identify(proc, p)
		if err != nil {
			break
		}
		up, err := proctree.Identify(proc, i.Parent)
		if err != nil || strings.HasPrefix(up.Comm, "slurmstepd") {
			break
		}
		p = i.Parent
	}
	if len(e.vars) == 0 && ourConf != "" {
		e.vars[confVariable] = ourConf
	}
	e.correct(proc, pid)
	return e
}

// correct puts in what the cgroup says, where the variables are of another job
// or say nothing.
func (e *Environment) correct(proc string, pid int) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return
	}
	id, step, ok := slurm.StepOfCgroup(b)
	if !ok {
		return
	}
	if job, known := slurm.FromEnv(e.Lookup); known && (job.ID == id || !numeric(id)) {
		return // package limit corrects the step
	}
	if !numeric(id) {
		return // from Slurm 26.05 on: a name that no command takes
	}
	conf := e.vars[confVariable]
	e.vars = map[string]string{jobVariable: id, stepVariable: step}
	if conf != "" {
		e.vars[confVariable] = conf
	}
}

func numeric(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
