package report

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// death is how the command ended, as the exit event has it. The zero value is
// that nobody saw it.
type death struct {
	seen   bool
	code   int
	signal string // empty where it exited
}

func (q *inquest) death() death {
	d := death{seen: true}
	switch e := q.exit; {
	case e.Signal != nil:
		d.signal = *e.Signal
	case e.Code != nil:
		d.code = *e.Code
	default:
		d.seen = false
	}
	return d
}

// ok says that it ended well.
func (d death) ok() bool { return d.seen && d.signal == "" && d.code == 0 }

// by says that this signal ended it, or the command that a shell ran for it: a
// shell exits with 128 and the number then.
func (d death) by(name string, number int) bool {
	return d.seen && (d.signal == name || d.signal == "" && d.code == 128+number)
}

// String is how it ended: "SIGKILL", "exit status 1".
func (d death) String() string {
	switch {
	case !d.seen:
		return "a status that nobody saw"
	case d.signal != "":
		return d.signal
	case d.code > 128 && d.code < 128+65:
		return fmt.Sprintf("exit status %d, with which a shell tells of signal %d", d.code, d.code-128)
	}
	return fmt.Sprintf("exit status %d", d.code)
}

// clock is a moment of the run in the reader's zone, with its day where that is
// not the one on which the run ended.
func (q *inquest) clock(at time.Duration) string {
	return q.clockOf(q.wall(at))
}

func (q *inquest) clockOf(t time.Time) string {
	t = t.In(q.zone)
	end := q.wall(q.end).In(q.zone)
	if t.Format(time.DateOnly) != end.Format(time.DateOnly) {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// when is a moment near the end, and how near: "at 14:03:22, 400 ms before".
func (q *inquest) when(at time.Duration) string {
	text := "at " + q.clock(at)
	switch left := q.end - at; {
	case q.exit == nil && left < 100*time.Millisecond:
		return text + ", the last that was recorded"
	case q.exit == nil:
		return text + ", " + values.Span(left) + " before the record breaks off"
	case left < 50*time.Millisecond:
		return text + ", as it ended"
	}
	return text + ", " + values.Span(q.end-at) + " before"
}

// after is how long the run was, for the end of a sentence.
func (q *inquest) after() string { return "after " + values.Span(q.end) }

// sentence is a finding as it is told, under a reserve where nobody saw it. What
// is not known needs none.
func (f *finding) sentence() string {
	if f.certainty == Inferred && f.cause != event.CauseUnknown {
		return "most likely " + f.text
	}
	return f.text
}
