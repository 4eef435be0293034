package limit

import (
	"testing"
	"time"
)

// TestDearStatIsReadLess: a node of hundreds of CPUs takes milliseconds to
// flush what memory.stat shows.
func TestDearStatIsReadLess(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{
		3 * time.Microsecond:  statPause,
		5 * time.Millisecond:  250 * time.Millisecond,
		80 * time.Millisecond: time.Second,
	} {
		var l level
		for range 8 {
			l.statCost.Add(cost)
		}
		if got := l.statEvery(); got != want {
			t.Errorf("memory.stat takes %v: read every %v, want %v", cost, got, want)
		}
	}
}
