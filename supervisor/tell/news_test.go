package tell

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// TestTell tells each in its way, in the order given.
func TestTell(t *testing.T) {
	f := newStand(t)
	news := view.News{
		event.Found{Limit: event.Limit{Name: event.LimitUser}},
		view.Line{Text: "a fact"},
		view.Line{Text: "told once", Warn: true, Once: "part", Key: "a"},
		event.LoaderSaid{What: event.LoaderHello, PID: 7},
		view.Cured{Cure: event.Cure{PID: 7}, Text: "cured"},
	}
	news.Fault("proctree", errors.New("cannot read"))
	news.Fault("proctree", nil)
	f.Tell(time.Second, news)
	f.Tell(2*time.Second, news)
	want := []string{"a fact", "told once", "cured", "proctree: cannot read", "a fact"}
	if !slices.Equal(f.said.all, want) {
		t.Errorf("said %q", f.said.all)
	}
	var names []any
	for _, e := range f.events() {
		names = append(names, e["event"])
	}
	if want := []any{"limit", "loader", "cure", "fault", "limit", "loader", "cure"}; !slices.Equal(names, want) {
		t.Errorf("told %v", names)
	}
}
