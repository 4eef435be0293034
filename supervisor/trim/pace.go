package trim

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Pace says how much of a process may be dropped in one stop. That depends on
// how the page cache holds a file, by factors of ten: in single pages, some 17 ms
// a GiB, or in large folios, below 1. Where other things keep the processors
// busy, what surrounds the drop takes longer than the drop, so that few long
// stops are better for everybody than many short ones.
//
// The zero value knows nothing yet and allows [PieceSize].
type Pace struct {
	perByte float64 // seconds, the least seen of late
	last    rss.Bytes
}

// The part of a stop of 2 ms that the kernel may take for dropping pages, and
// the most bytes, whatever is expected of them.
const (
	dropTime = 1200 * time.Microsecond
	mostDrop = rss.GiB
)

// Add takes in that so much resident memory was dropped in that time.
func (p *Pace) Add(resident rss.Bytes, took time.Duration) {
	if resident == 0 || took <= 0 {
		return
	}
	p.last = resident
	sample := took.Seconds() / float64(resident)
	// Who was not given a processor took longer than it takes. So the least
	// counts, and is forgotten slowly.
	if p.perByte == 0 || sample < p.perByte*1.1 {
		p.perByte = sample
	} else {
		p.perByte *= 1.1
	}
}

// Room is how much resident memory the next stop may drop.
func (p *Pace) Room() rss.Bytes {
	if p.perByte == 0 {
		return PieceSize
	}
	room := rss.Bytes(dropTime.Seconds() / p.perByte)
	return min(max(room, PieceSize), 4*max(p.last, PieceSize), mostDrop)
}

// Take joins the first of the pieces with those that follow it in the same
// mapping, as many as there is room for. It returns how many those are.
func (p *Pace) Take(pieces []Sized) (Sized, int) {
	joined, n := pieces[0], 1
	room := p.Room()
	for _, next := range pieces[1:] {
		sameMapping := next.ID == joined.ID && next.Dev == joined.Dev && next.Inode == joined.Inode &&
			next.Lo >= joined.Hi && next.Offset-joined.Offset == next.Lo-joined.Lo
		if !sameMapping || joined.Resident+next.Resident > room || rss.Bytes(next.Hi-joined.Lo) > Reach {
			break
		}
		joined.Hi = next.Hi
		joined.Resident += next.Resident
		n++
	}
	return joined, n
}
