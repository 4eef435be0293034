package supervisor

import (
	"math"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// tally is what one counting brought.
type tally struct {
	n       int
	at      time.Duration // when that was
	virtual rss.Bytes     // VmSize of /proc/PID/status then
	rate    float64       // how many more a second since the one before; 0 for fewer
	perPage float64       // … and how many more for each page that VmSize grew by, at most 1
	cost    time.Duration
	known   bool
	failed  bool // the last one did

	busy         bool          // one is under way
	asked        time.Duration // when the last one was asked for
	askedVirtual rss.Bytes

	limit   uint64 // 0 where it is not known
	limitAt time.Duration
}

func (t *tally) share() float64 {
	if t.limit == 0 {
		return 0
	}
	return float64(t.n) / float64(t.limit)
}

const (
	countRest = 30 * time.Second
	// countStill is the pause for mappings of which there are less than stillShare
	// of the limit, in a process whose VmSize is the same to the byte as when they
	// were counted last: what can split them by then are mprotect and the like alone.
	countStill = 2 * time.Minute
	stillShare = 0.1
	countQuick = time.Second
	countNear  = 250 * time.Millisecond
	// countFull is the pause near the limit where nothing says that there may be
	// more: 60,000 mappings take 10 ms to count.
	countFull = 2 * time.Second
	// fdRest is the pause for descriptors where they are cheap: a table of 1,024
	// is full sooner than one of 65,530. Of processes without a role, which a
	// training job's descriptors seldom run out in, it is fdOther.
	fdRest  = time.Second
	fdOther = 10 * time.Second
	fdCheap = 50 * time.Microsecond
	// countRetry is how long a process that could not be counted is left alone.
	countRetry = time.Minute
	quickShare = 0.5
	// soonFull is within what time a limit that would be reached at the rate seen
	// counts as near, rushFull within what time it must be counted whatever that
	// costs: 60,000 mappings may come within 6 s.
	soonFull = 2 * time.Minute
	rushFull = 15 * time.Second
	// countLeast is the least pause, and pauseShare the part of the time that is
	// left before event.NearShare, or before the limit, after which is counted again.
	countLeast = 50 * time.Millisecond
	pauseShare = 4
	// leastMap is the least that a mapping adds to VmSize. Mappings can grow in
	// number without it (mprotect splits them): then countStill finds them.
	leastMap = 4 * rss.KiB
)

// mayHaveMore says that the number may have grown: VmSize has, see [leastMap].
// Nothing tells of descriptors; who got more lately may get more.
func (t *tally) mayHaveMore(kind countKind, e *countEntry) bool {
	if kind == countMaps {
		return e.proc.Virtual > t.virtual
	}
	return t.rate > 0
}

// presses says that so much is used, and more comes, that it must be counted
// whatever it costs.
func (t *tally) presses(kind countKind, e *countEntry) bool {
	return t.rushes(kind, e) || t.share() >= quickShare && kind == countMaps && e.rising > 0
}

// near says that the limit is near, or may be soon.
func (t *tally) near() bool {
	left := float64(t.limit) - float64(t.n)
	return t.known && t.limit > 0 && (t.share() >= event.NearShare || t.rate*soonFull.Seconds() >= left)
}

// filled is how long it takes until there are n at a rate, [never] without one.
func (t *tally) filled(n, rate float64) time.Duration {
	left := n - float64(t.n)
	if !t.known || t.limit == 0 || rate <= 0 || left > rate*soonFull.Seconds() {
		return never
	}
	return time.Duration(max(left, 0) / rate * float64(time.Second))
}

const never = time.Duration(math.MaxInt64)

// pace is how many come a second: as counted, or more where VmSize grows faster
// since, as far as its growth was mappings before. A large allocation is one.
func (t *tally) pace(kind countKind, e *countEntry) float64 {
	if kind != countMaps {
		return t.rate
	}
	return max(t.rate, e.rising/float64(leastMap)*t.perPage)
}

// rushes says that the limit is near in time: whoever is to be warned before it
// must be counted now.
func (t *tally) rushes(kind countKind, e *countEntry) bool {
	return t.filled(float64(t.limit), t.pace(kind, e)) <= rushFull
}

// pause is how long after one counting the next is due.
func (t *tally) pause(kind countKind, e *countEntry) time.Duration {
	if t.failed {
		return countRetry
	}
	rate := t.pace(kind, e)
	next := float64(t.limit)
	if t.share() < event.NearShare {
		next *= event.NearShare
	}
	pause := min(t.usual(kind, e), max(t.filled(next, rate)/pauseShare, countLeast))
	if e.hurried && rate == 0 {
		pause = min(pause, hurriedPause)
	}
	return pause
}

// usual is the pause where nothing is in a hurry.
func (t *tally) usual(kind countKind, e *countEntry) time.Duration {
	switch {
	case t.share() >= event.NearShare && t.mayHaveMore(kind, e):
		return countNear
	case t.near(), t.share() >= quickShare && t.mayHaveMore(kind, e):
		return countQuick
	case t.share() >= event.NearShare:
		return countFull
	case kind == countFDs && t.cost <= fdCheap:
		if e.proc.Role == rss.RoleTrainer || e.proc.Role == rss.RoleWorker {
			return fdRest
		}
		return fdOther
	case kind == countMaps && t.limit > 0 && e.proc.Virtual == t.virtual && t.share() < stillShare:
		return countStill
	case kind == countMaps && t.limit > 0:
		// By as many as make a tenth of what is left, at least.
		left := rss.Bytes(t.limit).Sub(rss.Bytes(t.n))
		if e.proc.Virtual.Sub(t.virtual)/leastMap > left/10 {
			return countQuick
		}
	}
	return countRest
}

// likely is what a counting takes, by the last one.
func (t *tally) likely(kind countKind) time.Duration {
	switch {
	case t.cost > 0:
		return t.cost
	case kind == countMaps:
		return time.Millisecond // 3,000 mappings, as Python with torch has
	}
	return 10 * time.Microsecond
}

// The shares of a core, where nothing is near its limit, where something is, and
// where it rushes there.
var purseShares = [countKinds]struct{ rest, near, rush float64 }{
	countMaps: {0.001, 0.01, 0.5},
	countFDs:  {0.0001, 0.005, 0.05},
}

// purseHolds is the most that a purse has: what a job takes at its start. It has no
// more than its share of purseSpan: the descriptors' would last for minutes else.
const (
	purseHolds = 30 * time.Millisecond
	purseSpan  = 30 * time.Second
)
