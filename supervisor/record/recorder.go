package record

import (
	"encoding/json"
	"fmt"
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
	// mostKept is how many bytes of events stay, whatever comes after them. Of
	// those beyond it the oldest go, as of routine ones: a decision may be taken,
	// or a signal come, each second for days.
	mostKept = 1 << 20
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
	kept    int // bytes of events that stay
	begun   bool
	journal journaler

	mu      sync.Mutex
	waiting waiting
	lost    int   // items that found no room since that was told
	size    int64 // of the record at most, 0 before it is open
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
	r.mu.Lock()
	if r.size > 0 {
		r.tables.most = min(mostProcs, int(r.size/procShare))
	}
	r.mu.Unlock()
	r.tables.sample(l, &r.into)
	r.mu.Lock()
	if r.enc.full() {
		r.put(item{keyBlock, uint64(r.blockAt / time.Millisecond), r.enc.block(0)})
	}
	if r.enc.empty() {
		r.blockAt = max(l.At, r.blockAt+time.Millisecond) // two blocks, two keys
	}
	r.enc.add(&r.into)
	for _, it := range r.tables.take() {
		r.put(it)
	}
	r.waiting.grown = true
	lost := 0
	if r.waiting.size == 0 || r.begun && r.waiting.size < mostWaiting/2 {
		lost, r.lost = r.lost, 0
	}
	r.mu.Unlock()
	r.journal.sample(l)
	if lost > 0 {
		r.tellLost(lost)
	}
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
	switch {
	case name == event.NameStart || name == event.NameExit:
	case routine(name, v), r.kept+len(value) > mostKept:
		kind = keyRoutine
	default:
		r.kept += len(value)
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
	if name != event.NameLoader && name != event.NameHelp {
		r.tell()
	}
}

// tellLost says in the record that a part of it is missing.
func (r *Recorder) tellLost(items int) {
	r.Event(event.NameFault, event.Fault{
		Head: event.Head{V: event.Version, Time: time.Now(), Event: event.NameFault}, Part: "record",
		Error: fmt.Sprintf("its storage took nothing for a while: %d parts of it, samples or events, found no room in memory and are missing", items),
	})
}

// routine says that an event is one of many of its kind: what workers report,
// what the ladder was told, and what the mild actions brought.
func routine(name event.Name, v any) bool {
	switch e := v.(type) {
	case event.Decision:
		return e.Action.Row().Routine
	case event.Outcome:
		return e.OK
	}
	return name == event.NameLoader || name == event.NameHelp || name == event.NameCure
}

// put queues an item. The caller holds the lock. What samples refer to, which
// mostProcs and mostLimits bound, finds room always: without it processes would
// be missing from samples, and sums wrong.
func (r *Recorder) put(it item) {
	w := &r.waiting
	if w.off {
		return
	}
	if w.size+len(it.value) > mostWaiting && it.kind != keyProc && it.kind != keyLimit {
		r.lost++
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
