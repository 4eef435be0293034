package supervisor

import (
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// sharedReader reads the limits that processes share beside memory on the side:
// a /dev/shm may hang. It is asked in a look and its answer is taken in the next,
// so that it wakes nobody, but where one may be full soon.
type sharedReader struct {
	*probe.Reader[sharedAsk, sharedRead]

	pids   []int
	loads  bool // there is a loader, or may be one
	begun  bool // it was asked once
	asked  time.Duration
	limits []event.Limit // as read last
	at     time.Duration
	rates  map[event.LimitID]*policy.Rate
}

type sharedAsk struct {
	now  time.Duration
	pids []int
}

type sharedRead struct {
	ask    sharedAsk
	limits []event.Limit
}

const (
	sharedRest = time.Second
	// sharedSmall is the pause for a /dev/shm of less than smallSHM, as
	// containers have: a few batches fill it. It is for those that a loader may
	// fill: in which there is something, or beside which there is one.
	sharedSmall = 100 * time.Millisecond
	smallSHM    = 1 << 30
	sharedLeast = 50 * time.Millisecond
	// sharedHangs is after what time without an answer it is told how old the last
	// reading is.
	sharedHangs = 5 * time.Second
)

func newSharedReader(set *probe.Set, proc, sys string, pid int) *sharedReader {
	var s *limit.Sides
	return &sharedReader{rates: map[event.LimitID]*policy.Rate{}, Reader: probe.New(set, func(ask sharedAsk) sharedRead {
		fault.Point("shared")
		if s == nil {
			s = limit.NewSides(proc, sys, pid) // which reads, too
		}
		return sharedRead{ask, s.Read(ask.now, ask.pids, false)}
	})}
}

// update takes in what was read, asks again where that is due, and returns what
// was read last.
func (r *sharedReader) update(now time.Duration, pids []int, loads bool) []event.Limit {
	if r == nil {
		return nil
	}
	r.taken()
	r.pids, r.loads = pids, loads
	r.ask(now)
	limits := slices.Clone(r.limits)
	if age := now - r.at; r.Busy() && now-r.asked >= sharedHangs {
		for i := range limits {
			limits[i].Age = max(limits[i].Age, age.Seconds())
		}
	}
	return limits
}

// taken takes in what was read, and says whether anything was since.
func (r *sharedReader) taken() bool {
	got, ok := r.Take()
	if !ok {
		return false
	}
	r.limits, r.at = got.limits, got.ask.now
	for i := range r.limits {
		l := &r.limits[i]
		rate := r.rates[l.ID()]
		if rate == nil {
			rate = &policy.Rate{}
			r.rates[l.ID()] = rate
		}
		rate.Add(r.at, l.Used)
	}
	return true
}

// pause is how long after one reading the next is due.
func (r *sharedReader) pause(now time.Duration) time.Duration {
	pause := sharedRest
	for i := range r.limits {
		l := &r.limits[i]
		if l.Name == event.LimitSHM && l.Limit < smallSHM && (r.loads || l.Used >= l.Limit/2) {
			pause = min(pause, sharedSmall)
		}
		next := l.Limit
		if l.Ratio() < event.NearShare {
			next = next.Scale(event.NearShare)
		}
		if rate := r.rates[l.ID()].PerSecond(now); rate > 0 {
			seconds := math.Min(float64(next.Sub(l.Used))/rate, sharedRest.Seconds()*pauseShare)
			pause = min(pause, max(time.Duration(seconds/pauseShare*float64(time.Second)), sharedLeast))
		}
	}
	return pause
}

// ask asks for what is due.
func (r *sharedReader) ask(now time.Duration) {
	if r == nil || r.Busy() || r.pids == nil {
		return
	}
	pause := r.pause(now)
	if r.begun && now-r.asked < pause-min(sameWake, pause/4) {
		return
	}
	r.Ask(sharedAsk{now, r.pids}, pause < sharedRest)
	r.begun, r.asked = true, now
}

// next is how long after now the loop is to wake for a reading; false where it
// need not.
func (r *sharedReader) next(now time.Duration) (pause time.Duration, ok bool) {
	if r == nil || r.Busy() {
		return 0, false
	}
	pause = r.pause(now)
	return max(r.asked+pause-now, 0), pause < sharedRest
}
