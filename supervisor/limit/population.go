package limit

import (
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// findStepd walks up from us to slurmstepd, and to the task it started: its
// child. In a PID namespace of the job's own, or under hidepid, slurmstepd
// cannot be seen; the topmost process that can is the task then.
func (s *step) findStepd() {
	for i, err := range proctree.Parents(s.cfg.Proc, s.cfg.PID) {
		if err != nil {
			break
		}
		switch {
		case s.task == 0:
		case strings.HasPrefix(i.Comm, stepdName):
			s.look("parents", "task %d, child of slurmstepd %d", s.task, s.stepd)
			return
		case i.ID.PID <= 1:
			s.task, s.stepd = 0, 0
			s.look("parents", "no slurmstepd above process %d", s.cfg.PID)
			return
		}
		s.task, s.stepd = i.ID.PID, i.Parent
	}
	s.look("parents", "task %d; its parent %d cannot be seen", s.task, s.stepd)
}

// Extra reads the processes that a limit counts beside the tree: ourselves and,
// where slurmstepd sums over the step, all else that descends from it. Call it
// after the reader's Tree, with what that returned. The error is that of
// [proctree.Reader.Group].
func (s *step) Extra(r *proctree.Reader, tree []rss.Proc) ([]rss.Proc, rss.Gaps, error) {
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
func (s *step) stepSum(sample *rss.Sample, e *event.Limit) {
	procs := make(map[int]*rss.Proc, len(sample.Procs)+len(sample.Extra))
	for _, list := range [][]rss.Proc{sample.Procs, sample.Extra} {
		for i := range list {
			procs[list[i].ID.PID] = &list[i]
		}
	}
	var sum total
	for _, p := range procs {
		if s.counted(p, procs) && p.State != 'Z' {
			sum.add(p, e.Accounting)
		}
	}
	sum.put(e, sample.Mono)
	e.UsedSource = sumSource[e.Accounting]
}

// counted walks up the parents. Where the way to slurmstepd is broken, because
// a process in between could not be read, the command itself stands for it.
func (s *step) counted(p *rss.Proc, procs map[int]*rss.Proc) bool {
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
	read  bool          // PSS of any
	first time.Duration // … and when, of the oldest
	files event.FilePages
}

func (t *total) add(p *rss.Proc, acc event.Accounting) {
	switch acc {
	case event.AccountingPSS:
		t.pss.Add(p)
		low, _ := p.PSSFile()
		// A page that several have mapped counts once: they map the same files.
		t.files = event.FilePages{Now: t.files.Now + low, Most: max(t.files.Most, p.FileMost)}
		if p.PSS != nil && (!t.read || p.PSS.At < t.first) {
			t.read, t.first = true, p.PSS.At
		}
	case event.AccountingNoShared:
		t.bytes += p.NoShared()
	case event.AccountingVirtual:
		t.bytes += p.Virtual
	default:
		t.bytes += p.RSS
		t.files = event.FilePages{Now: t.files.Now + p.File, Most: t.files.Most + p.FileMost}
	}
}

func (t *total) put(e *event.Limit, now time.Duration) {
	e.Used, e.UsedMax, e.Age, e.Files = t.bytes, t.bytes, 0, t.files
	if e.Accounting != event.AccountingPSS {
		return
	}
	e.Used, e.UsedMax = t.pss.Range()
	if t.read {
		e.Age = max(now-t.first, 0).Seconds()
	}
}
