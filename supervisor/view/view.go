package view

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// View is what one full read has seen. It is never changed once it is made.
type View struct {
	Now    time.Duration // of the watcher's clock, when it was read
	Sample rss.Sample
	Limits []event.Limit // with forecasts
	Rates  map[event.LimitID]rss.Rate
}

// Limit returns the reading of a limit, nil where there is none.
func (v *View) Limit(of event.LimitID) *event.Limit {
	for i := range v.Limits {
		if l := &v.Limits[i]; l.ID() == of {
			return l
		}
	}
	return nil
}

// Latest is how fast a limit grows now, in bytes a second.
func (v *View) Latest(l *event.Limit) float64 {
	r := v.Rates[l.ID()]
	return r.Latest(v.Now)
}

// standstill is the time to the limit, at a rate that was seen and has faded
// since, from which on nothing grows.
const standstill = 6 * time.Hour

// TimeLeft is the time to a limit: as forecast, else at the fastest rate seen.
// It is 0 where nothing grows, and only there.
func (v *View) TimeLeft(l *event.Limit) time.Duration {
	seconds, r := 0.0, v.Rates[l.ID()]
	if rate := r.PerSecond(v.Now); rate > 0 {
		seconds = float64(l.Headroom()) / rate
	}
	if seconds > standstill.Seconds() {
		seconds = 0 // a rate fades and never ends
	}
	if l.ETA != nil {
		seconds = *l.ETA
	}
	// At the limit there is no time left, which is not the same as no growth.
	left := time.Duration(min(seconds, 1e9) * float64(time.Second))
	if l.Headroom() == 0 || seconds > 0 {
		left = max(left, 1)
	}
	return left
}
