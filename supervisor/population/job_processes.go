package population

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

// Member is a process of a job on this node.
type Member struct {
	ID     rss.ProcID
	Parent int
	Step   string // "0", "batch", "extern"
	Comm   string
	Task   bool // no other process of the step is its parent: slurmstepd's child, or an orphan
}

// Finder finds the processes of a Slurm job on this node: by their cgroups, which every
// user may read and no process can leave. Where Slurm makes none, by SLURM_JOB_ID in the
// environment of our own user's processes; for root, which believes no environment, what
// descends from the job's slurmstepd. It leaves out slurmstepd, the process self and its
// descendants. It may hang where it reads environments.
type Finder struct {
	*viewer
	job  string // SLURM_JOB_ID, or JOB_TASK of an array job until it was met
	step string // empty for all
	self int

	// sluid is what cgroups call the job from Slurm 26.05 on, where slurmstepd has
	// told it to root.
	sluid     string
	noCgroups bool
	seen      map[int]*sighting
	tick      int
}

// sighting is what was found out of one PID.
type sighting struct {
	id   rss.ProcID
	step string // empty where it is not of the job
	ours bool   // it descends from us: so it does when its parent has ended
	tick int
}

// recheck is how many looks a PID that is not of the job goes without being
// looked at again: it may have been given to another process, or a process may
// have been moved into the job.
const recheck = 32

// NewFinder finds the processes of the job, "46" or "46_3" of an array, and of the step
// where that is not empty. self is our own PID.
func NewFinder(proc, sys, job, step string, self int) *Finder {
	return newFinder(newViewer(proc, sys), job, step, self)
}

func newFinder(v *viewer, job, step string, self int) *Finder {
	return &Finder{viewer: v, job: job, step: step, self: self, seen: map[int]*sighting{}}
}

// Job is the job's number, or what was asked for until a process of it was met.
func (f *Finder) Job() string { return f.job }

// Find returns the job's processes that live, those that slurmstepd started
// first, then by PID.
func (f *Finder) Find() ([]Member, error) {
	pids, err := listPIDs(f.proc)
	if err != nil {
		return nil, err
	}
	members := f.look(pids)
	if len(members) == 0 && !f.noCgroups && f.tick == 1 {
		f.noCgroups = true
		clear(f.seen)
		members = f.look(pids)
	}
	return members, nil
}

func (f *Finder) look(pids []int) []Member {
	f.tick++
	var members []Member
	for _, pid := range pids {
		s := f.seen[pid]
		if s != nil && s.step == "" && pid%recheck != f.tick%recheck {
			s.tick = f.tick
			continue
		}
		i, err := proctree.Identify(f.proc, pid)
		if err != nil {
			delete(f.seen, pid)
			continue
		}
		if i.Kernel || i.Ended() || pid == f.self || strings.HasPrefix(i.Comm, "slurmstepd") {
			// What slurmstepd has forked bears its name until it executes the
			// task: it is looked at again.
			delete(f.seen, pid)
			continue
		}
		if s == nil || s.id != i.ID || s.step == "" {
			s = &sighting{id: i.ID, step: f.stepInJob(i)}
			f.seen[pid] = s
		}
		s.tick = f.tick
		if s.step != "" && (f.step == "" || f.step == s.step) {
			members = append(members, Member{ID: i.ID, Parent: i.Parent, Step: s.step, Comm: i.Comm})
		}
	}
	for pid, s := range f.seen {
		if s.tick != f.tick {
			delete(f.seen, pid)
		}
	}
	members = f.withoutOurs(members)
	steps := make(map[int]string, len(members))
	for _, m := range members {
		steps[m.ID.PID] = m.Step
	}
	for i := range members {
		m := &members[i]
		m.Task = steps[m.Parent] != m.Step
	}
	slices.SortFunc(members, func(a, b Member) int {
		if a.Task != b.Task {
			if a.Task {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID.PID, b.ID.PID)
	})
	return members
}

// withoutOurs leaves out what descends from us: the command of an exec= rule. An
// init, as in a container, has adopted others' children too.
func (f *Finder) withoutOurs(members []Member) []Member {
	if f.self == 1 {
		return members
	}
	parents := make(map[int]int, len(members))
	for _, m := range members {
		parents[m.ID.PID] = m.Parent
	}
	return slices.DeleteFunc(members, func(m Member) bool {
		s, pid := f.seen[m.ID.PID], m.Parent
		for range members { // no more: a torn reading could show a circle
			up := f.seen[pid]
			if s.ours = s.ours || pid == f.self || up != nil && up.ours; s.ours {
				break
			}
			pid = parents[pid]
		}
		return s.ours
	})
}

// stepInJob returns the step of the job that a process is in, or nothing.
func (f *Finder) stepInJob(i proctree.Identity) string {
	if f.noCgroups {
		return f.claimed(i) // empty in the shell of salloc, which no step counts
	}
	id, step, ok := f.stepOf(i.ID.PID)
	switch {
	case !ok:
		return ""
	case id == f.job || id == f.sluid:
		return step
	case isNumber(id) && (f.uid == 0 || !strings.Contains(f.job, "_")):
		return ""
	}
	// The cgroup has another name for the job than its users.
	if f.claimed(i) == "" {
		return ""
	}
	switch {
	case isNumber(id):
		f.job = id
	case f.uid == 0:
		f.sluid = id
		clear(f.seen) // orphans in it were not known
	}
	return step
}

// claimed returns the step that a process is in by what is believed of it beside
// its cgroup, empty where it is not of the job.
func (f *Finder) claimed(i proctree.Identity) string {
	if f.uid == 0 {
		if s, ok := f.stepdAbove(i.ID.PID); ok && s.job == f.job {
			return s.step
		}
		return ""
	}
	vars, err := f.variables(i)
	if err != nil {
		return ""
	}
	job, ok := slurm.FromEnv(func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
	if !ok || !f.meant(job) {
		return ""
	}
	return job.StepID
}

// meant says that it is the job that was asked for, by its number or, of an
// array, as "46_3".
func (f *Finder) meant(j slurm.Job) bool {
	return j.ID == f.job || f.job != "" && slurm.ArrayTask(j.ArrayJob, j.ArrayTask) == f.job
}

func listPIDs(proc string) ([]int, error) {
	d, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", proc, err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", proc, err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

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
