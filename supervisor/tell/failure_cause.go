package tell

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// A run may fail because it ran out of something else than memory. A peak of an hour ago
// was survived: only how limits stood right before the end counts, and only a failure of
// the command's own making.
const (
	// blameFor is how long before the last look a limit may have been full for a
	// failure to be laid to it: Python takes seconds to take 60,000 mappings down.
	blameFor = 15 * time.Second
	// usedUp is the share from which on one counts as used up: the last look was
	// some time before. closingFrom is from where on it may have been at the rate
	// that was seen, within closingIn.
	usedUp      = 0.95
	closingFrom = 0.5
	closingIn   = 3 * time.Second
	// leastRise is the share of a limit that others have a part in by which it
	// must have risen for this job to be what filled it.
	leastRise = 0.05
)

// sideTail is how one limit stood in the last seconds.
type sideTail struct {
	slots [int(blameFor / time.Second)]sideSlot
	last  sideSlot // the last that differs from the one before it
}

// sideSlot is the fullest reading of one second.
type sideSlot struct {
	limit event.Limit
	at    time.Duration
	ok    bool
	rate  float64   // by which it rose to that, a second
	low   rss.Bytes // the least that was read in that second
}

// late takes in a reading at that time. pace is what its process is known to add a
// second: it may be the nearest since this reading.
func (s *limitsSeen) late(l *event.Limit, now time.Duration, pace float64) {
	if s.tails == nil {
		s.tails = map[event.LimitName]*sideTail{}
	}
	t := s.tails[l.Name]
	if t == nil {
		t = &sideTail{}
		s.tails[l.Name] = t
	}
	at := now - time.Duration(l.Age*float64(time.Second))
	n := sideSlot{limit: *l, at: at, ok: true, low: l.Used, rate: pace}
	if b := &t.last; b.ok && b.limit.PID == l.PID && b.limit.Level == l.Level && b.limit.Scope == l.Scope {
		switch passed := (at - b.at).Seconds(); {
		case l.Used == b.limit.Used && at-b.at <= closingIn:
			n.rate = max(pace, b.rate)
		case l.Used > b.limit.Used && passed > 0:
			n.rate = max(pace, float64(l.Used-b.limit.Used)/passed)
		}
	}
	if l.Used != t.last.limit.Used || l.PID != t.last.limit.PID {
		t.last = n
	}
	slot := &t.slots[int(at/time.Second)%len(t.slots)]
	fresh := !slot.ok || slot.at/time.Second != at/time.Second
	if !fresh {
		n.low = min(n.low, slot.low)
	}
	if fresh || l.Ratio() >= slot.limit.Ratio() {
		*slot = n
	}
	slot.low = n.low
}

// ranOut returns the fullest reading right before the end, where there was none
// left, or would have been at the rate that was seen.
func (t *sideTail) ranOut(end time.Duration) (event.Limit, bool) {
	var full sideSlot
	least, seen := rss.Bytes(0), false
	for i := range t.slots {
		s := &t.slots[i]
		if !s.ok || end-s.at > blameFor {
			continue
		}
		if !seen || s.low < least {
			least, seen = s.low, true
		}
		if !full.ok || s.limit.Ratio() > full.limit.Ratio() {
			full = *s
		}
	}
	l := &full.limit
	if !full.ok || l.Limit == 0 {
		return event.Limit{}, false
	}
	closing := l.Ratio() >= closingFrom && float64(l.Used)+full.rate*closingIn.Seconds() >= float64(l.Limit)
	if l.Name == event.LimitSHM {
		// One batch may take it from there to full and back, between two looks.
		closing = l.Ratio() >= event.NearShare && end-full.at <= closingIn
	}
	if l.Ratio() < usedUp && !closing {
		return event.Limit{}, false
	}
	if l.Scope != event.ScopeProcess && (l.Used-least).Of(l.Limit) < leastRise {
		return event.Limit{}, false // it stood so all the time: others fill it, or the job lives with it
	}
	return *l, true
}

// sentWithin is how long sending may take: the fork server refuses a million of
// descriptors after all were pickled, at some thousand a second. What fails later
// has another cause.
const sentWithin = 5 * time.Minute

// exhausted is the limit that there was none left of at the last reading, nil where nothing
// ran out.
func (s *Summary) exhausted(read, now time.Duration) *event.Limit {
	for _, name := range event.Limits {
		t := s.tails[name]
		if t == nil {
			continue
		}
		if l, ok := t.ranOut(read); ok {
			return &l
		}
	}
	p := s.sharing.what
	if p == nil || now-s.sharing.at > sentWithin {
		return nil
	}
	// A DataLoader was about to send more tensors than a limit holds.
	for _, c := range []struct {
		name      event.LimitName
		used, has int
	}{{event.LimitFDs, p.Sent, p.MaxSent}, {event.LimitMaps, p.Maps, p.MaxMaps}, {event.LimitFDs, p.FDs, p.MaxFDs}} {
		if c.used > c.has && c.has > 0 {
			return &event.Limit{Name: c.name, Used: rss.Bytes(c.used), Limit: rss.Bytes(c.has)}
		}
	}
	return nil
}

// failed says that the command ended badly by itself: one that a signal ended has not run
// out of anything.
func failed(code, signal int) bool {
	if code > 128 { // a shell says so
		signal = code - 128
	}
	switch unix.Signal(signal) {
	case 0:
		return code != 0
	case unix.SIGBUS, unix.SIGABRT, unix.SIGSEGV:
		return true
	}
	return false
}
