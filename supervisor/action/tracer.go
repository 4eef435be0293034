package action

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Tracer stops processes for a moment and has them give mapped file pages back
// (ptrace), one piece of one process at a time. Nothing in it blocks: what comes
// of a call is in a later [World].
type Tracer interface {
	// Plan asks what a process has to give back: [World.Planned].
	Plan(id rss.ProcID)
	// Take asks for that piece of the last plan, from 0, and those after it that
	// can be had by the same stop. It returns the number that the answer carries
	// ([World.Taken]) and how many pieces were asked for.
	Take(piece int) (request uint64, pieces int, err error)
	// Over says that a process is left alone from now on, for this time, and
	// returns by how much its mapped file pages have fallen since Plan: measured.
	Over(Traced) rss.Bytes
	// Lost says that a piece was not answered, and may never be.
	Lost(id rss.ProcID)
}

// Mapper is a process with mapped file pages to give back.
type Mapper struct {
	ID rss.ProcID
	// Share is which part of what it gives back the limit counts: 1 for RSS.
	Share float64
}

// Planned is what a process has to give back.
type Planned struct {
	ID rss.ProcID
	// Pieces is how much of each piece is resident, in the order in which they
	// are to be taken.
	Pieces  []rss.Bytes
	Refused Refused
}

// Taken is the answer to one piece.
type Taken struct {
	Request uint64
	Refused Refused
	Stopped time.Duration // how long the process stood still
}

// Refused says why a process is not touched; the zero value that it is.
type Refused struct {
	Reason event.Reason
	Detail string
	// Passing says that it was only at a bad moment, and Brief that moments
	// change within milliseconds.
	Passing, Brief bool
	// All says that no other process can be touched either.
	All bool
}

// Traced is what came of one process.
type Traced struct {
	ID      rss.ProcID
	Pieces  int           // taken
	Whole   bool          // there was no other
	Stopped time.Duration // how long it stood still at most
	Refused Refused
}

// Goal is the use of a limit, as it counts, that is enough.
type Goal struct {
	Used  rss.Bytes // where it stood
	Below rss.Bytes // where it is to come; 0: as far as that goes
	// Lags says that readings of the limit do not tell in time what was given
	// back, as those of PSS: then that alone is counted.
	Lags bool
}

// Bounds of a trim by ptrace.
const (
	// TakeDeadline is when a piece counts as unanswered. A stop takes
	// milliseconds; whoever traces bounds every wait of it.
	TakeDeadline = 5 * time.Second
	// TracePause is how long a process is left alone that was at a bad moment.
	TracePause = time.Second
	// traceRetry is the pause before a process is asked again that was at a
	// brief bad moment, tracePatience for how long that goes on: the next may
	// have more luck meanwhile.
	traceRetry    = 10 * time.Millisecond
	tracePatience = 250 * time.Millisecond
	// traceGap is the longest pause between two stops of one process.
	traceGap = 2 * time.Millisecond
	// traceTries is how often one process is asked in the same action: a worker
	// that never sleeps must not put off what follows on the ladder.
	traceTries = 3
)
