package trim

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestPace(t *testing.T) {
	var p Pace
	a, b := file{1, 2}, file{1, 3}
	add := func(f file, resident rss.Bytes, took time.Duration) {
		p.Add(Piece{Dev: f.dev, Inode: f.inode, Resident: resident}, took)
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
	// A stop during which another process had the CPU says little.
	add(b, maxDrop, 30*time.Millisecond)
	if got := p.room(b); got != maxDrop {
		t.Errorf("after one that waited: %v", got)
	}
	if got := p.room(a); got > PieceSize*5/4 {
		t.Errorf("the other file, in single pages: %v", got)
	}
	// The file was read again, in single pages.
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
	at := func(lo, size, offset uint64) Piece {
		return Piece{ID: id, Lo: lo, Hi: lo + size, Offset: offset, Dev: 1, Inode: 2, Resident: rss.Bytes(size)}
	}
	const mib = 1 << 20
	pieces := []Piece{
		at(0x10000000, 64*mib, 0), at(0x10000000+100*mib, 64*mib, 100*mib), // a hole between them
		at(0x10000000+164*mib, 64*mib, 164*mib),
		at(0x90000000, 64*mib, 0),
	}
	var fast Pace
	fast.Add(Piece{Dev: 1, Inode: 2, Resident: maxDrop}, time.Microsecond)
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

func TestPlanTree(t *testing.T) {
	fs, o := quiet(t)
	p := new(Planner).Plan(o)
	if p.Refusal != None || p.ID != o.ID || len(p.Mappings) != 2 ||
		p.Mappings[0].Path != "/data/valid.arrow" || p.Mappings[1].Path != "/data/train.arrow" {
		t.Errorf("%+v", p)
	}
	for name, c := range map[string]struct {
		do   func()
		want Refusal
	}{
		"malformed": {func() { fs.Write("proc/42/smaps", good()+"x\n") }, Failed},
		"ended":     {func() { fs.Remove("proc/42/smaps") }, Vanished},
	} {
		c.do()
		if p := new(Planner).Plan(o); p.Refusal != c.want || p.Detail == "" || p.Mappings != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestPlanReal(t *testing.T) {
	needsYama(t)
	small, large := sparse(t, 6*rss.MiB), sparse(t, 32*rss.MiB)
	h, want := startMap(t, large, [2]rss.Bytes{rss.MiB, 16 * rss.MiB})
	p := new(Planner).Plan(CheckOptions{Proc: "/proc", ID: h.id})
	if p.Refusal != None || len(p.Mappings) != 1 || p.Mappings[0].whole(h.id) != want.whole(h.id) || p.Mappings[0].Resident != want.Resident || want.Resident < 16*rss.MiB {
		t.Errorf("%+v", p)
	}
	var st unix.Stat_t
	must(t, unix.Stat(large, &st))
	if want.Inode != st.Ino || want.Hi-want.Lo != uint64(32*rss.MiB) || want.Offset != 0 {
		t.Errorf("%+v, and inode %d", want, st.Ino)
	}
	h, _ = startMap(t, small, [2]rss.Bytes{0, 6 * rss.MiB})
	must(t, os.Remove(small))
	if p := new(Planner).Plan(CheckOptions{Proc: "/proc", ID: h.id}); len(p.Mappings) != 1 || p.Mappings[0].Path != small+" (deleted)" {
		t.Errorf("%+v", p)
	}
}

// TestPlanner: what may be trimmed is asked once for each mapping, and what is
// resident each time.
func TestPlanner(t *testing.T) {
	needsYama(t)
	if !hasScan(t) {
		t.Skip("the kernel has no PAGEMAP_SCAN")
	}
	h, m := startMap(t, sparse(t, 32*rss.MiB), [2]rss.Bytes{0, 16 * rss.MiB})
	o := CheckOptions{Proc: "/proc", ID: h.id}
	var p Planner
	resident := func() rss.Bytes {
		t.Helper()
		got := p.Plan(o)
		if got.Refusal != None || len(got.Mappings) > 1 {
			t.Fatalf("%+v", got)
		}
		if len(got.Mappings) == 0 {
			return 0
		}
		return got.Mappings[0].Resident
	}
	if got := resident(); got < 16*rss.MiB {
		t.Fatalf("%v are resident", got)
	}
	known := p.judged[h.id].may
	if may, ok := known[m.whole(h.id)]; !ok || !may {
		t.Fatalf("%+v", known)
	}
	known[m.whole(h.id)] = false
	if got := resident(); got != 0 {
		t.Errorf("asked again: %v", got)
	}
	gone := rss.ProcID{PID: 1 << 23}
	p.judged[gone] = judgement{at: time.Now().Add(-2 * judgedFor)}
	p.judged[h.id] = judgement{time.Now().Add(-judgedFor), known}
	if got := resident(); got < 16*rss.MiB {
		t.Errorf("%v are resident, asked again after a minute", got)
	}
	if _, kept := p.judged[gone]; kept {
		t.Error("what has ended is kept")
	}
	// A mapping that is not known has all be asked.
	known = p.judged[h.id].may
	delete(known, m.whole(h.id))
	if got := resident(); got < 16*rss.MiB {
		t.Errorf("%v are resident of what is new", got)
	}
	tracer := NewTracer()
	defer tracer.Close()
	pieces, err := p.pieces("/proc", h.id, m)
	must(t, err)
	for _, piece := range pieces {
		wardentest.Until(t, "a trim", func() bool { return tracer.Do(piece).Refusal == None })
	}
	if got := resident(); got != 0 {
		t.Errorf("%v are resident after a trim", got)
	}
}
