package rss

import (
	"math"
	"time"
)

const (
	// rateSpan is the least time over which a rate is measured. One fault may
	// map 2 MiB at once; over 2 ms that is no rate.
	rateSpan = 20 * time.Millisecond
	// rateHalfLife is the time in which a rate that is not seen again counts half.
	rateHalfLife = time.Minute
)

// Rate keeps the fastest fill rate of one limit, decaying slowly. The zero
// value has seen nothing.
type Rate struct {
	seen    bool
	from    time.Duration
	used    Bytes
	fastest float64
	latest  float64
	at      time.Duration // when fastest was exact
}

// Add takes a reading. Times must not go back; a reading that does is ignored.
func (r *Rate) Add(at time.Duration, used Bytes) {
	if !r.seen {
		r.seen, r.from, r.used = true, at, used
		if r.fastest == 0 {
			r.at = at
		}
		return
	}
	span := at - r.from
	if span < rateSpan {
		return
	}
	now := float64(used.Sub(r.used)) / span.Seconds()
	r.latest = now
	if now >= r.PerSecond(at) {
		r.fastest, r.at = now, at
	}
	r.from, r.used = at, used
}

// Skip makes the next reading the first of a new stretch: the time since the last
// one is not known.
func (r *Rate) Skip() { r.seen = false }

// PerSecond returns the fastest rate in bytes a second, as it counts at that
// time; 0 where nothing has grown yet.
func (r *Rate) PerSecond(at time.Duration) float64 {
	age := max(at-r.at, 0)
	return r.fastest * math.Exp2(-float64(age)/float64(rateHalfLife))
}

// Latest returns the rate of the last stretch, 0 where nothing grew in it or it
// is long ago: what grows now, not what has grown once.
func (r *Rate) Latest(at time.Duration) float64 {
	if at-r.from > time.Second {
		return 0
	}
	return r.latest
}
