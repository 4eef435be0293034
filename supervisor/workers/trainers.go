package workers

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

type Trainers []event.Trainer

// Hello says whether the hook is in a process.
func (all Trainers) Hello(id rss.ProcID) bool {
	return slices.ContainsFunc(all, func(t event.Trainer) bool { return t.ID == id })
}

// loader says whether a DataLoader is like this.
func (all Trainers) loader(like func(*event.DataLoader) bool) bool {
	for i := range all {
		for j := range all[i].Loaders {
			if like(&all[i].Loaders[j]) {
				return true
			}
		}
	}
	return false
}

// Recycling says that a worker is being replaced, by a rule or on request.
func (all Trainers) Recycling() bool {
	return all.loader(func(l *event.DataLoader) bool { return l.Starting != 0 || len(l.Leaving) > 0 })
}

// leaves says that a worker was replaced and still lives.
func (all Trainers) leaves(pid int) bool {
	return all.loader(func(l *event.DataLoader) bool { return slices.Contains(l.Leaving, pid) })
}

// Stays says why workers that are there are not replaced, empty where there are none or none
// of their loaders and pools says so.
func (all Trainers) Stays() (why string) {
	for _, t := range all {
		for _, l := range t.Loaders {
			if !t.Off && !l.CanRecycle && len(l.Workers) > 0 && why == "" {
				why = l.Why
			}
		}
	}
	return why
}

// ResendPause forecasts how long a trainer stands still to send the data set to a
// replacement of that worker, which is as long as it took the last time; 0 for a worker
// that is forked. The workers of an iterable data set are replaced between two epochs.
func (all Trainers) ResendPause(worker int) (pause time.Duration) {
	all.loader(func(l *event.DataLoader) bool {
		if l.Unforked == nil || l.Kind != "map" || !slices.Contains(l.Workers, worker) {
			return false
		}
		pause = max(l.Unforked.Took, 1)
		return true
	})
	return pause
}

// Helped says that a fork helper starts the replacement of that worker: its trainer goes on
// meanwhile.
func (all Trainers) Helped(worker int) bool {
	return all.loader(func(l *event.DataLoader) bool { return l.Helper != 0 && slices.Contains(l.Workers, worker) })
}

// Collectors returns the processes that can be asked to collect garbage: trainers that
// take batches, and their workers.
func (all Trainers) Collectors() (pids, trainers []int) {
	for _, t := range all {
		if len(t.Loaders) == 0 || t.Off {
			continue
		}
		if t.TakesBatches() {
			trainers = append(trainers, t.ID.PID)
			pids = append(pids, t.ID.PID)
		}
		for _, l := range t.Loaders {
			pids = append(pids, l.Workers...)
		}
	}
	return pids, trainers
}

// NotRecycled is the line that says why nothing is recycled with the torch of a process,
// empty where it can be or where that is not known yet; why is the reason alone.
func (all Trainers) NotRecycled(pid int) (line, why string) {
	for _, t := range all {
		if t.ID.PID == pid && !t.CanRecycle && t.Trial != event.TrialWaiting && t.Torch != "" {
			return fmt.Sprintf("PyTorch %s in process %d: workers are trimmed, not recycled (%s)", t.Torch, pid, t.Why), t.Why
		}
	}
	return "", ""
}

func (w *Workers) Trainers() Trainers { return w.trainers }

func (w *Workers) SetTrainers(all []event.Trainer) { w.trainers = all }

// Training returns those of the processes that said hello which train, by PID:
// each with the role of one; where there is none, the uppermost that are neither
// workers nor agents. Where there is no hook it returns each with the role of one.
func (w *Workers) Training(hookless bool) []*rss.Proc {
	var trainers, others []*rss.Proc
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		switch {
		case !living(p) || !hookless && !w.trainers.Hello(p.ID):
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
		if !slices.ContainsFunc(others, func(q *rss.Proc) bool { return view.Lineage(w.last.Procs).Below(p.ID.PID, q.ID.PID) }) {
			trainers = append(trainers, p)
		}
	}
	return trainers
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

// RaisedFiles is what the hook did for --nofile, as an event and as a line.
func RaisedFiles(s *event.LoaderSaid) (event.Cure, string) {
	c := event.Cure{
		Remedy: event.RemedyNoFile, PID: s.PID, OK: s.Reason == "",
		Before: int64(s.Sharing.Before), After: int64(s.Sharing.MaxFDs), Reason: s.Reason,
	}
	if !c.OK {
		return c, fmt.Sprintf("--nofile: the descriptors of process %d could not be raised from %s: %s", s.PID, text.Digits(uint64(c.Before)), c.Reason)
	}
	line := fmt.Sprintf("--nofile: process %d may have %s descriptors now, %s before", s.PID, text.Digits(uint64(c.After)), text.Digits(uint64(c.Before)))
	if s.Sharing.FDs > s.Sharing.MaxFDs {
		line += fmt.Sprintf("; it will need %s", text.Digits(uint64(s.Sharing.FDs)))
	}
	return c, line
}
