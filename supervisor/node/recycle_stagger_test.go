package node

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// TestNewLeaderWaits a second for what the one before it has begun, where the limit is near
// a moment, and for a recycle on its way until that must have ended.
func TestNewLeaderWaits(t *testing.T) {
	for _, c := range []struct {
		at, left  time.Duration
		pending   bool
		withdrawn time.Duration // when a request was, since we lead, 0 for never
		waits     bool
	}{
		{500 * time.Millisecond, 0, false, 0, true}, // nothing grows
		{500 * time.Millisecond, time.Minute, false, 0, true},
		{500 * time.Millisecond, 2 * time.Second, false, 0, false},
		{50 * time.Millisecond, 2 * time.Second, false, 0, true},
		{time.Second, 0, false, 0, false},
		{2 * time.Second, 0, true, 0, true},
		{time.Minute, 0, true, 0, false},
		{2500 * time.Millisecond, 0, false, 2 * time.Second, true},
		{3 * time.Second, 0, false, 2 * time.Second, false},
	} {
		var s Stagger
		if c.withdrawn > 0 {
			s.Withdrawn(1, time.Hour+c.withdrawn)
		}
		turn := Turn{Now: time.Hour + c.at, From: time.Hour, Successor: true, Left: c.left, Pending: c.pending, Within: time.Minute, Nodes: 1}
		if waits := s.Waits(turn); waits != c.waits {
			t.Errorf("%+v: waits %v", c, waits)
		}
	}
}

// TestNodesTakeTurns: each of several nodes waits up to two seconds, once, and not where the
// limit is near.
func TestNodesTakeTurns(t *testing.T) {
	var s Stagger
	at := func(now, left time.Duration) bool {
		return s.Waits(Turn{Now: time.Hour + now, Left: left, Nodes: 2, Within: time.Minute})
	}
	if at(0, turnRoom-1) {
		t.Error("it waits, and the limit is near")
	}
	if !at(0, 0) || at(turnSpread+1, 0) || at(turnHolds, 0) {
		t.Error("it waits its turn within two seconds, and goes on then")
	}
	if !at(2*turnHolds, time.Minute) {
		t.Error("it does not wait for the next turn")
	}
}

func TestLastRecycled(t *testing.T) {
	var s Stagger
	one, other := rss.ProcID{PID: 1}, rss.ProcID{PID: 2}
	if s.Recycled(one, 0); s.LastRecycled(one) != 1 || s.LastRecycled(other) != 0 {
		t.Errorf("%v and %v", s.LastRecycled(one), s.LastRecycled(other))
	}
}
