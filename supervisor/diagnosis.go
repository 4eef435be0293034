package supervisor

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// diagnosing is the state of it.
type diagnosing struct {
	state  *diagnosis.State
	reader *observe.Smaps
	at     time.Duration
}

// diagnoseEvery is how often, as a recorded sample: a diagnosis is about minutes.
const diagnoseEvery = time.Second

func newDiagnosing(proc string) diagnosing {
	return diagnosing{state: diagnosis.New(), reader: observe.NewSmaps(proc)}
}

// diagnose takes in the last look, where that is due.
func (w *watcher) diagnose() {
	d, now := &w.diagnosis, w.now()
	if d.state == nil || now-d.at < diagnoseEvery-sameWake && d.at > 0 {
		return
	}
	d.at = now
	l := diagnosis.Look{At: now, Procs: slices.Clone(w.view.Sample.Procs)}
	diagnosis.Guess(l.Procs)
	b := bindingOf(w.view.Limits)
	if b != nil {
		l.Limit, l.Accounting = b.Limit, b.Accounting
	}
	d.reader.TakeInto(now, &l)
	for _, c := range w.observe.Counts.All() {
		l.Counts = append(l.Counts, diagnosis.Count(c))
	}
	if w.observe.Loader != nil {
		l.Loaders = toldLoaders(w.observe.Workers.Trainers())
	}
	d.state.Add(&l)
	d.reader.AskFirst(now, d.state.Wants(), &w.view.Sample)
	for _, f := range d.state.Findings() {
		w.tell.Finding(now, f, presses(&f, b))
	}
}

// pressing is how full the binding limit is when a finding is told on stderr: with
// much left it can wait for the summary.
const pressing = 0.5

// presses says that a finding is to be told on stderr now, b being the limit that binds.
// What runs out of mappings or descriptors has said so itself.
func presses(f *event.Diagnosis, b *event.Limit) bool {
	return f.Finding != event.FindingSpawn && b != nil && b.Ratio() >= pressing
}

// bindingOf returns the limit that binds, nil where none does.
func bindingOf(limits []event.Limit) *event.Limit {
	for i := range limits {
		if limits[i].Binding {
			return &limits[i]
		}
	}
	return nil
}

// toldLoaders is what the hook has told of DataLoaders.
func toldLoaders(trainers workers.Trainers) (all []diagnosis.Loader) {
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

// because is the weightiest finding for a warning about a memory limit.
func (w *watcher) because(l *event.Limit) string {
	if l == nil || !l.Name.Memory() {
		return ""
	}
	for _, f := range w.diagnosis.state.Findings() {
		if f.Confidence != event.Possible {
			return "; why: " + phrase.Finding(&f)
		}
	}
	return ""
}
