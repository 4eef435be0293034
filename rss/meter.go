package rss

import "time"

// meterKept is how many durations a [Meter] looks back.
const meterKept = 8

// Meter keeps what something costs that is done over and over, so that its
// share of a core can be bounded. It is the least of the last eight durations:
// what longer ones took on top was the load of the node, and to look less often
// because of that would be to look away when it counts. The zero value has seen
// nothing.
type Meter struct {
	last [meterKept]time.Duration
	n    int
}

// Add takes one duration.
func (m *Meter) Add(d time.Duration) {
	m.last[m.n%meterKept] = d
	m.n++
}

// Cost returns what it costs once, 0 where nothing was seen.
func (m *Meter) Cost() time.Duration {
	seen := min(m.n, meterKept)
	if seen == 0 {
		return 0
	}
	least := m.last[0]
	for _, d := range m.last[1:seen] {
		least = min(least, d)
	}
	return least
}

// Pause returns the time from one start to the next with which it takes that
// share of a core, above 0 and 1 at most.
func (m *Meter) Pause(share float64) time.Duration {
	return time.Duration(float64(m.Cost()) / share)
}
