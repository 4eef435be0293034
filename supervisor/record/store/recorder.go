package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

const (
	// quiet is how long a run leaves nothing on disk while no rule fires.
	quiet = time.Minute
	// mostWaiting bounds what waits for storage that does not take it: 1 MiB is
	// hours of a quiet tree.
	mostWaiting = 1 << 20
	// syncEvery is the longest time between two syncs, syncAfter the shortest.
	syncEvery = time.Minute
	syncAfter = time.Second
	// mostKept is how many bytes of events are never deleted. Those beyond it are treated as
	// routine: a decision may be taken, or a signal come, each second for days.
	mostKept = 1 << 20
	// vanishEvery is how often it is checked that the file is still there.
	vanishEvery = 5 * time.Second
)

type Options struct {
	Meta   record.Meta
	Places record.Places // where one was chosen, all is written from the first sample on
	// Attempt is the watcher's, from 1: a later one goes on with the record.
	Attempt int
	// Fault is called, from a goroutine of the recorder's, when a part stops:
	// "record" or "journal". It may be called once for each.
	Fault func(part string, err error)
}

// Recorder writes the record and the journal of one run. Its methods are called
// by one goroutine, and never wait for a disk.
type Recorder struct {
	opt     Options
	sampler record.Sampler
	enc     record.Encoder
	into    record.Sample
	blockAt time.Duration // of the first sample of the block that is being made
	events  uint64
	kept    int // bytes of events that stay
	begun   bool
	journal *record.Journal

	mu      sync.Mutex
	waiting waiting
	lost    int   // items that found no room since that was told
	size    int64 // of the record at most, 0 before it is open
	wake    *wake.Bell
	done    chan struct{}
	closed  bool
}

// waiting is what the record does not have yet.
type waiting struct {
	items []record.Item
	size  int
	grown bool // the block that is being made has samples beyond what was taken
	sync  bool // a decision is among them
	off   bool // the writer has ended
}

func New(opt Options) *Recorder {
	if opt.Fault == nil {
		opt.Fault = func(string, error) {}
	}
	return &Recorder{
		opt: opt, sampler: record.NewSampler(opt.Attempt),
		journal: record.NewJournal(opt.Places.Journals, opt.Meta, func(err error) { opt.Fault("journal", err) }),
		wake:    wake.New(), done: make(chan struct{}),
		events: uint64(max(opt.Attempt, 1)) << 40,
	}
}

// Sample takes one look in. Those in the first minute are kept in memory.
func (r *Recorder) Sample(l *record.Look) {
	r.mu.Lock()
	if r.size > 0 {
		r.sampler.Fit(r.size)
	}
	r.mu.Unlock()
	r.sampler.Sample(l, &r.into)
	r.mu.Lock()
	if r.enc.Full() {
		r.put(record.BlockItem(r.blockAt, r.enc.Block(0)))
	}
	if r.enc.Empty() {
		r.blockAt = max(l.At, r.blockAt+time.Millisecond) // two blocks, two keys
	}
	r.enc.Add(&r.into)
	for _, it := range r.sampler.Take() {
		r.put(it)
	}
	r.waiting.grown = true
	lost := 0
	if r.waiting.size == 0 || r.begun && r.waiting.size < mostWaiting/2 {
		lost, r.lost = r.lost, 0
	}
	r.mu.Unlock()
	r.journal.Sample(l)
	if lost > 0 { // the record says that a part of it is missing
		r.Event(event.NameFault, event.Fault{
			Head: event.Head{V: event.Version, Time: time.Now(), Event: event.NameFault}, Part: "record",
			Error: fmt.Sprintf("its storage took nothing for a while: %d parts of it, samples or events, found no room in memory and are missing", lost),
		})
	}
	if l.At >= quiet || r.opt.Places.Chosen {
		r.Begin()
	}
	r.wake.Ring(0)
}

// Event takes one event in; v is of package event.
func (r *Recorder) Event(name event.Name, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		return
	}
	kind := byte(record.KindEvent)
	switch {
	case name == event.NameStart || name == event.NameExit:
	case record.Routine(name, v), r.kept+len(value) > mostKept:
		kind = record.KindRoutine
	default:
		r.kept += len(value)
	}
	r.events++
	r.mu.Lock()
	r.put(record.Item{Kind: kind, N: r.events, Value: value})
	r.waiting.sync = r.waiting.sync || name == event.NameDecision
	r.mu.Unlock()
	r.journal.Event(name, v, value)
	if name == event.NameDecision {
		r.Begin()
	}
	if name != event.NameLoader && name != event.NameJudged { // decisions and samples bring these along
		r.wake.Ring(0)
	}
}

// put queues an item; the caller holds the lock. Processes and limits, whose numbers are
// bounded, always find room: without them samples would lack processes, and sums be wrong.
func (r *Recorder) put(it record.Item) {
	w := &r.waiting
	if w.off {
		return
	}
	if w.size+len(it.Value) > mostWaiting && it.Kind != record.KindProc && it.Kind != record.KindLimit {
		r.lost++
		return
	}
	w.items = append(w.items, it)
	w.size += len(it.Value)
}

// Begin has what was taken in written from now on. The first decision and a run
// of a minute bring it about too.
func (r *Recorder) Begin() {
	if r.begun {
		return
	}
	r.begun = true
	go r.write()
	r.journal.Begin()
}

// Close writes what is left, for patience at most, and ends the recorder. Where
// nothing was begun nothing is written.
func (r *Recorder) Close(patience time.Duration) {
	if !r.begun {
		return
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wake.Ring(0)
	end := time.After(patience)
	select {
	case <-r.done:
	case <-end:
		return
	}
	r.journal.Close(end)
}

// write is the goroutine that has the record open. Where it fails the journal goes on.
func (r *Recorder) write() {
	defer close(r.done)
	if err := r.writeRecord(); err != nil {
		r.mu.Lock()
		r.waiting = waiting{off: true}
		r.mu.Unlock()
		r.opt.Fault("record", err)
	}
}

func (r *Recorder) writeRecord() error {
	s, live, err := r.openRecord()
	if err != nil {
		return err
	}
	defer s.close()
	defer live.close()
	lastLook, owed := time.Now(), false
	for {
		r.mu.Lock()
		w, closed := r.waiting, r.closed
		r.waiting = waiting{}
		if w.grown {
			w.items = append(w.items, record.BlockItem(r.blockAt, r.enc.Snapshot(0)))
		}
		r.mu.Unlock()
		if len(w.items) > 0 {
			fault.Point("record")
			if err := s.commit(w.items); err != nil {
				return cannotWrite(s.dir, err)
			}
		}
		since := time.Since(s.synced)
		if owed = owed || w.sync; owed && since >= syncAfter || since >= syncEvery {
			begun, err := s.sync()
			if err != nil {
				return cannotWrite(s.dir, err)
			}
			owed = owed && !begun
		}
		if time.Since(lastLook) >= vanishEvery {
			lastLook = time.Now()
			if s.vanished() {
				return cannotWrite(s.dir, errVanished)
			}
		}
		if closed {
			return nil
		}
		<-r.wake.C()
	}
}

func (r *Recorder) openRecord() (*database, *live, error) {
	dir, size, err := makeDir(r.opt.Places, r.opt.Meta.ID, r.opt.Attempt)
	if err != nil {
		return nil, nil, err
	}
	s, err := openDatabase(dir, size)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	r.size = size
	r.mu.Unlock()
	meta := r.opt.Meta
	meta.V, meta.Record = record.Version, dir.Name()
	value, err := json.Marshal(meta)
	if err == nil {
		err = s.commit([]record.Item{{Kind: record.KindMeta, Value: value}})
	}
	if err != nil {
		s.close()
		return nil, nil, cannotWrite(dir, err)
	}
	r.journal.Record(meta)
	return s, listen(s), nil
}

var errVanished = errors.New("its file was taken away")

func cannotWrite(dir *os.File, err error) error {
	return fmt.Errorf("cannot write record %s, it ends here: %w", dir.Name(), err)
}
