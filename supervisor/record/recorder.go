package record

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
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
	// vanishEvery is how often somebody may have taken the file away unnoticed.
	vanishEvery = 5 * time.Second
)

// Options are what a recorder works with.
type Options struct {
	Meta   Meta
	Places Places
	// Attempt is the watcher's, from 1: a later one goes on with the record.
	Attempt int
	// AtOnce writes from the first sample on.
	AtOnce bool
	// Fault is called, from a goroutine of the recorder's, when a part stops:
	// "record" or "journal". It may be called once for each.
	Fault func(part string, err error)
}

// Recorder writes the record and the journal of one run. Its methods are called
// by one goroutine, and never wait for a disk.
type Recorder struct {
	opt     Options
	tables  tables
	enc     encoder
	into    Sample
	blockAt time.Duration // of the first sample of the block that is being made
	events  uint64
	begun   bool
	journal journaler

	mu      sync.Mutex
	waiting waiting
	wake    chan struct{}
	done    chan struct{}
	closed  bool
}

// waiting is what the record does not have yet.
type waiting struct {
	items []item
	size  int
	grown bool // the block that is being made has samples beyond what was taken
	sync  bool // a decision is among them
	lost  int  // items that found no room
	off   bool // nobody takes them any more
}

// New returns a recorder that has written nothing.
func New(opt Options) *Recorder {
	if opt.Fault == nil {
		opt.Fault = func(string, error) {}
	}
	r := &Recorder{
		opt: opt, tables: newTables(opt.Attempt),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		events: uint64(max(opt.Attempt, 1)) << 40,
	}
	r.journal.init(&r.opt)
	return r
}

// Sample takes one look in. Those in the first minute are kept in memory.
func (r *Recorder) Sample(l *Look) {
	r.tables.sample(l, &r.into)
	r.mu.Lock()
	if r.enc.full() {
		r.put(item{keyBlock, uint64(r.blockAt / time.Millisecond), r.enc.block(0)})
	}
	if r.enc.empty() {
		r.blockAt = l.At
	}
	r.enc.add(&r.into)
	for _, it := range r.tables.take() {
		r.put(it)
	}
	r.waiting.grown = true
	r.mu.Unlock()
	r.journal.sample(l)
	if l.At >= quiet || r.opt.AtOnce {
		r.Begin()
	}
	r.tell()
}

// Event takes one event in; v is of package event.
func (r *Recorder) Event(name event.Name, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		return
	}
	kind := byte(keyEvent)
	if routine(name, v) {
		kind = keyRoutine
	}
	r.events++
	r.mu.Lock()
	r.put(item{kind, r.events, value})
	r.waiting.sync = r.waiting.sync || name == event.NameDecision
	r.mu.Unlock()
	r.journal.event(name, v, value)
	if name == event.NameDecision {
		r.Begin()
	}
	if name == event.NameDecision || name == event.NameExit {
		r.tell()
	}
}

// routine says that an event is one of many of its kind: what workers report,
// what the ladder was told, and what the mild actions brought.
func routine(name event.Name, v any) bool {
	switch e := v.(type) {
	case event.Decision:
		return e.Action == event.ActionTrim || e.Action == event.ActionRecycle
	case event.Outcome:
		return e.OK
	}
	return name == event.NameLoader || name == event.NameHelp
}

// put queues an item. The caller holds the lock.
func (r *Recorder) put(it item) {
	w := &r.waiting
	if w.off || w.size+len(it.value) > mostWaiting {
		w.lost++
		return
	}
	w.items = append(w.items, it)
	w.size += len(it.value)
}

// Begin has what was taken in written from now on. The first decision and a run
// of a minute bring it about too.
func (r *Recorder) Begin() {
	if r.begun {
		return
	}
	r.begun = true
	go r.write()
	r.journal.begin()
}

func (r *Recorder) tell() {
	if !r.begun {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
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
	r.tell()
	end := time.After(patience)
	select {
	case <-r.done:
	case <-end:
		return
	}
	r.journal.close(end)
}

// write is the goroutine that has the record open.
func (r *Recorder) write() {
	defer close(r.done)
	s, live, err := r.openRecord()
	if err != nil {
		r.stop(err)
		return
	}
	defer s.close()
	defer live.close()
	lastLook := time.Now()
	for {
		r.mu.Lock()
		w, closed := r.waiting, r.closed
		r.waiting = waiting{}
		if w.grown {
			w.items = append(w.items, item{keyBlock, uint64(r.blockAt / time.Millisecond), r.enc.snapshot(0)})
		}
		r.mu.Unlock()
		if len(w.items) > 0 {
			if err := s.commit(w.items); err != nil {
				r.stop(wrapWrite(s.dir, err))
				return
			}
		}
		since := time.Since(s.synced)
		if w.sync && since >= syncAfter || since >= syncEvery {
			if err := s.sync(); err != nil {
				r.stop(wrapWrite(s.dir, err))
				return
			}
		}
		if time.Since(lastLook) >= vanishEvery {
			lastLook = time.Now()
			if s.vanished() {
				r.stop(wrapWrite(s.dir, errVanished))
				return
			}
		}
		if closed {
			return
		}
		<-r.wake
	}
}

// openRecord makes the record and puts its first value.
func (r *Recorder) openRecord() (*store, *live, error) {
	dir, size, err := makeRecordDir(r.opt.Places, r.opt.Meta.ID)
	if err != nil {
		return nil, nil, err
	}
	s, err := openStore(dir, size)
	if err != nil {
		return nil, nil, err
	}
	meta := r.opt.Meta
	meta.V, meta.Record = Version, dir
	value, err := json.Marshal(meta)
	if err == nil {
		err = s.commit([]item{{keyMeta, 0, value}})
	}
	if err != nil {
		s.close()
		return nil, nil, wrapWrite(dir, err)
	}
	r.journal.recordAt(meta)
	return s, listen(s), nil
}

// stop ends the record; the journal goes on.
func (r *Recorder) stop(err error) {
	r.mu.Lock()
	r.waiting = waiting{off: true}
	r.mu.Unlock()
	r.opt.Fault("record", err)
}
