package trim

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func TestPace(t *testing.T) {
	var p Pace
	if got := p.Room(); got != PieceSize {
		t.Errorf("at first %v", got)
	}
	// Single pages: 17 ms a GiB are what a piece is made for.
	p.Add(PieceSize, 1060*time.Microsecond)
	if got := p.Room(); got < PieceSize || got > PieceSize*5/4 {
		t.Errorf("single pages: %v", got)
	}
	// Large folios: more at each stop, not all at once.
	p = Pace{}
	p.Add(PieceSize, 60*time.Microsecond)
	if got := p.Room(); got != 4*PieceSize {
		t.Errorf("large folios, second stop: %v", got)
	}
	p.Add(4*PieceSize, 240*time.Microsecond)
	if got := p.Room(); got != mostDrop {
		t.Errorf("large folios, third stop: %v", got)
	}
	// A stop in which somebody else had the processor says little.
	p.Add(mostDrop, 30*time.Millisecond)
	if got := p.Room(); got < mostDrop*3/4 {
		t.Errorf("after one that waited: %v", got)
	}
	// The file that follows has single pages.
	for range 40 {
		p.Add(p.Room(), time.Duration(float64(p.Room())/float64(rss.GiB)*17e6))
	}
	if got := p.Room(); got > PieceSize*5/4 {
		t.Errorf("single pages after large folios: %v", got)
	}
	p.Add(0, time.Second)
	p.Add(PieceSize, 0)
	if got := p.Room(); got < PieceSize {
		t.Errorf("after nothing: %v", got)
	}
}

func TestPaceTake(t *testing.T) {
	id := rss.ProcID{PID: 42, Start: 7}
	at := func(lo, size, offset uint64) Sized {
		return Sized{Piece{ID: id, Lo: lo, Hi: lo + size, Offset: offset, Dev: 1, Inode: 2}, rss.Bytes(size)}
	}
	const mib = 1 << 20
	pieces := []Sized{
		at(0x10000000, 64*mib, 0), at(0x10000000+100*mib, 64*mib, 100*mib), // a hole between them
		at(0x10000000+164*mib, 64*mib, 164*mib),
		at(0x90000000, 64*mib, 0),
	}
	fast := Pace{perByte: 1e-12, last: mostDrop}
	got, n := fast.Take(pieces)
	if n != 3 || got.Lo != 0x10000000 || got.Hi != 0x10000000+228*mib || got.Resident != 192*rss.MiB || got.Offset != 0 {
		t.Errorf("fast: %d pieces, %+v", n, got)
	}
	var unknown Pace
	if got, n = unknown.Take(pieces); n != 1 || got != pieces[0] {
		t.Errorf("at first: %d pieces, %+v", n, got)
	}
	if got, n = fast.Take(pieces[3:]); n != 1 || got != pieces[3] {
		t.Errorf("the last: %d pieces, %+v", n, got)
	}
}
