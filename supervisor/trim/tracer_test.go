package trim

import (
	"strconv"
	"testing"
	"time"
)

// The counters of testdata/readers.c.
const (
	readPages = iota
	readWrong
	readLoops
	readWoken
	readEINTRs
	readEarly
	readSignals
	readPause
	readPaused
	readLongest
	readLastWoken
)

// startReaders starts readers, sleepers and a main thread asleep in kind, for
// ever or for some milliseconds at a time.
func startReaders(t *testing.T, size, readers, sleepers int, kind string, ms int, alarm bool) *tracee {
	t.Helper()
	ring := "0"
	if alarm {
		ring = "1"
	}
	return start(t, "readers", dataFile(t, size), strconv.Itoa(readers), strconv.Itoa(sleepers), kind, strconv.Itoa(ms), ring)
}

// rightPages checks that pages were read, and that all held what they should.
func rightPages(t *testing.T, p *tracee) {
	t.Helper()
	pages, wrong := p.counter(readPages).Load(), p.counter(readWrong).Load()
	t.Logf("%d pages read", pages)
	if pages == 0 || wrong != 0 {
		t.Errorf("%d of %d pages wrong", wrong, pages)
	}
}

// neverWoken checks that the main thread, asleep for ever, slept on.
func neverWoken(t *testing.T, p *tracee) {
	t.Helper()
	if woken, eintrs := p.counter(readWoken).Load(), p.counter(readEINTRs).Load(); woken+eintrs > 0 {
		t.Errorf("the main thread's call returned %d times, and %d times with EINTR", woken, eintrs)
	}
}

// all trims each piece until it is done. It gives up on a deadline, and on a
// refusal that is for good.
func (y *tally) all(t *testing.T, tr *Tracer, pieces []Piece) {
	t.Helper()
	for _, p := range pieces {
		for deadline := time.Now().Add(time.Minute); ; {
			a := y.do(t, tr, p)
			if a.Refusal == None {
				break
			}
			if !a.Refusal.Passing() || time.Now().After(deadline) {
				t.Fatalf("given up after %s", y)
			}
		}
	}
}

// Four readers find the same bytes in every page, however often these are taken
// from under them.
func TestReaders(t *testing.T) {
	const size = 272 << 20
	dice := newDice(t)
	p := startReaders(t, size, 4, 0, "futex", -1, false)
	tr, y := newTracer(t), tally{}
	pieces := p.pieces()
	for range times(60, 2000) {
		y.all(t, tr, pieces)
		pass(dice, 5*time.Millisecond)
	}
	t.Log(&y)
	rightPages(t, p)
	neverWoken(t, p)

	// Nobody reads: what is trimmed stays away.
	p.counter(readPause).Store(1)
	until(t, "readers pause", func() bool { return p.counter(readPaused).Load() == 4 })
	y.all(t, tr, pieces)
	if n := rssFile(t, p.pid); n > size/32 {
		t.Errorf("RssFile is %d MiB after %d MiB were trimmed", n>>20, size>>20)
	}
	// And they go on.
	before := p.counter(readPages).Load()
	p.counter(readPause).Store(0)
	until(t, "readers read", func() bool { return p.counter(readPages).Load() > before+1000 })
	if n := rssFile(t, p.pid); n == 0 {
		t.Error("nothing came back")
	}
	rightPages(t, p)
}

// The threads that read are interrupted by signals all the time, one of them at
// every stop.
func TestReadersUnderAlarm(t *testing.T) {
	dice := newDice(t)
	p := startReaders(t, 64<<20, 2, 0, "poll", -1, true)
	tr, y := newTracer(t), tally{}
	pieces := p.pieces()
	for range times(100, 2000) {
		y.all(t, tr, pieces)
		pass(dice, 3*time.Millisecond)
	}
	t.Logf("%d signals, %s", p.counter(readSignals).Load(), &y)
	before := p.counter(readSignals).Load()
	until(t, "signals go on", func() bool { return p.counter(readSignals).Load() > before })
	rightPages(t, p)
	neverWoken(t, p)
}

// With many threads the stop is as long as the last one takes to stand; how
// long that is, the log says.
func TestNoise(t *testing.T) {
	dice := newDice(t)
	p := startReaders(t, 64<<20, 20, 43, "futex", -1, false)
	tr, y := newTracer(t), tally{}
	piece := p.pieces()[0]
	until(t, "all read", func() bool { return p.counter(readPages).Load() > 100_000 })
	alone := time.Duration(p.counter(readLongest).Swap(0))
	var attached time.Duration
	for deadline := time.Now().Add(2 * time.Minute); y.done() < times(30, 500); pass(dice, 5*time.Millisecond) {
		a := y.do(t, tr, piece)
		if a.Refusal == None {
			attached = max(attached, a.Attached)
			if a.Threads != 64 {
				t.Errorf("%d threads", a.Threads)
			}
		}
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("given up after %s", &y)
		}
	}
	t.Logf("64 threads: %s, until all stood at most %v; a reader waited %v at most, %v before", &y, attached, time.Duration(p.counter(readLongest).Load()), alone)
	rightPages(t, p)
	neverWoken(t, p)
}
