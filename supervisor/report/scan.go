package report

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// observer takes in what a run has, by time.
type observer interface {
	entry(e *record.Entry)
	sample(s *record.Sample)
}

// longest is how long a run may be. A journal is text that anybody may have
// changed, and arithmetic on times must not overflow.
const longest = 20 * 365 * 24 * time.Hour

// samplesOf is a variable for the test that counts how often a run is decoded.
var samplesOf = (*record.Run).Samples

// scan shows a run to all observers. It is the one loop over samples: to decode them
// takes longer than all else.
func scan(r *record.Run, all ...observer) {
	events := r.Events
	until := func(at time.Duration) {
		for ; len(events) > 0 && events[0].At <= at; events = events[1:] {
			if events[0].At < 0 {
				continue
			}
			for _, o := range all {
				o.entry(&events[0])
			}
		}
	}
	for s := range samplesOf(r) {
		if s.At < 0 || s.At > longest {
			continue
		}
		until(s.At)
		for _, o := range all {
			o.sample(s)
		}
	}
	until(longest)
}
