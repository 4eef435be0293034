package hold

import (
	"fmt"
	"time"
)

// TrimRequest is a part of one mapping of one process, to be given back while
// that process is stopped once. ID is the watcher's and comes back.
type TrimRequest struct {
	ID         uint64
	PID        int
	Start      uint64 // the process's start time, field 22 of /proc/PID/stat
	Lo, Hi     uint64 // addresses
	Offset     uint64 // of Lo in the file
	Dev, Inode uint64
}

// TrimAnswer is the result. Refusal is the tracer's reason, 0 for none; Advised the bytes
// that the kernel was asked to drop.
type TrimAnswer struct {
	ID             uint64
	Refusal        uint8
	Threads        int
	Advised        uint64
	Stop, Attached time.Duration
	Dropping       time.Duration
}

func (TrimAnswer) fromHolder() {}

func (r *TrimRequest) message() message {
	return message{kind: kindTrim, a: int32(r.PID), set: signalSet(r.ID), trim: [6]uint64{r.Start, r.Lo, r.Hi, r.Offset, r.Dev, r.Inode}}
}

func trimRequest(m *message) TrimRequest {
	return TrimRequest{ID: uint64(m.set), PID: int(m.a), Start: m.trim[0], Lo: m.trim[1], Hi: m.trim[2], Offset: m.trim[3], Dev: m.trim[4], Inode: m.trim[5]}
}

func (a *TrimAnswer) message() message {
	return message{kind: kindTrimmed, a: int32(a.Refusal), b: int32(a.Threads), set: signalSet(a.ID),
		trim: [6]uint64{a.Advised, uint64(a.Stop), uint64(a.Attached), uint64(a.Dropping)}}
}

func trimAnswer(m *message) TrimAnswer {
	return TrimAnswer{
		ID: uint64(m.set), Refusal: uint8(m.a), Threads: int(m.b), Advised: m.trim[0],
		Stop: time.Duration(m.trim[1]), Attached: time.Duration(m.trim[2]), Dropping: time.Duration(m.trim[3]),
	}
}

// trims is the holder's side: one request at a time, off the loop.
type trims struct {
	requests chan TrimRequest // nil: tracing is off
	answers  chan TrimAnswer
	out      bool // one is under way
}

// open makes the goroutine; it must be there before the command.
func (t *trims) open(trim func(TrimRequest) TrimAnswer, wake func()) {
	if trim == nil {
		return
	}
	t.requests, t.answers = make(chan TrimRequest, 1), make(chan TrimAnswer, 1)
	go func() {
		for r := range t.requests {
			a := trim(r)
			a.ID = r.ID
			t.answers <- a
			wake()
		}
	}()
}

// ask passes a request on. One that finds another on its way is lost: the
// watcher sends the next when it has the answer, or gives up.
func (t *trims) ask(r TrimRequest) {
	select {
	case t.requests <- r:
		t.out = true
	default:
	}
}

func (t *trims) answer(h *holder) {
	select {
	case a := <-t.answers:
		t.out = false
		m := a.message()
		h.send(&m)
	default:
	}
}

// end waits a little for one that is under way: our end in the middle of it
// would cut it off.
func (t *trims) end() {
	if !t.out {
		return
	}
	within(50*time.Millisecond, t.answers)
}

// Trim has the holder give a part of a mapping back: it may trace its
// descendants where Yama allows ancestors alone. The answer comes by
// [Link.Messages]; wait for it before the next request.
func (l *Link) Trim(r TrimRequest) error {
	m := r.message()
	if err := l.send(&m); err != nil {
		return fmt.Errorf("cannot trim process %d: %w", r.PID, err)
	}
	return nil
}
