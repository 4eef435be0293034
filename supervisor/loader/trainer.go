package loader

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// What the hooks have said of the processes that they are in, all in all.
type (
	Trainer  = event.Trainer
	Loader   = event.DataLoader
	Unforked = event.Unforked
)

type trainer struct {
	Trainer
	dir     string // its run directory
	log     tail
	ctl     []byte // what its ctl file holds
	gone    bool   // has ended; its log is read once more
	met     bool   // what was asked of it before us is known, and what it said to that
	before  map[uint64]*inherited
	loaders map[int]*Loader
	own     map[int]rss.Bytes // what workers said of their private memory, by PID
	staff   map[int]*poolWorker
}

// helperEnds begins what a trainer says of a fork helper that is of no more use.
const helperEnds = "fork helper: "

func (t *trainer) apply(l *line) {
	if l.What == event.LoaderOff && l.PID == t.ID.PID {
		t.Off, t.OffWhy = true, l.Why
		return
	}
	if l.What == event.LoaderIter {
		t.tried(l)
		if len(t.loaders) < maxLoaders {
			t.loaders[l.N] = &Loader{
				N: l.N, Kind: l.Kind, Persistent: l.Persistent, NumWorkers: l.NumWorkers, Start: l.Start,
				CanRecycle: l.CanRecycle, Why: l.Why, Workers: slices.Clone(l.Workers), Unforked: l.unforked(),
				Helper: l.Helper, Revives: l.Revives,
			}
		}
		return
	}
	if l.What == Private {
		if t.own == nil {
			t.own = map[int]rss.Bytes{}
		}
		if len(t.own) < maxWorkers {
			t.own[l.PID] = rss.Bytes(l.After).Sub(rss.Bytes(l.Before))
		}
		return
	}
	d, ok := t.loaders[l.N]
	if !ok {
		return
	}
	switch l.What {
	case event.LoaderEnded:
		for _, pid := range slices.Concat(d.Workers, d.Leaving) {
			delete(t.own, pid)
		}
		delete(t.loaders, l.N)
	case event.LoaderAccepted:
		if d.Pool {
			t.leaves(d, l)
		}
		if l.Why == string(event.ReasonDeferred) {
			// All its workers are replaced then: there is no more to ask for.
			d.CanRecycle, d.Why = false, l.Why
		}
	case event.LoaderStarted:
		d.Starting, d.Helper = l.New, l.Helper
		if d.Unforked != nil {
			d.Unforked.Took = milliseconds(l.Pause)
		}
	case event.LoaderSwapped:
		replaceWorker(d, l.Worker, l.New)
		if len(d.Leaving) < maxWorkers && !slices.Contains(d.Leaving, l.Worker) {
			d.Leaving = append(d.Leaving, l.Worker)
		}
	case event.LoaderRevives:
		d.Revives = true
	case event.LoaderRevived:
		replaceWorker(d, l.Worker, l.New)
		delete(t.own, l.Worker)
	case event.LoaderRecycled:
		replaceWorker(d, l.Worker, l.New)
		delete(t.own, l.Worker)
		d.Leaving = slices.DeleteFunc(d.Leaving, func(pid int) bool { return pid == l.Worker })
	case event.LoaderRefused:
		if l.New != 0 && l.New == d.Starting {
			d.Starting = 0
		}
		if strings.HasPrefix(l.Why, helperEnds) {
			d.Helper = 0
		} else if strings.HasPrefix(l.Why, string(event.ReasonForkRefused)) {
			d.CanRecycle, d.Why = false, l.Why
		} else if d.Why == string(event.ReasonDeferred) {
			d.CanRecycle, d.Why = true, ""
		}
	}
}

// tried notes what an iterator said of the torch it is made of.
func (t *trainer) tried(l *line) {
	if l.Trial == "" {
		return // it has no workers
	}
	t.Trial, t.Key = l.Trial, l.Key
	switch l.Trial {
	case event.TrialRefused:
		t.CanRecycle, t.Why = false, l.Why
	case event.TrialWaiting:
		t.CanRecycle, t.Why = false, fmt.Sprintf("torch %s has not been tried here", t.Torch)
	default:
		t.CanRecycle, t.Why = true, ""
	}
}

// unforked is what an iter line says about workers that were not forked, nil where they
// were, or with an older hook.
func (l *line) unforked() *Unforked {
	if l.StartBy == "" {
		return nil
	}
	return &Unforked{By: l.StartBy, Took: milliseconds(l.StartMS), Sent: l.Sent, CUDA: l.CUDA, Registered: l.Registered}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func replaceWorker(d *Loader, left, added int) {
	if added != 0 && d.Starting == added {
		d.Starting = 0
	}
	for k, pid := range d.Workers {
		if pid == left {
			d.Workers[k] = added
		}
	}
}

// living returns a copy of the trainer's loaders, oldest first.
func (t *trainer) living() []Loader {
	list := make([]Loader, 0, len(t.loaders))
	for _, d := range t.loaders {
		c := *d
		c.Workers, c.Leaving = slices.Clone(d.Workers), slices.Clone(d.Leaving)
		if d.Unforked != nil {
			u := *d.Unforked
			for _, pid := range d.Workers {
				if own, ok := t.own[pid]; ok {
					u.Own = append(u.Own, own)
				}
			}
			c.Unforked = &u
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Loader) int { return a.N - b.N })
	return list
}

// trimmable lists the processes of the trainer that fetch data: its workers,
// and itself where it loads without any.
func (t *trainer) trimmable() []int {
	var pids []int
	for _, d := range t.living() {
		if d.NumWorkers == 0 {
			if !slices.Contains(pids, t.ID.PID) {
				pids = append(pids, t.ID.PID)
			}
			continue
		}
		pids = append(pids, d.Workers...)
	}
	return pids
}

// collectable lists the processes of the trainer that look at requests: itself,
// where it takes batches, and its workers.
func (t *trainer) collectable() []int {
	pids := t.trimmable()
	r := Trainer{Loaders: t.living()}
	if r.TakesBatches() && !t.Off && !slices.Contains(pids, t.ID.PID) {
		pids = append(pids, t.ID.PID)
	}
	return pids
}
