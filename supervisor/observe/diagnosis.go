package observe

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// Diagnosis finds out what fills memory, with reads of its own.
type Diagnosis struct {
	State  *diagnosis.State // nil until Open
	reader *Smaps
	at     time.Duration
}

// diagnoseEvery is how often, as a recorded sample: a diagnosis is about minutes.
const diagnoseEvery = time.Second

// Busy says that something is being read for it.
func (d *Diagnosis) Busy() bool { return d.reader.Busy() }

// Diagnose takes in a view and returns what is found now, where that is due or may come
// early by tolerance.
func (o *Observer) Diagnose(now, tolerance time.Duration, v *view.View) []event.Diagnosis {
	d := &o.Diagnosis
	if d.State == nil || now-d.at < diagnoseEvery-tolerance && d.at > 0 {
		return nil
	}
	d.at = now
	l := diagnosis.Look{At: now, Procs: slices.Clone(v.Sample.Procs)}
	diagnosis.Guess(l.Procs)
	if b := v.Binding(); b != nil {
		l.Limit, l.Accounting = b.Limit, b.Accounting
	}
	d.reader.TakeInto(now, &l)
	for _, c := range o.Counts.All() {
		l.Counts = append(l.Counts, diagnosis.Count(c))
	}
	if o.Loader != nil {
		l.Loaders = loadersOf(o.Workers.Trainers())
	}
	d.State.Add(&l)
	d.reader.AskFirst(now, d.State.Wants(), &v.Sample)
	return d.State.Findings()
}

// loadersOf is what the hook has reported about DataLoaders.
func loadersOf(trainers workers.Trainers) (all []diagnosis.Loader) {
	for _, t := range trainers {
		for _, l := range t.Loaders {
			one := diagnosis.Loader{PID: t.ID.PID, Workers: l.NumWorkers, Method: l.Start, Persistent: l.Persistent}
			if u := l.Unforked; u != nil {
				one.By, one.Python, one.Sent, one.Own, one.CUDA, one.Registered = u.By, t.Python, u.Sent, u.Own, u.CUDA, u.Registered
			}
			all = append(all, one)
		}
	}
	return all
}
