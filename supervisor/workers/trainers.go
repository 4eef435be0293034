package workers

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
)

// Trainers returns the processes that said hello, as of the last SetTrainers.
func (w *Workers) Trainers() []event.Trainer { return w.trainers }

// SetTrainers takes in what the hooks have said by now.
func (w *Workers) SetTrainers(all []event.Trainer) { w.trainers = all }

// Hello says whether the hook is in a process.
func (w *Workers) Hello(id rss.ProcID) bool {
	return slices.ContainsFunc(w.trainers, func(t event.Trainer) bool { return t.ID == id })
}

// Training returns those of the processes that said hello which train, by PID:
// each with the role of one; where there is none, the uppermost that are neither
// workers nor agents. Where there is no hook it returns each with the role of one.
func (w *Workers) Training(hookless bool) []*rss.Proc {
	var trainers, others []*rss.Proc
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		switch {
		case !living(p) || !hookless && !w.Hello(p.ID):
		case p.Role == rss.RoleTrainer:
			trainers = append(trainers, p)
		case plain(p):
			others = append(others, p)
		}
	}
	if len(trainers) > 0 || hookless {
		return trainers
	}
	for _, p := range others {
		if !slices.ContainsFunc(others, func(q *rss.Proc) bool { return below(w.last, p.ID.PID, q.ID.PID) }) {
			trainers = append(trainers, p)
		}
	}
	return trainers
}

// below says whether the process descends from the other.
func below(s *rss.Sample, pid, other int) bool {
	for range 64 { // a tree is not that deep
		p := s.Find(pid)
		if p == nil || p.Parent == pid {
			return false
		}
		if pid = p.Parent; pid == other {
			return true
		}
	}
	return false
}

// Unsure says that one of these may turn out to be an agent, an agent to be a trainer, or
// another to be a rank beside these: environments have not been read yet. It does not
// outlast their youth, whatever else is started.
func (w *Workers) Unsure(all []*rss.Proc) bool {
	r := &w.roles
	young := slices.ContainsFunc(all, func(p *rss.Proc) bool { return !r.places.late(p, w.last.Mono) })
	return len(r.open) > 0 || young && w.Unread()
}

// Unread says that the environment of a process has not been read yet.
func (w *Workers) Unread() bool {
	return slices.ContainsFunc(w.last.Procs, func(p rss.Proc) bool {
		_, read := w.roles.places.of(&p)
		return !read && living(&p)
	})
}

// Rank0 leaves of the processes those of rank 0. Where there is none, why says so, and
// later that it will be known in a moment.
func (w *Workers) Rank0(all []*rss.Proc) (zero []*rss.Proc, why string, later bool) {
	r := &w.roles
	var unknown []*rss.Proc
	unread := false
	for _, p := range all {
		at, read := r.places.of(p)
		if r.leads[p.ID] && at.local < 0 {
			at.local = 0
		}
		is, known := at.zero()
		switch {
		case known && is:
			zero = append(zero, p)
		case !known:
			unknown = append(unknown, p)
			unread = unread || !read
			later = later || !read && !r.places.late(p, w.last.Mono)
		}
	}
	switch {
	case len(zero) > 0:
		return zero, "", false
	case unread:
		return nil, "the environment of " + phrase.Processes(unknown) + " cannot be read", later
	case len(unknown) > 0:
		return nil, "no RANK, LOCAL_RANK or SLURM_PROCID in the environment of " + phrase.Processes(unknown), later
	case len(all) == 1:
		return nil, phrase.Processes(all) + " is of another rank", later
	}
	return nil, phrase.Processes(all) + " are of other ranks", later
}

// Collectors returns the processes that can be asked to collect garbage: trainers that
// take batches, and their workers.
func (w *Workers) Collectors() (pids, trainers []int) {
	for _, t := range w.trainers {
		if len(t.Loaders) == 0 || t.Off {
			continue
		}
		trainers = append(trainers, t.ID.PID)
		pids = append(pids, t.ID.PID)
		for _, l := range t.Loaders {
			pids = append(pids, l.Workers...)
		}
	}
	return pids, trainers
}

// Recycling says that a worker is being replaced, whoever asked for it.
func (w *Workers) Recycling() bool {
	return slices.ContainsFunc(w.trainers, func(t event.Trainer) bool {
		return slices.ContainsFunc(t.Loaders, func(l event.DataLoader) bool { return l.Starting != 0 || len(l.Leaving) > 0 })
	})
}
