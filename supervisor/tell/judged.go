package tell

import (
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// Judged notes what a judgement was given where it has changed what the ladder remembers: what
// an action could do rests on loaders, ptrace and much else that no record has.
func (f *Fan) Judged(in *policy.Input, j *policy.Judgement) {
	if !j.Moved {
		return
	}
	f.judged++ // where nothing is recorded, too: a record that begins later has not all
	f.Note(event.NameJudged, func(h event.Head) any {
		e := policy.Record(in, j)
		e.Head, e.N = h, f.judged
		return e
	})
}
