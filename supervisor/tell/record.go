package tell

import (
	"errors"
	"os"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
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

// Open lists the run as one that runs, and begins its record, in the directory of the settings or, by
// [settings.RecordAuto], where one is found once there is something to keep. In a directory
// that cannot hold it, as was told, there is a journal alone. What killed watchers before may
// have been the record, so the last that is started has none.
func (r *Record) Open(command rss.ProcID, attempt int, last bool) {
	fault := r.out.set.RecordFault
	places, ok := r.places()
	if ok && attempt <= 1 {
		// Where that fails, so does the line of the end, which says so.
		entry := r.out.Run.indexEntry(nil, 0)
		probe.Run(func() { _ = record.AppendIndex(places, entry) })
	}
	if !ok || last && attempt > 1 {
		return
	}
	r.out.Run.Process = command
	opt := store.Options{Meta: r.out.Run.meta(), Places: places, Attempt: attempt}
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

// Takes implements [Sink]: the record has samples of its own.
func (r *Record) Takes(name event.Name) bool {
	return r.out.Recorder != nil && name != event.NameSample
}

// Event implements [Sink].
func (r *Record) Event(name event.Name, v any) { r.out.Recorder.Event(name, v) }

// places are where the run is recorded; ok is false where it is not to be.
func (r *Record) places() (p record.Places, ok bool) {
	dir := r.out.set.Record
	if r.out.Run.ID == "" || dir == settings.RecordNone {
		return p, false
	}
	p = record.DefaultPlaces(r.out.Run.Lookup, os.Geteuid())
	if dir != "" && dir != settings.RecordAuto {
		p.Records, p.Chosen = []string{dir}, true
	}
	return p, true
}

// list adds how the run ended, whatever came of it. It waits for at most so long: the file system
// may hang.
func (r *Record) list(exit *event.Exit, sums record.IndexSums, took, now, within time.Duration) {
	places, ok := r.places()
	if !ok {
		return
	}
	entry := r.out.Run.indexEntry(exit, took)
	entry.IndexSums = sums
	done := make(chan error, 1)
	probe.Run(func() { done <- record.AppendIndex(places, entry) })
	select {
	case err := <-done:
		if err != nil {
			r.out.Fault(now, "index", err)
		}
	case <-time.After(within):
		r.out.Fault(now, "index", errors.New("the run may not be in the list of runs: the file system of its index does not answer"))
	}
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
