package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// tally is what one counting brought.
type tally struct {
	n       int
	at      time.Duration // when that was
	virtual rss.Bytes     // VmSize of /proc/PID/status then
	rate    float64       // how many more a second since the one before; 0 for fewer
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
	countRest  = 30 * time.Second
	countQuick = time.Second
	countNear  = 250 * time.Millisecond
	// fdRest is the pause for descriptors where they are cheap: a table of 1,024
	// is full sooner than one of 65,530. Of processes without a role, which a
	// training job's descriptors seldom run out in, it is fdOther.
	fdRest  = time.Second
	fdOther = 10 * time.Second
	fdCheap = 50 * time.Microsecond
	// countRetry is how long a process that could not be counted is left alone.
	countRetry = time.Minute
	nearShare  = 0.8
	quickShare = 0.5
	// soonFull is within what time a limit that would be reached at the rate seen
	// counts as near.
	soonFull = 2 * time.Minute
	// leastMap is the least that a mapping adds to VmSize. Mappings can grow in
	// number without it (mprotect splits them): then countRest finds them.
	leastMap = 4 * rss.KiB
)

// near says that the limit is near, or may be soon.
func (t *tally) near() bool {
	left := float64(t.limit) - float64(t.n)
	return t.known && t.limit > 0 && (t.share() >= nearShare || t.rate*soonFull.Seconds() >= left)
}

// pause is how long after one counting the next is due.
func (t *tally) pause(kind countKind, e *countEntry) time.Duration {
	switch {
	case t.failed:
		return countRetry
	case t.share() >= nearShare:
		return countNear
	case t.near(), t.share() >= quickShare:
		return countQuick
	case kind == countFDs && t.cost <= fdCheap:
		if e.role == rss.RoleTrainer || e.role == rss.RoleWorker {
			return fdRest
		}
		return fdOther
	case kind == countMaps && t.limit > 0:
		// By as many as make a tenth of what is left, at least.
		left := rss.Bytes(t.limit).Sub(rss.Bytes(t.n))
		if e.virtual.Sub(t.virtual)/leastMap > left/10 {
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

// purse is processor time that may be spent: it fills by a share of the time
// that passes, and what is spent beyond it must be filled up first.
type purse struct {
	has   time.Duration
	at    time.Duration
	begun bool
}

// The shares of a core, where nothing is near its limit and where something is.
var purseShares = [countKinds]struct{ rest, near float64 }{
	countMaps: {0.001, 0.01},
	countFDs:  {0.0001, 0.005},
}

// purseHolds is the most that a purse has: what a job takes at its start.
const purseHolds = 10 * time.Millisecond

func (p *purse) fill(now time.Duration, share float64) {
	if !p.begun {
		p.begun, p.has = true, purseHolds
	} else {
		p.has = min(p.has+time.Duration(float64(now-p.at)*share), purseHolds)
	}
	p.at = now
}
