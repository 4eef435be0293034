package population

import (
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

// viewer looks at processes that we did not start. What it believes of them depends on
// who it is: whatever a process says of itself is its user's word, and root must not
// act on one user's job on the word of another.
type viewer struct {
	proc, sys string
	uid       int // our effective user

	rooted map[string]bool   // directories of jobs that are root's
	number map[string]string // of a job, by its SLUID
}

func newViewer(proc, sys string) *viewer {
	return &viewer{proc: proc, sys: sys, uid: os.Geteuid(), rooted: map[string]bool{}, number: map[string]string{}}
}

// variables returns Slurm's variables in the environment of a process, where that is
// believed. It may hang, as [proctree.Environ].
func (v *viewer) variables(i proctree.Identity) (map[string]string, error) {
	if v.uid == 0 || i.UID != v.uid {
		return nil, ErrNotBelieved
	}
	return proctree.Environ(v.proc, i.ID.PID, slurmVariable)
}

// stepOf returns the job and step of a process by its cgroup. The job is its number, from
// the directory or from its slurmstepd, else a SLUID. For root the directory of the job
// must belong to root, as Slurm makes it: a user with a delegated subtree (systemd) can
// name any directory in it job_46.
func (v *viewer) stepOf(pid int) (job, step string, ok bool) {
	b, err := procfile.Read(filepath.Join(v.proc, strconv.Itoa(pid), "cgroup"), procfile.Small)
	if err != nil {
		return "", "", false
	}
	for p := range slurm.StepsOfCgroup(b) {
		if v.uid != 0 || v.isRoots(p) {
			return v.numberOf(p), p.Step, true
		}
	}
	return "", "", false
}

// numberOf returns the number of a job, by the title of its slurmstepd where the directory
// has a SLUID for its name.
func (v *viewer) numberOf(p slurm.CgroupStep) string {
	if isNumber(p.Job) {
		return p.Job
	}
	if number := v.number[p.Job]; number != "" {
		return number
	}
	for dir := range v.dirs(p) {
		if number, ok := slurm.JobOfSLUID(v.proc, dir); ok {
			v.number[p.Job] = number
			return number
		}
	}
	return p.Job
}

// isRoots says that the directory of a job, and so all above it, is root's.
func (v *viewer) isRoots(p slurm.CgroupStep) bool {
	name := p.Controllers + ":" + p.Dir
	if v.rooted[name] {
		return true
	}
	for dir := range v.dirs(p) {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == 0 {
			v.rooted[name] = true
			return true
		}
	}
	return false
}

// dirs yields where the directory of a job may be.
func (v *viewer) dirs(p slurm.CgroupStep) iter.Seq[string] {
	return func(yield func(string) bool) {
		all, err := cgroup.Hierarchies(v.proc, v.sys)
		if err != nil {
			return
		}
		for _, h := range all {
			if h.Is(p.Controllers) && !yield(filepath.Join(h.Dir, p.Dir)) {
				return
			}
		}
	}
}

type stepd struct {
	job, step string
	conf      string // its SLURM_CONF, which is slurmd's
}

// stepdAbove finds the slurmstepd that a process descends from.
func (v *viewer) stepdAbove(pid int) (stepd, bool) {
	for i, err := range proctree.Parents(v.proc, pid) {
		if err != nil || i.ID.PID <= 1 {
			break
		}
		if i.ID.PID == pid {
			continue
		}
		if s, ok := v.stepd(i); ok {
			return s, true
		}
	}
	return stepd{}, false
}

// stepd reads what a slurmstepd is for by its title, "slurmstepd: [46.batch]". Any process
// can have that title: it counts of one of root's that runs a program of root's,
// with that name, which no other user can have started as root.
func (v *viewer) stepd(i proctree.Identity) (s stepd, ok bool) {
	if i.UID != 0 || !strings.HasPrefix(i.Comm, "slurmstepd") {
		return s, false
	}
	dir := filepath.Join(v.proc, strconv.Itoa(i.ID.PID))
	name, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil || filepath.Base(strings.TrimSuffix(name, " (deleted)")) != "slurmstepd" {
		return s, false
	}
	info, err := os.Stat(filepath.Join(dir, "exe"))
	if err != nil || !info.Mode().IsRegular() || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 || info.Mode().Perm()&0o022 != 0 {
		return s, false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 {
		return s, false
	}
	title, err := procfile.Read(filepath.Join(dir, "cmdline"), procfile.Small)
	if err != nil {
		return s, false
	}
	if s.job, s.step, ok = slurm.StepOfTitle(title); !ok {
		return s, false
	}
	vars, _ := proctree.Environ(v.proc, i.ID.PID, func(name string) bool { return name == confVariable })
	s.conf = vars[confVariable]
	start, err := proctree.StartTime(v.proc, i.ID.PID)
	return s, err == nil && start == i.ID.Start // all that was read is of one process
}
