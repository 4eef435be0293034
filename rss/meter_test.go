package rss

import (
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var m Meter
	if got := m.Pause(0.01); got != 0 {
		t.Errorf("before anything was seen: pause %v, want 0", got)
	}
	m.Add(40 * time.Millisecond) // preempted
	m.Add(time.Millisecond)
	m.Add(2 * time.Millisecond)
	if got := m.Cost(); got != time.Millisecond {
		t.Errorf("cost %v, want the least", got)
	}
	if got := m.Pause(0.01); got != 100*time.Millisecond {
		t.Errorf("pause for 1 %% of a core: %v, want 100ms", got)
	}
	for range meterKept {
		m.Add(5 * time.Millisecond)
	}
	if got := m.Cost(); got != 5*time.Millisecond {
		t.Errorf("cost %v, want what it costs now", got)
	}
	if n := testing.AllocsPerRun(10, func() { m.Add(m.Cost()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
