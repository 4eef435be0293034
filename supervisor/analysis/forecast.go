package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// forecasts judges the forecasts of a run by what followed. One is judged when its limit
// was reached, or when it can no longer be checked: after an action that freed memory, a
// limit that moved, the end.
type forecasts struct {
	limits             []pending
	made               int
	right, wrong, open int
}

// pending are the forecasts of one limit that are not judged yet.
type pending struct {
	list []forecast
	size uint64
}

type forecast struct {
	at  time.Duration
	eta float32 // seconds
}

// mostPending is how many forecasts wait before those whose time is up are taken
// out.
const mostPending = 1 << 16

func (f *forecasts) init(limits int) { f.limits = make([]pending, limits) }

func (f *forecasts) add(i int, at time.Duration, r *record.Reading) {
	p := &f.limits[i]
	if p.size != uint64(r.Size) {
		f.settle(p, at, false)
		p.size = uint64(r.Size)
	}
	if r.Size > 0 && r.Used >= r.Size {
		f.settle(p, at, true)
		return
	}
	if r.ETA < 0 {
		return
	}
	f.made++
	p.list = append(p.list, forecast{at, float32(r.ETA)})
	if len(p.list) >= mostPending {
		kept := p.list[:0]
		for _, c := range p.list {
			if c.over(at) {
				f.wrong++
			} else {
				kept = append(kept, c)
			}
		}
		p.list = kept
		if len(kept) > mostPending/2 { // long forecasts: the oldest go untold
			f.open += len(kept) / 2
			p.list = append(kept[:0], kept[len(kept)/2:]...)
		}
	}
}

// over says that twice the time that was forecast has gone by.
func (c forecast) over(at time.Duration) bool { return (at - c.at).Seconds() > 2*float64(c.eta) }

// settle judges all that waits for one limit: at a moment when it was reached,
// or when it can no longer be known whether it would have been.
func (f *forecasts) settle(p *pending, at time.Duration, reached bool) {
	for _, c := range p.list {
		switch took := (at - c.at).Seconds(); {
		case c.over(at):
			f.wrong++
		case !reached:
			f.open++
		case took < float64(c.eta)/2:
			f.wrong++
		default:
			f.right++
		}
	}
	p.list = p.list[:0]
}

// disturb says that something was done about memory.
func (f *forecasts) disturb(at time.Duration) {
	for i := range f.limits {
		f.settle(&f.limits[i], at, false)
	}
}

// finish judges the rest: by is the limit that ended the run, -1 for none.
func (f *forecasts) finish(end time.Duration, by int) {
	for i := range f.limits {
		f.settle(&f.limits[i], end, i == by)
	}
}
