package tell

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

const (
	// growthSpan is over what time growth is measured: at least so long, at most twice.
	growthSpan = 5 * time.Second
	// leastGrowthSpan is the least of what is younger: one fault may map 2 MiB at once.
	leastGrowthSpan = time.Second
)

// growth keeps the last full read, and two before it to measure by.
type growth struct{ last, newer, older *view.View }

func (g *growth) add(v *view.View) {
	if g.newer == nil || v.Now-g.newer.Now >= growthSpan {
		g.older, g.newer = g.newer, v
	}
	g.last = v
}

// of measures in bytes a second, from the oldest read that has the number; nil where no read
// is old enough.
func (g *growth) of(read func(*view.View) (rss.Bytes, bool)) *float64 {
	if g.last == nil {
		return nil
	}
	now, ok := read(g.last)
	for _, v := range []*view.View{g.older, g.newer} {
		if v == nil || !ok || g.last.Now-v.Now < leastGrowthSpan {
			continue
		}
		if then, ok := read(v); ok {
			rate := (float64(now) - float64(then)) / (g.last.Now - v.Now).Seconds()
			return &rate
		}
	}
	return nil
}

func (g *growth) ofLimit(id event.LimitID) *float64 {
	return g.of(func(v *view.View) (rss.Bytes, bool) {
		if l := v.Limit(id); l != nil {
			return view.Growing(l), true
		}
		return 0, false
	})
}

func (g *growth) ofProc(id rss.ProcID) *float64 {
	return g.of(func(v *view.View) (rss.Bytes, bool) {
		if p := view.Lineage(v.Sample.Procs).Find(id.PID); p != nil && p.ID == id {
			return p.RSS, true
		}
		return 0, false
	})
}
