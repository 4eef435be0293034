package policy

import (
	"maps"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// forecastEvery is how often a forecast is made again; a slope over at least
// three minutes does not change faster.
const forecastEvery = 5 * time.Second

// forecaster is the trend of one limit with the forecast last made of it.
type forecaster struct {
	trend   rss.Trend
	made    bool
	at      time.Duration
	limit   rss.Bytes
	eta     *float64 // as [event.Limit] has it
	outlook event.Outlook
	seen    time.Duration // when the limit was read last
	rise    rise
	spikes  spikes
}

// forgotten is how long a limit must be gone to be one of yesterday: where all
// of a job is watched, each of its steps has limits, and may be one of thousands.
const forgotten = 10 * time.Minute

// Forecasts are what is foreseen of each limit, from what was read of it. The zero value has
// seen nothing.
type Forecasts struct {
	trends  map[event.LimitID]*forecaster
	procs   map[rss.ProcID]*process
	classes map[class]*classSpikes
}

func (f *forecaster) update(now time.Duration, l *event.Limit, acting bool) {
	switch {
	case acting || l.Accounting == event.AccountingPSS:
		f.rise.drop(now, l.Used) // what we do, or what a reading of PSS has corrected
	default:
		if over := f.rise.add(now, l.Used); over >= event.MinGain(0) {
			f.spikes.add(now, over, 0)
		}
	}
	f.trend.AddMapped(now, l.Used, l.Files.Now, l.Files.Most)
	// Below half no forecast counts, and a fall under it ends one at once.
	if f.made && f.limit == l.Limit && l.Used >= l.Limit/2 && now-f.at < forecastEvery {
		return
	}
	f.made, f.at, f.limit = true, now, l.Limit
	f.eta, f.outlook = nil, event.Outlook{}
	switch c, ok := f.trend.Forecast(l.Limit); {
	case ok && c.Reaches:
		s := [...]float64{c.ETA.Seconds(), c.Low.Seconds(), c.High.Seconds()}
		f.eta, f.outlook.ETALow = &s[0], &s[1]
		if c.High < rss.Never { // else growth may flatten before
			f.outlook.ETAHigh = &s[2]
		}
	case ok && c.Level > 0 && c.Level < l.Limit:
		f.outlook.Flattens = max(c.Level, l.Used)
	}
}

// Of returns a copy of limits, as they were read now, with what is forecast of each and
// Binding filled in. acting says that an action is in flight: it moves memory too.
func (o *Forecasts) Of(now time.Duration, in []event.Limit, acting bool) []event.Limit {
	if o.trends == nil {
		o.trends = map[event.LimitID]*forecaster{}
	}
	limits := make([]event.Limit, len(in))
	copy(limits, in)
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 {
			continue // the job's end: its time is no forecast
		}
		f := o.trends[l.ID()]
		if f == nil {
			f = &forecaster{}
			o.trends[l.ID()] = f
		}
		f.update(now, l, acting)
		f.seen = now
		l.ETA, l.Outlook = f.eta, f.outlook
		if l.Name.Memory() && l.Name != event.LimitThrottle {
			l.Spike = o.spike(now, l, f)
		}
	}
	if len(o.trends) > len(limits) {
		maps.DeleteFunc(o.trends, func(_ event.LimitID, f *forecaster) bool { return now-f.seen >= forgotten })
	}
	Bind(limits)
	return limits
}

// Bind marks the limit that ends the job first; see [Binding].
func Bind(limits []event.Limit) {
	if b := Binding(limits); b >= 0 {
		for i := range limits {
			limits[i].Binding = i == b
		}
	}
}

// Binding returns the index of the memory limit that ends the job first: the one
// with the shortest forecast, else the one with the least left in proportion. A
// throttle ends nothing and is none. It returns -1 where no limit has a size.
func Binding(limits []event.Limit) int {
	best := -1
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 || l.Name == event.LimitThrottle || !l.Name.Memory() {
			continue
		}
		if best < 0 || sooner(l, &limits[best]) {
			best = i
		}
	}
	return best
}

func sooner(a, b *event.Limit) bool {
	x, okX := etaOf(a)
	y, okY := etaOf(b)
	switch {
	case okX && okY && x != y:
		return x < y
	case okX != okY:
		return okX
	}
	return a.Ratio() > b.Ratio()
}

func etaOf(l *event.Limit) (time.Duration, bool) {
	if l.ETA == nil {
		return 0, false
	}
	return seconds(*l.ETA), true
}

func seconds(s float64) time.Duration {
	if s >= never.Seconds() {
		return never
	}
	return time.Duration(s * float64(time.Second))
}
