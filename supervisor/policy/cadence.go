package policy

import (
	"math"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

const (
	// MinPause is the shortest pause between two readings.
	MinPause = 2 * time.Millisecond
	// burst is the fill rate, in bytes a second, that is to be met although
	// nothing like it was seen yet: one process touching huge pages fills about
	// 2 GiB a second. With it a job 4 GiB below its rung is read once a second.
	burst = float64(2 * rss.GiB)
	// burstSlack bounds what is spent on bursts out of the blue: a job that
	// stands still right below a rung is read every 16 ms, not every 2, and such
	// a burst overshoots the rung by at most 32 MiB.
	burstSlack = 64 * rss.MiB
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
	used    rss.Bytes
	fastest float64
	latest  float64
	at      time.Duration // when fastest was exact
}

// Add takes a reading. Times must not go back; a reading that does is ignored.
func (r *Rate) Add(at time.Duration, used rss.Bytes) {
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

// Skip makes the next reading the first of a new stretch: what was filled since
// the last one took nobody knows how long.
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

// Pause returns how long to wait before the next reading: half the time that
// the fastest rate seen needs to fill headroom, between [MinPause] and
// interval. So a burst at that rate closes in on its rung in halves and
// overshoots it by what it fills in 2 ms. A burst of 2 GiB/s that nobody has
// seen yet is assumed too; it may overshoot by up to 32 MiB:
//
//	min(headroom/(2·rate), (headroom+64 MiB)/(2·2 GiB/s))
//
// The caller may wait longer where a reading is dear.
//
// headroom is what is left before the next rung, see [State.NextRung].
func Pause(headroom rss.Bytes, perSecond float64, interval time.Duration) time.Duration {
	wait := (float64(headroom) + float64(burstSlack)) / (2 * burst)
	if perSecond > 0 {
		wait = min(wait, float64(headroom)/(2*perSecond))
	}
	if wait >= interval.Seconds() {
		return max(interval, MinPause)
	}
	return max(time.Duration(wait*float64(time.Second)), MinPause)
}
