package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
)

// sameWake is by how much something may come early in a wake that is there anyway.
const sameWake = counts.Tolerance

// paced is what the pace is decided by.
func (w *watcher) paced(now time.Duration) *cadence.Input {
	in := w.pace.Input(now, w.view, w.acts)
	in.Unheard = w.observe.Loader != nil && !w.observe.Hears
	if f := w.acts.InFlight(); f != nil {
		in.Flight = now - f.Began
	}
	return in
}

// pause is how long to wait before the next look, of whatever kind.
func (w *watcher) pause(now time.Duration) time.Duration {
	if !w.node.Leads() {
		return max(w.node.Within(now, w.pace.HolderDue(now, followedHolderEvery)), cadence.MinPause)
	}
	in := w.paced(now)
	in.Wake = w.observe.Wake(now)
	return max(w.node.Within(now, w.pace.Next(in)), cadence.MinPause)
}
