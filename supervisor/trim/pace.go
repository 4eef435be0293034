package trim

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Pace says how much of a file may be dropped in one stop of a process. That
// depends on how the page cache holds it, by factors of ten: in single pages,
// some 17 ms a GiB, or in large folios, below 1. Where other things keep the
// processors busy, what surrounds the drop takes longer than the drop, so that
// few long stops are better for everybody than many short ones.
//
// The zero value knows nothing yet and allows [PieceSize].
type Pace struct {
	files map[file]*samples
}

type file struct{ dev, inode uint64 }

// samples are what the last drops of a file took, a byte.
type samples struct {
	seconds [4]float64 // 0 where there is none yet
	next    int
	most    rss.Bytes // the most that was dropped in one stop
}

// The part of a stop of 2 ms that the kernel may take for dropping pages, and
// the most bytes, whatever is expected of them.
const (
	dropTime = 1200 * time.Microsecond
	mostDrop = rss.GiB
)

// mostFiles is of how many files samples are kept: a data set may have more.
const mostFiles = 4096

// Add takes in that so much resident memory was dropped in that time.
func (p *Pace) Add(s Sized, took time.Duration) {
	if s.Resident == 0 || took <= 0 {
		return
	}
	if p.files == nil || len(p.files) >= mostFiles {
		p.files = map[file]*samples{}
	}
	f := file{s.Dev, s.Inode}
	k := p.files[f]
	if k == nil {
		k = &samples{}
		p.files[f] = k
	}
	k.seconds[k.next%len(k.seconds)] = took.Seconds() / float64(s.Resident)
	k.next++
	k.most = max(k.most, s.Resident)
}

// room is how much resident memory of a file the next stop may drop. Who was not
// given a processor took longer than it takes, so the least sample counts.
func (p *Pace) room(f file) rss.Bytes {
	k := p.files[f]
	if k == nil {
		return PieceSize
	}
	least := k.seconds[0]
	for _, s := range k.seconds[:min(k.next, len(k.seconds))] {
		least = min(least, s)
	}
	room := rss.Bytes(dropTime.Seconds() / least)
	return min(max(room, PieceSize), 4*max(k.most, PieceSize), mostDrop)
}

// Take joins the first of the pieces with those that follow it in the same
// mapping, as many as there is room for. It returns how many those are.
func (p *Pace) Take(pieces []Sized) (Sized, int) {
	joined, n := pieces[0], 1
	room := p.room(file{joined.Dev, joined.Inode})
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
