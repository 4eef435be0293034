package slurm

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// InCgroup corrects the step by the text of /proc/PID/cgroup. The environment can be wrong: a
// job that was submitted from within a step inherits that step's SLURM_STEP_ID, and its batch
// step has none of its own to replace it. Where the text names no step of this job, as without
// proctrack/cgroup and task/cgroup, j is returned as it is.
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

// IsSLUID recognizes what Slurm 26.05 and newer calls a job beside its number, as in the
// cgroup tree of v2: "s" and 13 characters of base 32, "s46HM84SHMGW00". scontrol, squeue,
// scancel and sacct take it.
func IsSLUID(job string) bool {
	if len(job) != 14 || job[0] != 's' {
		return false
	}
	for _, c := range job[1:] {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// JobOfSLUID returns the number of the job whose cgroup directory is dir, named by a SLUID.
// The slurmstepd of a step is in step_S/slurm below it, and its title has the number:
// "slurmstepd: [17.batch]", which any user may read. proc is "/proc".
//
// Any process can have that title, and /proc/PID is root's of a user's process that is not
// dumpable. So the directories must be root's, in which no other user can put a process, and
// root must be the real and the effective user of the process.
func JobOfSLUID(proc, dir string) (job string, ok bool) {
	if !IsSLUID(filepath.Base(dir)) || !isRoots(dir) {
		return "", false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		step, isStep := StepOfDir(e.Name())
		inner := filepath.Join(dir, e.Name(), "slurm")
		if !isStep || !isRoots(filepath.Dir(inner)) || !isRoots(inner) {
			continue
		}
		root, err := os.OpenRoot(inner)
		if err != nil {
			continue
		}
		procs := head(root, "cgroup.procs")
		root.Close()
		for pid := range strings.FieldsSeq(string(procs)) {
			if job, ok := jobOfStepd(proc, pid, step, filepath.Base(dir)+"/"+e.Name()+"/slurm"); ok {
				return job, true
			}
		}
	}
	return "", false
}

// jobOfStepd reads the job from the title of a slurmstepd that is in the cgroup which ends
// in group. All is read of one process: a PID may be given to another meanwhile.
func jobOfStepd(proc, pid, step, group string) (job string, ok bool) {
	if n, err := strconv.Atoi(pid); err != nil || n <= 0 { // 0 is one of another PID namespace
		return "", false
	}
	p, err := os.OpenRoot(filepath.Join(proc, pid))
	if err != nil {
		return "", false
	}
	defer p.Close()
	job, of, ok := StepOfTitle(head(p, "cmdline"))
	if !ok || of != step {
		return "", false
	}
	inside, root := false, false
	for line := range bytes.Lines(head(p, "cgroup")) {
		inside = inside || bytes.HasPrefix(line, []byte("0::/")) && bytes.HasSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("/"+group))
	}
	for line := range bytes.Lines(head(p, "status")) {
		if ids, is := bytes.CutPrefix(line, []byte("Uid:")); is {
			f := bytes.Fields(ids)
			root = len(f) == 4 && string(f[0]) == "0" && string(f[1]) == "0"
		}
	}
	return job, inside && root
}

// head returns the first 8 KiB of a file, nil where it cannot be read.
func head(dir *os.Root, name string) []byte {
	f, err := dir.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 8<<10)
	n, _ := f.Read(b)
	return b[:n]
}

func isRoots(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
