package tell

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
)

// Findings tells of what the diagnosis finds.
type Findings struct {
	out  *events
	told map[findingKey]toldFinding
}

// findingKey is what there is one finding of at a time.
type findingKey struct {
	finding event.Finding
	role    rss.Role
}

// toldFinding is a finding as it was told last.
type toldFinding struct {
	trust float64   // the most it was trusted
	bytes rss.Bytes // what it had cost then
	said  bool      // … on stderr
	file  string    // … naming that file
}

// pressing is how full the binding limit is when a finding is written to stderr: with
// much left it can wait for the summary.
const pressing = 0.5

// Tell tells of what a diagnosis has found, binding being the limit that binds, nil for
// none. What runs out of mappings or descriptors has said so itself.
func (f *Findings) Tell(now time.Duration, all []event.Diagnosis, binding *event.Limit) {
	for _, d := range all {
		f.tell(now, d, d.Finding != event.FindingSpawn && binding != nil && binding.Ratio() >= pressing)
	}
}

// tell tells of a finding where it is new, more certain, or has cost twice as much, and
// in a line once it presses. What is only possible waits for the end.
func (f *Findings) tell(now time.Duration, d event.Diagnosis, presses bool) {
	if d.Confidence == event.Possible {
		return
	}
	key := findingKey{d.Finding, d.Role}
	t, told := f.told[key]
	if !told || d.Confidence.Trust() > t.trust || d.Bytes >= max(2*t.bytes, 1) {
		t.trust, t.bytes = max(t.trust, d.Confidence.Trust()), max(t.bytes, d.Bytes)
		f.out.Put(event.NameDiagnosis, func(h event.Head) any { d.Head = h; return d })
	}
	if presses && (!t.said || d.File != "" && t.file != d.File) {
		t.said, t.file = true, d.File
		f.out.Say(now, "growth line", phrase.Growth(&d))
	}
	if f.told == nil {
		f.told = map[findingKey]toldFinding{}
	}
	f.told[key] = t
}

// Last tells as events what stands at the end and was only possible so far: it
// might have been taken back.
func (f *Findings) Last(all []event.Diagnosis) {
	for _, d := range all {
		if _, told := f.told[findingKey{d.Finding, d.Role}]; !told {
			f.out.Put(event.NameDiagnosis, func(h event.Head) any { d.Head = h; return d })
		}
	}
}
