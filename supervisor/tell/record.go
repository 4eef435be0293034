package tell

import (
	"os"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// recordEvery is the least time between two samples of the record, but for those at a
// decision.
const recordEvery = time.Second

// Record is the record of a run, and which looks it gets.
type Record struct {
	out *events
	at  time.Duration // of the last sample that was due by its time
	seq uint64        // of the last look
}

// Open begins the record of the run, in the directory of the settings or, by
// [settings.RecordAuto], where one is found once there is something to keep. In a directory
// that cannot hold it, as was told, there is a journal alone. What killed watchers before may
// have been the record, so the last that is started has none.
func (r *Record) Open(command rss.ProcID, attempt int, last bool) {
	dir, fault := r.out.set.Record, r.out.set.RecordFault
	if r.out.Run.ID == "" || dir == settings.RecordNone || last && attempt > 1 {
		return
	}
	if dir == settings.RecordAuto {
		dir = ""
	}
	r.out.Run.Process = command
	opt := store.Options{Meta: r.out.Run.meta(), Places: record.DefaultPlaces(r.out.Run.Lookup, os.Geteuid()), Attempt: attempt, AtOnce: dir != ""}
	if dir != "" {
		opt.Places.Records, opt.Places.Chosen = []string{dir}, true
	}
	if fault != "" {
		opt.Places.Records = nil
	}
	opt.Fault = func(part string, err error) {
		if part != "record" || fault == "" {
			r.out.failed.tell(part, err.Error())
		}
	}
	r.out.Recorder = store.New(opt)
}

// due says whether the record takes the look of that number: each one once, at most one
// in every, and each at a decision.
func (r *Record) due(now, every time.Duration, seq uint64, atDecision bool) bool {
	if r.out.Recorder == nil || r.seq == seq && !atDecision {
		return false
	}
	if !atDecision {
		if now-r.at < every-early && r.seq != 0 {
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
	if r.out.Recorder == nil {
		return
	}
	if keep {
		r.out.Recorder.Begin()
	}
	r.out.Recorder.Close(within)
}
