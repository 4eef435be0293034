package supervisor

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
)

// member is a process of a job on this node.
type member struct {
	id     rss.ProcID
	parent int
	step   string // "0", "batch", "extern"
	comm   string
	task   bool // no other process of the step is its parent: slurmstepd's child, or an orphan
}

// finder finds the processes of a Slurm job on this node: by their cgroups,
// which everybody may read and no process can leave. Where Slurm makes none,
// by SLURM_JOB_ID in the environment of our own user's processes; for root,
// which believes no environment, what descends from the job's slurmstepd.
// slurmstepd is none of them, and neither are we nor what we have started. It
// may hang where it reads environments.
type finder struct {
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

func newFinder(v *viewer, job, step string, self int) *finder {
	return &finder{viewer: v, job: job, step: step, self: self, seen: map[int]*sighting{}}
}

// find returns the job's processes that live, those that slurmstepd started
// first, then by PID.
func (f *finder) find() ([]member, error) {
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

func (f *finder) look(pids []int) []member {
	f.tick++
	var members []member
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
			members = append(members, member{id: i.ID, parent: i.Parent, step: s.step, comm: i.Comm})
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
		steps[m.id.PID] = m.step
	}
	for i := range members {
		m := &members[i]
		m.task = steps[m.parent] != m.step
	}
	slices.SortFunc(members, func(a, b member) int {
		if a.task != b.task {
			if a.task {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.id.PID, b.id.PID)
	})
	return members
}

// withoutOurs leaves out what descends from us: the command of an exec= rule. An
// init, as in a container, has adopted others' children too.
func (f *finder) withoutOurs(members []member) []member {
	if f.self == 1 {
		return members
	}
	parents := make(map[int]int, len(members))
	for _, m := range members {
		parents[m.id.PID] = m.parent
	}
	return slices.DeleteFunc(members, func(m member) bool {
		s, pid := f.seen[m.id.PID], m.parent
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
func (f *finder) stepInJob(i proctree.Identity) string {
	if f.noCgroups {
		return f.claimed(i) // empty in the shell of salloc, which no step counts
	}
	id, step, ok := f.stepOf(i.ID.PID)
	switch {
	case !ok:
		return ""
	case id == f.job || id == f.sluid:
		return step
	case numeric(id) && (f.uid == 0 || !strings.Contains(f.job, "_")):
		return ""
	}
	// The cgroup has another name for the job than its users.
	if f.claimed(i) == "" {
		return ""
	}
	switch {
	case numeric(id):
		f.job = id
	case f.uid == 0:
		f.sluid = id
		clear(f.seen) // orphans in it were not known
	}
	return step
}

// claimed returns the step that a process is in by what is believed of it beside
// its cgroup, empty where it is not of the job.
func (f *finder) claimed(i proctree.Identity) string {
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
func (f *finder) meant(j slurm.Job) bool {
	return j.ID == f.job || j.ArrayTask != "" && j.ArrayJob+"_"+j.ArrayTask == f.job
}

// listPIDs lists the processes in proc.
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
