package tell

import (
	"testing"
	"time"
)

// TestRecordDue: the record takes a look at most once in a time, one at a decision always,
// and no look twice.
func TestRecordDue(t *testing.T) {
	out := &events{}
	r := Record{out: out}
	if r.due(0, time.Second+early, 1, true) {
		t.Error("due where nothing is recorded")
	}
	k := &kept{}
	out.Recorder = k
	for i, c := range []struct {
		now        time.Duration
		seq        uint64
		atDecision bool
		want       bool
	}{
		{0, 1, false, true},
		{100 * time.Millisecond, 1, false, false},
		{500 * time.Millisecond, 2, false, false},
		{500 * time.Millisecond, 2, true, true},
		{500 * time.Millisecond, 2, true, true},
		{999 * time.Millisecond, 3, false, false},
		{time.Second, 3, false, true}, // a decision puts nothing off
		{2 * time.Second, 3, false, false},
		{2 * time.Second, 4, false, true},
	} {
		if got := r.due(c.now, time.Second+early, c.seq, c.atDecision); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	if r.Close(false, 0); k.begun {
		t.Error("a run that met nothing is kept")
	}
	if r.Close(true, 0); !k.begun {
		t.Error("a run that met something is not kept")
	}
}
