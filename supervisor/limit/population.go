package limit

import (
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// findStepd walks up from us to slurmstepd, and to the task it started: its
// child. In a PID namespace of the job's own, or under hidepid, slurmstepd
// cannot be seen; the topmost process that can is the task then.
func (s *Set) findStepd() {
	r := proctree.New(s.cfg.Proc)
	defer r.Close()
	pid := s.cfg.PID
	for range 64 {
		p, err := r.One(pid)
		if err != nil {
			break
		}
		s.task, s.stepd = pid, p.Parent
		up, err := r.One(p.Parent)
		if err != nil {
			break
		}
		if strings.HasPrefix(up.Comm, stepdName) {
			s.look("parents", "task %d, child of slurmstepd %d", s.task, s.stepd)
			return
		}
		if p.Parent <= 1 {
			s.task, s.stepd = 0, 0
			s.look("parents", "no slurmstepd above process %d", s.cfg.PID)
			return
		}
		pid = p.Parent
	}
	s.look("parents", "task %d; its parent %d cannot be seen", s.task, s.stepd)
}

// Extra reads the processes that a limit counts beside the tree: ourselves and,
// where slurmstepd sums over the step, all else that descends from it. Call it
// after the reader's Tree, with what that returned.
func (s *Set) Extra(r *proctree.Reader, tree []rss.Proc) ([]rss.Proc, rss.Gaps) {
	in := make(map[int]bool, len(tree))
	for i := range tree {
		in[tree[i].ID.PID] = true
	}
	var pids []int
	add := func(pid int) {
		if pid > 0 && !in[pid] {
			in[pid] = true
			pids = append(pids, pid)
		}
	}
	for _, pid := range s.cfg.Self {
		add(pid)
	}
	if s.task != 0 && s.SumsByPPID() {
		top := s.stepd
		if top == 0 {
			top = s.task
			add(s.task)
		}
		for _, pid := range r.Below(top) {
			add(pid)
		}
	}
	return r.Group(pids)
}

// stepSum adds up the processes that descend from slurmstepd by parent now: the
// batch shell, ourselves and the other tasks of the step are in, orphans are
// out.
func (s *Set) stepSum(sample *rss.Sample, acc event.Accounting) (low, high rss.Bytes) {
	procs := make(map[int]*rss.Proc, len(sample.Procs)+len(sample.Extra))
	for _, list := range [][]rss.Proc{sample.Procs, sample.Extra} {
		for i := range list {
			procs[list[i].ID.PID] = &list[i]
		}
	}
	var sum total
	for _, p := range procs {
		if s.counted(p, procs) && p.State != 'Z' {
			sum.add(p, acc)
		}
	}
	return sum.bounds(acc)
}

// counted walks up the parents. Where the way to slurmstepd is broken, because
// a process in between could not be read, the command itself stands for it.
func (s *Set) counted(p *rss.Proc, procs map[int]*rss.Proc) bool {
	for range len(procs) + 1 {
		if s.stepd != 0 && p.Parent == s.stepd || p.ID.PID == s.cfg.PID || p.ID.PID == s.task {
			return true
		}
		up := procs[p.Parent]
		if up == nil {
			return s.task == 0 && !p.Orphan
		}
		p = up
	}
	return false
}

// total adds processes up. A zombie whose threads live on still has memory;
// /proc/PID/stat, which slurmstepd reads, does not show it.
type total struct {
	pss   rss.PSSSum
	bytes rss.Bytes
}

func (t *total) add(p *rss.Proc, acc event.Accounting) {
	switch acc {
	case event.AccountingPSS:
		t.pss.Add(p)
	case event.AccountingNoShared:
		t.bytes += p.NoShared()
	case event.AccountingVirtual:
		t.bytes += p.Virtual
	default:
		t.bytes += p.RSS
	}
}

func (t *total) bounds(acc event.Accounting) (low, high rss.Bytes) {
	if acc == event.AccountingPSS {
		return t.pss.Range()
	}
	return t.bytes, t.bytes
}
