package slurm

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
)

// InCgroup corrects the step by the cgroup the process is in. The environment
// can be wrong: a job that was submitted from within a step inherits that
// step's SLURM_STEP_ID, and its batch step has none of its own to replace it.
//
// cgroup is the text of /proc/PID/cgroup. Where it names no step of this job,
// as without proctrack/cgroup and task/cgroup, j is returned as it is.
func (j Job) InCgroup(cgroup []byte) Job {
	job, step, ok := StepOfCgroup(cgroup)
	if !ok || step == j.StepID || job != j.ID && !IsSLUID(job) {
		return j
	}
	j.StepID = step
	if step == StepBatch {
		j.Tasks, j.Nodes = j.jobTasks, j.jobNodes
	}
	return j
}

// StepOfCgroup reads the job and step from the text of /proc/PID/cgroup: of
// ".../job_46/step_batch/..." they are "46" and "batch". The job may be a
// SLUID, Slurm's own name for it from 26.05 on.
func StepOfCgroup(cgroup []byte) (job, step string, ok bool) {
	for s := range StepsOfCgroup(cgroup) {
		return s.Job, s.Step, true
	}
	return "", "", false
}

// CgroupStep is a step as one line of /proc/PID/cgroup names it.
type CgroupStep struct {
	Controllers string // "cpuset,memory", empty of v2
	Dir         string // of the job, below the root of the hierarchy
	Job, Step   string
}

// StepsOfCgroup yields what each line of /proc/PID/cgroup says, as [StepOfCgroup]
// reads it. Hierarchies may disagree where their directories are made by several.
func StepsOfCgroup(cgroup []byte) iter.Seq[CgroupStep] {
	return func(yield func(CgroupStep) bool) {
		for line := range strings.Lines(string(cgroup)) {
			// hierarchy-ID:controllers:path, cgroups(7).
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
			if len(fields) != 3 {
				continue
			}
			names := strings.Split(fields[2], "/")
			for i := 1; i < len(names); i++ {
				job, isJob := JobOfDir(names[i-1])
				step, isStep := StepOfDir(names[i])
				if !isJob || !isStep {
					continue
				}
				if !yield(CgroupStep{fields[1], strings.Join(names[:i], "/"), job, step}) {
					return
				}
				break
			}
		}
	}
}

// StepOfTitle reads the job and step from the command line of slurmstepd, which it
// writes over: "slurmstepd: [46.batch]".
func StepOfTitle(cmdline []byte) (job, step string, ok bool) {
	title, ok := strings.CutPrefix(string(bytes.TrimRight(cmdline, "\x00 ")), "slurmstepd: [")
	if !ok {
		return "", "", false
	}
	if title, ok = strings.CutSuffix(title, "]"); !ok {
		return "", "", false
	}
	job, step, _ = strings.Cut(title, ".")
	step, ok = StepOfDir("step_" + step)
	return job, step, ok && isNumber(job)
}

// JobOfDir reads the job from the name of its directory in the cgroup tree:
// "46" of job_46, and the SLUID itself from Slurm 26.05 on, which names
// directories by it. Components of heterogeneous jobs and tasks of array jobs
// are jobs with an id of their own here.
func JobOfDir(name string) (job string, ok bool) {
	if IsSLUID(name) {
		return name, true
	}
	job, ok = strings.CutPrefix(name, "job_")
	if !ok || !isNumber(job) {
		return "", false
	}
	return job, true
}

// StepOfDir reads the step from the name of its directory: a number, "batch",
// "extern" or "interactive"; "0+1" is of a heterogeneous step.
func StepOfDir(name string) (step string, ok bool) {
	step, ok = strings.CutPrefix(name, "step_")
	if !ok {
		return "", false
	}
	switch step {
	case StepBatch, "extern", "interactive":
		return step, true
	}
	number, component, het := strings.Cut(step, "+")
	if !isNumber(number) || het && !isNumber(component) {
		return "", false
	}
	return step, true
}

// isNumber recognizes a 32-bit number as Slurm writes it.
func isNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && strconv.FormatUint(n, 10) == s
}
