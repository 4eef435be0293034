package nodejobs

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

const (
	// earlyLooks and earlyApart make early reach back for [rss.HoldTime] at every
	// interval of looks, dense enough for a slope.
	earlyLooks = 36
	earlyApart = 5 * time.Second
)

// early keeps how a job or step grew before it is worth a trend, in a sixteenth of its
// memory. Who fills its limit within minutes has gone far beyond half of it when a trend
// that begins at a quarter has seen enough.
type early struct {
	at   [earlyLooks]time.Duration
	used [earlyLooks]rss.Bytes
	n    int // readings so far; the newest are kept
}

// add takes a reading, but for one that comes soon after another.
func (e *early) add(at time.Duration, used rss.Bytes) {
	if e.n > 0 && at-e.at[(e.n-1)%earlyLooks] < earlyApart {
		return
	}
	e.at[e.n%earlyLooks], e.used[e.n%earlyLooks] = at, used
	e.n++
}

// trend begins a trend with what was kept.
func (e *early) trend() *rss.Trend {
	t := new(rss.Trend)
	for i := max(0, e.n-earlyLooks); i < e.n; i++ {
		t.Add(e.at[i%earlyLooks], e.used[i%earlyLooks])
	}
	return t
}
