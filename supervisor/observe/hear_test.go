package observe

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// rungs is a ladder of one rung, at 80 %.
type rungs struct{}

func (rungs) NextRung(l *event.Limit) rss.Bytes {
	if at := l.Limit.Scale(0.8); l.Used < at {
		return at
	}
	return l.Limit
}
func (rungs) Rung(_ event.Action, l *event.Limit) (rss.Bytes, bool) { return l.Limit.Scale(0.8), true }
func (rungs) Uncertain([]event.Limit) bool                          { return false }
func (rungs) JobEndAhead() time.Duration                            { return 0 }

// TestReached: only a limit at its rung, or a new limit, calls for a full read.
func TestReached(t *testing.T) {
	at := func(used rss.Bytes) []event.Limit {
		return []event.Limit{{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, Limit: 1000}}
	}
	v := &view.View{Limits: at(100)}
	for _, c := range []struct {
		used rss.Bytes
		want bool
	}{{100, false}, {799, false}, {800, true}, {1000, true}} {
		if got := reached(v, at(c.used), rungs{}); got != c.want {
			t.Errorf("at %d: %v", c.used, got)
		}
	}
	v.Limits = at(960)
	if reached(v, at(990), rungs{}) || !reached(v, at(1000), rungs{}) {
		t.Error("above the last rung the next is the limit")
	}
	if !reached(v, []event.Limit{{Name: event.LimitTasks, Used: 1, Limit: 1000}}, rungs{}) {
		t.Error("what is new calls for none")
	}
}
