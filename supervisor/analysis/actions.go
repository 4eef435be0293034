package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// actionsSeen is what was done in one run. The zero value is ready.
type actionsSeen struct {
	event.Ledger
	Last    *event.Decision // but warnings
	LastAt  time.Time
	Outcome *event.Outcome // of Last
}

func (d *actionsSeen) decided(at time.Time, v *event.Decision) {
	d.Decided(at, v)
	if v.Action != event.ActionWarn {
		d.Last, d.LastAt, d.Outcome = v, at, nil
	}
}

func (d *actionsSeen) finished(at time.Time, v *event.Outcome) {
	d.Finished(at, v)
	if d.Last != nil && v.Decision != 0 && d.Last.ID == v.Decision {
		d.Outcome = v
	}
}
