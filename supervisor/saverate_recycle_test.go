package supervisor

import (
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
)

// The part of the made-up hook that replaces workers, as loader/hook/_rsswarden/recycle.py
// does: in the trainer, at its calls for the next batch, one worker at a time.

// asked takes in a ctl file.
func (w *rateWorld) asked(c rateCtl) {
	if w.Support != saveratetest.None {
		w.ctl = c
	}
}

// recycles takes what is under way one step on, and begins what was asked for.
func (w *rateWorld) recycles() {
	for _, r := range w.ctl.Recycle {
		if !w.accepted[r.ID] {
			w.accepted[r.ID] = true
			w.todo = append(w.todo, r)
			w.say(w.trainerPID, "accepted", fields{"id": r.ID, "worker": r.Worker, "mode": r.Mode})
		}
	}
	began := w.now
	busy := w.task
	if len(w.leaving) > 0 {
		busy = w.leaving[0]
		w.reap()
	}
	if w.task != nil {
		w.recycleStep()
	}
	if len(w.todo) > 0 && w.task == nil && len(w.leaving) == 0 {
		r := w.todo[0]
		w.todo = w.todo[1:]
		w.begin(r.ID, r.Worker, r.Mode)
		busy = w.task
	}
	if busy != nil {
		busy.paused += w.now - began
	}
}

func (w *rateWorld) begin(id uint64, pid int, mode event.Mode) {
	k := slices.IndexFunc(w.workers, func(o *rateWorker) bool { return o.pid == pid })
	if k < 0 {
		w.say(w.trainerPID, "refused", fields{"id": id, "worker": pid, "why": "process has ended"})
		return
	}
	if len(w.workers) < 2 {
		mode = event.Swap
	}
	if w.step >= rateWarm*w.Workers {
		w.late++
	}
	w.task = &rateTask{id: id, k: k, mode: mode, old: w.workers[k]}
	if mode == event.Drain {
		w.skipped = k
		w.recycleStep()
		return
	}
	w.replacement()
}

func (w *rateWorld) replacement() {
	t := w.task
	t.fresh = w.fork()
	t.ready = w.now + rateReady
	w.sayTask("started", t, fields{})
}

func (w *rateWorld) sayTask(what string, t *rateTask, f fields) {
	f["id"], f["k"], f["worker"], f["new"], f["mode"], f["pause_ms"] = t.id, t.k, t.old.pid, t.fresh.pid, t.mode, t.paused.Seconds()*1e3
	w.say(w.trainerPID, what, f)
}

func (w *rateWorld) recycleStep() {
	t := w.task
	up := t.fresh != nil && w.now >= t.ready
	switch {
	case t.mode == event.Swap && up:
		w.workers[t.k] = t.fresh
		w.leaving, w.task = append(w.leaving, t), nil
		w.sayTask("swapped", t, fields{})
		w.reap()
	case t.mode == event.Swap:
	case up:
		w.workers[t.k] = t.fresh
		w.task, w.skipped = nil, -1
		w.sayTask("recycled", t, fields{"exit": 0})
	case t.fresh != nil:
	case t.told() && w.now >= t.old.told+rateExit:
		w.replacement()
	case !t.told() && t.old.owed == 0:
		t.old.told = w.now
	}
}

// reap ends the workers that were replaced once they owe nothing.
func (w *rateWorld) reap() {
	for _, t := range slices.Clone(w.leaving) {
		if !t.told() && t.old.owed == 0 {
			t.old.told = w.now
		}
		if t.told() && w.now >= t.old.told+rateExit {
			w.leaving = slices.DeleteFunc(w.leaving, func(o *rateTask) bool { return o == t })
			w.sayTask("recycled", t, fields{"exit": 0})
		}
	}
}
