package trim

import (
	"testing"
	"time"
)

// While a thread puts other memory in the place of the mapping, none of that is
// lost: this is what all threads are stopped for.
func TestMovingMaps(t *testing.T) {
	const (
		turns = iota
		lost
		wrong
		woken
		begin = 8
	)
	dice := newDice(t)
	p := start(t, "moving", dataFile(t, 2<<20))
	pieces := p.pieces()
	p.counter(begin).Store(1)
	tr, y := newTracer(t), tally{}
	until(t, "it moves", func() bool { return p.counter(turns).Load() > 0 })
	n := times(200, 2000)
	for deadline := time.Now().Add(5 * time.Minute); y.done()+y.answers[Changed] < n || y.done() < n/20 || y.answers[Changed] < n/20; {
		y.do(t, tr, pieces[0])
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("given up after %s", &y)
		}
		pass(dice, time.Millisecond)
	}
	// What was done to the last pattern is seen when it is verified.
	before := p.counter(turns).Load()
	until(t, "it moves on", func() bool { return p.counter(turns).Load() > before+1 })
	t.Logf("%d turns, %s", before, &y)
	if n := p.counter(lost).Load(); n > 0 {
		t.Errorf("%d words of its own memory lost", n)
	}
	if n := p.counter(wrong).Load() + p.counter(woken).Load(); n > 0 {
		t.Errorf("%d wrong pages of the file, or returns of the sleeper", n)
	}
}
