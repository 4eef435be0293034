package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file says why memory grows, while the job runs: it feeds [diagnosis.State]
// with what the loop sees, has read what that wants, and tells what it finds.

// diagnosing is the state of it.
type diagnosing struct {
	state  *diagnosis.State
	reader *closeReader
	at     time.Duration
	told   map[findingKey]*toldFinding
}

// toldFinding is a finding as it was told last.
type toldFinding struct {
	trust float64   // the most it was trusted
	bytes rss.Bytes // what it had cost then
	at    time.Duration
	said  bool // … on stderr
}

// findingKey is what there is one finding of at a time.
type findingKey struct {
	finding event.Finding
	role    rss.Role
}

// diagnoseEvery is how often, as a recorded sample: a diagnosis is about minutes.
const diagnoseEvery = time.Second

func newDiagnosing(proc string) diagnosing {
	return diagnosing{state: diagnosis.New(diagnosis.Options{}), reader: newCloseReader(proc), told: map[findingKey]*toldFinding{}}
}

// diagnose takes in the last look, where that is due.
func (w *watcher) diagnose() {
	d, now := &w.diagnosis, w.now()
	if d.state == nil || now-d.at < diagnoseEvery-sameWake && d.at > 0 {
		return
	}
	d.at = now
	l := diagnosis.Look{At: now, Procs: slices.Clone(w.last.Procs)}
	diagnosis.Guess(l.Procs)
	if b := bindingOf(w.readings); b != nil {
		l.Limit, l.Accounting = b.Limit, b.Accounting
	}
	d.reader.taken(now, &l)
	l.Counts = w.counts.all()
	if w.loader != nil {
		l.Loaders = w.toldLoaders()
	}
	d.state.Add(&l)
	d.reader.ask(now, d.state.Wants(), &w.last)
	for _, f := range d.state.Findings() {
		w.found(f)
	}
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
func (w *watcher) toldLoaders() (all []diagnosis.Loader) {
	for _, t := range w.workers.trainers {
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

// found tells of a finding where it is new, more certain, or has cost twice as
// much. What is only possible waits for the end.
func (w *watcher) found(f event.Diagnosis) {
	if f.Confidence == event.Possible {
		return
	}
	key := findingKey{f.Finding, f.Role}
	t := w.diagnosis.told[key]
	if t == nil || f.Confidence.Trust() > t.trust || f.Bytes >= max(2*t.bytes, 1) {
		if t == nil {
			t = &toldFinding{}
			w.diagnosis.told[key] = t
		}
		t.trust, t.bytes, t.at = max(t.trust, f.Confidence.Trust()), max(t.bytes, f.Bytes), w.now()
		w.tell.Put(event.NameDiagnosis, func(h event.Head) any { f.Head = h; return f })
	}
	if !t.said && w.presses(&f) {
		t.said = true
		w.tell.Say(w.now(), "diagnosis", why(&f))
	}
}

// lastFindings tells as events what stands at the end and was only possible so
// far: it might have been taken back.
func (w *watcher) lastFindings() {
	if w.diagnosis.state == nil {
		return
	}
	for _, f := range w.diagnosis.state.Findings() {
		if _, told := w.diagnosis.told[findingKey{f.Finding, f.Role}]; !told {
			w.tell.Put(event.NameDiagnosis, func(h event.Head) any { f.Head = h; return f })
		}
	}
}

// pressing is how full the binding limit is when a finding is told on stderr: with
// much left it can wait for the summary.
const pressing = 0.5

// presses says that a finding is to be told on stderr now. What runs out of
// mappings or descriptors has said so itself.
func (w *watcher) presses(f *event.Diagnosis) bool {
	if f.Finding == event.FindingSpawn {
		return false
	}
	b := bindingOf(w.readings)
	return b != nil && b.Ratio() >= pressing
}

// why words a finding: what it is, what speaks for it, what to change.
func why(f *event.Diagnosis) string {
	text := string(f.Finding)
	if f.Confidence != event.Certain {
		text += ", " + string(f.Confidence)
	}
	if len(f.Evidence) > 0 {
		text += ": " + strings.Join(f.Evidence[:min(len(f.Evidence), mostWords)], "; ")
	}
	if len(f.Advice) > 0 {
		text += "; do: " + strings.Join(f.Advice[:min(len(f.Advice), mostWords)], "; or: ")
	}
	return text
}

// mostWords is how much of the evidence and of the advice a line has. The event
// has all.
const mostWords = 2

// mostFindings is how many of them the summary tells.
const mostFindings = 3

// findingLines tells in the summary what was found, the weightiest first.
func (w *watcher) findingLines() (lines []string) {
	if w.diagnosis.state == nil {
		return nil
	}
	for _, f := range w.diagnosis.state.Findings() {
		if len(lines) < mostFindings {
			lines = append(lines, "why: "+why(&f))
		}
	}
	return lines
}

// because is the weightiest finding for a warning about a memory limit.
func (w *watcher) because(l *event.Limit) string {
	if w.diagnosis.state == nil || l == nil || !l.Name.Memory() {
		return ""
	}
	for _, f := range w.diagnosis.state.Findings() {
		if f.Confidence != event.Possible {
			return fmt.Sprintf("; why: %s", why(&f))
		}
	}
	return ""
}
