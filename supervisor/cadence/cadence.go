// Package cadence decides when memory is read again: often where a limit may be reached
// soon, seldom where nothing can happen. It is pure: values in, a pause out.
package cadence

import (
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
	// burstSlack bounds what is spent on sudden bursts: a job that
	// holds still right below a rung is read every 16 ms, not every 2, and such
	// a burst overshoots the rung by at most 32 MiB.
	burstSlack = 64 * rss.MiB
)

// Pause returns how long to wait before the next reading: half the time that
// the fastest rate seen needs to fill headroom, between [MinPause] and
// interval. So a burst at that rate closes in on its rung in halves and
// overshoots it by what it fills in 2 ms. A burst of 2 GiB/s that was not
// seen yet is assumed too; it may overshoot by up to 32 MiB:
//
//	min(headroom/(2·rate), (headroom+64 MiB)/(2·2 GiB/s))
//
// The caller may wait longer where a reading is expensive.
//
// headroom is what is left before the next rung, by the rule that is next.
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
