package tell

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
)

// Recorder is [store.Recorder] outside tests.
type Recorder interface {
	Sample(*record.Look)
	Event(event.Name, any)
	Begin()
	Close(patience time.Duration)
}

// Record is the record of a run, and which looks it gets.
type Record struct {
	To  Recorder      // nil where nothing is recorded
	at  time.Duration // of the last sample that was due by its time
	seq uint64        // of the last look
}

// OpenRecord begins a record. A fault of the part silent is not told.
func (f *Fan) OpenRecord(opt store.Options, silent string) {
	opt.Fault = func(part string, err error) {
		if part != silent {
			f.failed.tell(part, err.Error())
		}
	}
	f.Record.To, f.Helps.note = store.New(opt), f.Note
}

// Due says whether the record takes the look of that number: each one once, at most one
// in every, and each at a decision.
func (r *Record) Due(now, every time.Duration, seq uint64, atDecision bool) bool {
	if r.To == nil || r.seq == seq && !atDecision {
		return false
	}
	if !atDecision {
		if now-r.at < every && r.seq != 0 {
			return false
		}
		r.at = now
	}
	r.seq = seq
	return true
}

// Close writes what is left, for at most so long. A short run that met nothing leaves
// nothing behind, unless keep says so.
func (r *Record) Close(keep bool, within time.Duration) {
	if r.To == nil {
		return
	}
	if keep {
		r.To.Begin()
	}
	r.To.Close(within)
}
