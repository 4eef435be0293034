package supervisor

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
)

// A job of package saveratetest with a clock of its own: the trainer takes batches, workers
// make them and grow, the hook in them follows the ctl file, and an enforcer kills.

// What the hook and processes take, as measured with torch 1.13 and 2.6.
const (
	rateReady   = 30 * time.Millisecond // a forked worker is up
	rateFork    = 5 * time.Millisecond  // the trainer stands still for a fork
	rateForkGiB = 9 * time.Millisecond  // … and for the page tables of each GiB
	rateExit    = 15 * time.Millisecond // a worker that was told to end has ended
	rateRecords = 16                    // of a batch: the budget is looked at between them
	rateWorth   = rss.MiB               // the hook's own: a trim that freed less was useless
	rateStep    = 16 * rss.MiB          // … and less growth is not worth another
	rateReport  = 5 * time.Second       // … between two reports of budgets
	rateWarm    = 3                     // batches after which a worker has what it needs of its own
)

// What the holder and the watcher have together.
const (
	oursAnon = 10 * rss.MiB
	oursFile = 12 * rss.MiB
)

// rateWorker is one worker process.
type rateWorker struct {
	saveratetest.Worker
	pid      int
	start    time.Duration
	owed     int           // batches it was given and the trainer has not got
	told     time.Duration // when it was told to end, 0 for not yet
	above    rss.Bytes     // a budget counts from here on
	trims    int           // not reported yet
	freed    rss.Bytes
	reported time.Duration
	met      uint64    // the newest trim request
	warm     rss.Bytes // of what it will need of its own, what it has
	made     int       // batches
	half     rss.Bytes // what it had when it reported what it has of its own, or after three
}

// rateTask is one recycle on its way.
type rateTask struct {
	id     uint64
	k      int
	mode   event.Mode
	old    *rateWorker
	fresh  *rateWorker
	ready  time.Duration
	paused time.Duration
}

// rateCtl is the file that the watcher writes.
type rateCtl struct {
	Budget rss.Bytes `json:"budget"`
	Trim   []struct {
		ID   uint64 `json:"id"`
		PIDs []int  `json:"pids"`
	} `json:"trim"`
	Recycle []rateRecycle `json:"recycle"`
}

type rateRecycle struct {
	ID     uint64     `json:"id"`
	Worker int        `json:"worker"`
	Mode   event.Mode `json:"mode"`
}

// rateWorld is the job.
type rateWorld struct {
	*saveratetest.Spec
	trainerPID int
	wrapped    bool
	poll       time.Duration // when slurmstepd looks next

	now     time.Duration
	next    time.Duration // when the trainer takes its next batch
	step    int
	turn    int // worker id that is given the next batch
	skipped int // worker id that is given none, -1 for all are
	workers []*rateWorker
	owners  []*rateWorker // of the batches that were given out, in order
	task    *rateTask
	leaving []*rateTask
	nextPID int

	ctl      rateCtl
	accepted map[uint64]bool
	todo     []rateRecycle
	said     [][]byte      // lines of the log that were not read yet
	killed   bool          // the enforcer has
	peak     rss.Bytes     // the most that the enforcer could see
	stalls   time.Duration // in which the trainer paused for us
	late     int           // recycles begun after each worker had made three batches
}

func newRateWorld(s *saveratetest.Spec, trainerPID int, wrapped bool) *rateWorld {
	w := &rateWorld{
		Spec: s, trainerPID: trainerPID, wrapped: wrapped, next: s.Ramp, skipped: -1, nextPID: 5000100, accepted: map[uint64]bool{},
		// Slurm's polls and the job's begin have nothing to do with each other.
		poll: time.Duration(float64(s.Poll) * math.Mod(float64(s.Seed)*0.618, 1)),
	}
	return w
}

func (w *rateWorld) over() bool { return w.killed || w.step >= w.Steps }

// advance lets time pass until then, or less where the hook says something first.
func (w *rateWorld) advance(until time.Duration) {
	for !w.over() && len(w.said) == 0 {
		at := min(until, w.next)
		if !w.Accounting.Kernel() {
			at = min(at, w.poll)
		}
		if w.step == 0 {
			at = min(at, w.now+100*time.Millisecond) // the ramp has no steps
		}
		w.now = max(w.now, at)
		if w.now >= w.next {
			w.batch()
		}
		w.enforce()
		if w.now >= until {
			return
		}
	}
}

// batch is one call of the trainer for its next batch.
func (w *rateWorld) batch() {
	began := w.now
	if w.workers == nil {
		for k := range w.Workers {
			w.workers = append(w.workers, w.fork())
			w.workers[k].owed = 2
		}
		for i := range 2 * w.Workers {
			w.owners = append(w.owners, w.workers[i%w.Workers])
		}
		w.hello()
		began = w.now // it would have forked these without us
	}
	w.recycles()
	owner := w.owners[0]
	owner.owed--
	w.make(owner)
	w.step++
	for w.turn == w.skipped {
		w.turn = (w.turn + 1) % w.Workers
	}
	given := w.workers[w.turn]
	given.owed++
	w.owners = append(w.owners[1:], given)
	w.turn = (w.turn + 1) % w.Workers
	w.next = w.now + w.Step
	w.stalls += w.now - began
}

// fork starts a worker.
func (w *rateWorld) fork() *rateWorker {
	heap := w.trainer()
	w.now += rateFork + time.Duration(heap.Of(rss.GiB)*float64(rateForkGiB))
	w.nextPID++
	return &rateWorker{Worker: saveratetest.Worker{Heap: heap, Libs: w.WorkerLibs}, pid: w.nextPID, start: w.now}
}

// trainer is what of the trainer is anonymous now.
func (w *rateWorld) trainer() rss.Bytes {
	if w.workers == nil && w.now < w.Ramp {
		return w.Heap.Scale(float64(w.now) / float64(w.Ramp))
	}
	return w.Spec.Trainer(w.step)
}

// make has a worker make a batch: it grows, and meets what the ctl file asks for.
func (w *rateWorld) make(o *rateWorker) {
	o.Copied = min(o.Copied+w.Copy, w.CopyMost)
	warmer := min(w.Fresh-o.warm, w.Fresh/rateWarm+1)
	o.warm += warmer
	o.Private += w.Leak + warmer
	if w.Support == saveratetest.None {
		o.Mapped = min(o.Mapped+w.Map, w.File)
		return
	}
	if o.made++; o.made%3 == 0 && o.made/3&(o.made/3-1) == 0 {
		if o.made >= 6 {
			w.say(o.pid, "grown", fields{"worker": o.pid, "count": o.made, "before": o.half, "after": o.Private})
		}
		o.half = o.Private
	}
	for _, t := range w.ctl.Trim {
		if t.ID > o.met && slices.Contains(t.PIDs, o.pid) {
			o.met = t.ID
			before := o.Libs + o.Mapped
			o.Mapped = 0
			w.say(o.pid, "trimmed", fields{"id": t.ID, "worker": o.pid, "before": before, "after": o.Libs, "count": 1, "why": "request"})
		}
	}
	for range rateRecords {
		o.Mapped = min(o.Mapped+w.Map/rateRecords, w.File)
		if has := o.Libs + o.Mapped; w.ctl.Budget > 0 && has > max(w.ctl.Budget, o.above) {
			o.Mapped = 0
			if o.above = o.Libs + rateStep; has-o.Libs < rateWorth {
				o.above = o.Libs + max(rateStep, o.Libs/8)
				continue
			}
			o.trims++
			o.freed += has - o.Libs
			if w.now-o.reported >= rateReport {
				w.say(o.pid, "trimmed", fields{"worker": o.pid, "before": has, "after": o.Libs, "count": o.trims, "freed": o.freed, "why": "budget"})
				o.reported, o.trims, o.freed = w.now, 0, 0
			}
		}
	}
}

// memory is what the job has now.
func (w *rateWorld) memory() saveratetest.Memory {
	m := saveratetest.Memory{Trainer: w.trainer(), Libs: w.Libs, File: w.File, Beside: w.Beside}
	for _, p := range w.processes() {
		m.Workers = append(m.Workers, p.Worker)
	}
	return m
}

// processes are the workers that live, those that come or leave included.
func (w *rateWorld) processes() []*rateWorker {
	list := slices.Clone(w.workers)
	if t := w.task; t != nil {
		if t.fresh != nil && !slices.Contains(list, t.fresh) {
			list = append(list, t.fresh)
		}
		if t.told() && w.now >= t.old.told+rateExit {
			list = slices.DeleteFunc(list, func(p *rateWorker) bool { return p == t.old })
		}
	}
	for _, t := range w.leaving {
		if !t.told() || w.now < t.old.told+rateExit {
			list = append(list, t.old)
		}
	}
	return list
}

// used is what the enforcer sees now, ours included.
func (w *rateWorld) used() rss.Bytes {
	m := w.memory()
	used := m.Sum(w.Accounting)
	switch {
	case !w.wrapped:
	case w.Accounting == saveratetest.SlurmRSS:
		used += oursAnon + oursFile
	case w.Accounting == saveratetest.SlurmPSS:
		used += oursAnon + oursFile/2
	default:
		used += oursAnon
	}
	return used
}

// enforce kills where the enforcer would.
func (w *rateWorld) enforce() {
	used := w.used()
	w.peak = max(w.peak, used)
	if w.Accounting.Kernel() {
		w.killed = used > w.Limit
		return
	}
	if w.now >= w.poll {
		w.poll += w.Poll
		w.killed = used > w.Limit
	}
}

func (t *rateTask) told() bool { return t.old.told > 0 }

// fields are those of one line that the hook logs.
type fields map[string]any

func (w *rateWorld) say(pid int, what string, f fields) {
	f["pid"], f["what"], f["n"] = pid, what, 1
	line, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	w.said = append(w.said, line)
}

// hello is what the hook says when the loader is made.
func (w *rateWorld) hello() {
	if w.Support == saveratetest.None {
		return
	}
	var pids []int
	for _, o := range w.workers {
		pids = append(pids, o.pid)
	}
	w.say(w.trainerPID, "iter", fields{
		"kind": "map", "persistent": true, "num_workers": w.Workers, "start": "fork", "can_recycle": w.Support == saveratetest.Recycle, "why": "", "workers": pids,
	})
}

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
