package trim

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func TestPace(t *testing.T) {
	var p Pace
	a, b := file{1, 2}, file{1, 3}
	add := func(f file, resident rss.Bytes, took time.Duration) {
		p.Add(Sized{Piece{Dev: f.dev, Inode: f.inode}, resident}, took)
	}
	if got := p.room(a); got != PieceSize {
		t.Errorf("at first %v", got)
	}
	// Single pages: 17 ms a GiB are what a piece is made for.
	add(a, PieceSize, 1060*time.Microsecond)
	if got := p.room(a); got < PieceSize || got > PieceSize*5/4 {
		t.Errorf("single pages: %v", got)
	}
	// Large folios: more at each stop, not all at once.
	add(b, PieceSize, 60*time.Microsecond)
	if got := p.room(b); got != 4*PieceSize {
		t.Errorf("large folios, second stop: %v", got)
	}
	add(b, 4*PieceSize, 240*time.Microsecond)
	if got := p.room(b); got != maxDrop {
		t.Errorf("large folios, third stop: %v", got)
	}
	// A stop in which somebody else had the processor says little.
	add(b, maxDrop, 30*time.Millisecond)
	if got := p.room(b); got != maxDrop {
		t.Errorf("after one that waited: %v", got)
	}
	if got := p.room(a); got > PieceSize*5/4 {
		t.Errorf("the other file, in single pages: %v", got)
	}
	// The file was read anew, in single pages.
	for range 4 {
		add(b, maxDrop, 17*time.Millisecond)
	}
	if got := p.room(b); got > PieceSize*5/4 {
		t.Errorf("single pages after large folios: %v", got)
	}
	add(a, 0, time.Second)
	add(a, PieceSize, 0)
	if got := p.room(a); got < PieceSize || got > PieceSize*5/4 {
		t.Errorf("after nothing: %v", got)
	}
	for i := range uint64(3 * maxFiles) {
		add(file{9, i}, PieceSize, time.Millisecond)
	}
	if len(p.files) > maxFiles {
		t.Errorf("%d files are remembered", len(p.files))
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
	var fast Pace
	fast.Add(Sized{Piece{Dev: 1, Inode: 2}, maxDrop}, time.Microsecond)
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
