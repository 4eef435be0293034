package trim

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Piece is a part of one mapping, to be trimmed while its process is stopped
// once. Whatever has changed since it was planned is not touched.
type Piece struct {
	ID     rss.ProcID
	Lo, Hi uint64 // addresses, multiples of the page size
	Offset uint64 // of Lo in the file
	Dev    uint64 // unix.Mkdev of what /proc/PID/maps shows
	Inode  uint64
}

// Answer is what came of a piece.
type Answer struct {
	// Refusal says why nothing was done, None where it was.
	Refusal Refusal
	// Advised is the length of the range that the kernel was told of, which is
	// no measurement of what was resident in it.
	Advised rss.Bytes
	// Stop is from when the first thread was asked to stop until all that
	// stopped in time went on, Attached the part of it before all stood still.
	Stop, Attached time.Duration
	Dropping       time.Duration // … and that which the kernel took for it
	Threads        int

	ended bool // the thread that traced has to end
}
