package replay

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// This file brings events and samples together. A sample has the time of a clock
// that nobody sets, an event that of the node's, which is set and slewed. A
// decision has the use that it was made on, and so has a sample.

// alignWithin is how far the two clocks may come apart from one decision to the
// next.
const alignWithin = 5 * time.Second

// look is a sample that was kept because the ladder moved on it.
type look struct {
	at     time.Duration
	limits []record.Reading
}

// clocks tell how far the clock of events is behind that of samples, at each
// decision.
type clocks []struct{ at, shift time.Duration }

// moved is the time of an event on the clock of samples, by the nearest decision.
func (c clocks) moved(at time.Duration) time.Duration {
	var shift time.Duration
	off := time.Duration(1<<63 - 1)
	from, _ := slices.BinarySearchFunc(c, at, func(e struct{ at, shift time.Duration }, at time.Duration) int {
		if e.at < at {
			return -1
		}
		return 1
	})
	for i := max(from-1, 0); i < min(from+1, len(c)); i++ {
		if away := (c[i].at - at).Abs(); away < off {
			off, shift = away, c[i].shift
		}
	}
	return at + shift
}

// place finds the sample of each decision.
func (p *past) place(events []record.Entry, looks []look) (c clocks) {
	var shift time.Duration
	for _, e := range events {
		v, ok := e.Value.(*event.Decision)
		if !ok || v.Asked() {
			continue // what somebody asked for is no doing of the ladder's
		}
		d := &deed{Decision: *v, at: e.At + shift, limit: -1}
		if at, limit, ok := align(looks, e.At+shift, v); ok {
			shift = at - e.At
			d.at, d.limit, d.exact = at, limit, true
			c = append(c, struct{ at, shift time.Duration }{e.At, shift})
		}
		p.deeds = append(p.deeds, d)
		if v.Limit == event.LimitTime {
			p.timed = append(p.timed, d)
		}
	}
	return c
}

// isAt says that a decision was made on the look at that moment.
func (d *deed) isAt(now time.Duration) bool {
	if d.exact {
		return d.at == now
	}
	return (d.at - now).Abs() <= sameLook
}

// align finds the sample that a decision was made on, and the limit.
func align(looks []look, at time.Duration, d *event.Decision) (on time.Duration, limit int, ok bool) {
	off := alignWithin
	from, _ := slices.BinarySearchFunc(looks, at-alignWithin, func(l look, at time.Duration) int {
		if l.at < at {
			return -1
		}
		return 1
	})
	for i := from; i < len(looks) && looks[i].at <= at+alignWithin; i++ {
		away := (looks[i].at - at).Abs()
		if away >= off {
			continue
		}
		if d.Limit == event.LimitTime {
			on, limit, off, ok = looks[i].at, -1, away, true
			continue
		}
		for _, r := range looks[i].limits {
			// A record has whole KiB.
			if r.Size == d.LimitSize && r.Used/rss.KiB == d.Used/rss.KiB {
				on, limit, off, ok = looks[i].at, r.Limit, away, true
				break
			}
		}
	}
	return on, limit, ok
}
