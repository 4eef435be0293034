package slurm

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

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

// isRoots says that a directory is root's.
func isRoots(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
