package supervisor

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// countKind is what is counted.
type countKind int

const (
	countMaps  countKind = iota // against vm.max_map_count
	countFDs                    // against RLIMIT_NOFILE
	countKinds = iota
)

var countNames = [countKinds]event.LimitName{event.LimitMaps, event.LimitFDs}

// counting decides whose maps and descriptors are counted next. It reads
// nothing itself and has no clock. Trainers, workers and the few fullest are
// counted when they are first seen, then as often as told by [tally.pause], as
// far as the purse of the kind reaches.
type counting struct {
	entries map[rss.ProcID]*countEntry
	at      time.Duration         // of the last look
	hurries map[int]time.Duration // by PID: until when it is counted often
	purses  [countKinds]probe.Bucket
	calls   []countCall // of the last look; its room is kept
}

// countCall is a count that is due, and how urgently: 1 is when its pause ends.
type countCall struct {
	e      *countEntry
	kind   countKind
	urgent float64
}

// countEntry is one process that is counted, or was lately.
type countEntry struct {
	proc    rss.Proc      // as it was in the last look
	rising  float64       // of VmSize between the last two looks, in bytes a second
	hurried bool          // somebody has said that its number is about to grow
	first   time.Duration // when it was first among those to be counted
	wanted  time.Duration // … and when last
	seen    bool
	tallies [countKinds]tally
	limits  *proctree.ResourceLimits // nil where they were not read
	locks   bool                     // … and it may lock as much as it likes
}

// hangs says that counting its mappings may take for ever: who is in D may keep
// mmap_lock, and us, for long. Who maps more from look to look does not.
func (e *countEntry) hangs() bool { return e.proc.State == 'D' && e.rising == 0 }

const (
	// fullest is how many processes are counted for their RSS alone, whatever
	// their role.
	fullest = 8
	// countKept is how long the counts of a process are kept that is none of
	// these any more.
	countKept = time.Minute
	// leastPages is by how much VmSize must have grown to say what its growth is.
	leastPages = 256
	// hurriedPause is the pause of a process that is in a hurry.
	hurriedPause = 100 * time.Millisecond
	// limitHolds is how long a limit is believed, where it is far.
	limitHolds = time.Minute
)

// update says which processes there are, and who of them is to be counted.
func (c *counting) update(now time.Duration, procs []rss.Proc) {
	if c.entries == nil {
		c.entries = map[rss.ProcID]*countEntry{}
	}
	for _, e := range c.entries {
		e.seen = false
	}
	least, alike := nthRSS(procs)
	since := (now - c.at).Seconds()
	c.at = now
	for i := range procs {
		p := &procs[i]
		e := c.entries[p.ID]
		large := p.RSS > least
		if p.RSS == least && alike > 0 {
			large, alike = p.RSS > 0, alike-1
		}
		hurried := c.hurries[p.ID.PID] > now
		wanted := large || hurried || p.Role == rss.RoleTrainer || p.Role == rss.RoleWorker
		if e == nil && !wanted {
			continue
		}
		if e == nil {
			e = &countEntry{first: now}
			c.entries[p.ID] = e
		}
		if wanted {
			e.wanted = now
		}
		if execed(&e.proc, p) {
			*e = countEntry{first: now, wanted: e.wanted}
		}
		e.rising = 0
		if since > 0 && e.proc.Virtual > 0 {
			e.rising = float64(p.Virtual.Sub(e.proc.Virtual)) / since
		}
		e.seen, e.hurried, e.proc = true, hurried, *p
	}
	for id, e := range c.entries {
		if !e.seen || now-e.wanted > countKept {
			delete(c.entries, id)
		}
	}
	for pid, until := range c.hurries {
		if until <= now {
			delete(c.hurries, pid)
		}
	}
}

// execed says that a process seems to have called execve(2) between two looks: it has
// another name, or less than half of its address space. Its descriptors and mappings
// are others now, and a shell sets limits right before.
func execed(was, is *rss.Proc) bool {
	return was.Comm != "" && (is.Comm != was.Comm || is.Virtual < was.Virtual/2)
}

// hurry has a process counted often for a while: it has said that it is about to
// make many at once.
func (c *counting) hurry(pid int, until time.Duration) {
	if c.hurries == nil {
		c.hurries = map[int]time.Duration{}
	}
	c.hurries[pid] = until
}

// fill fills the purses.
func (c *counting) fill(now time.Duration) {
	for kind := range c.purses {
		shares := purseShares[kind]
		share := shares.rest
		for _, e := range c.entries {
			if t := &e.tallies[kind]; e.hurried || t.presses(countKind(kind), e) {
				share = shares.rush
				break
			} else if t.near() {
				share = shares.near
			}
		}
		b := &c.purses[kind]
		b.Most, b.Share = min(purseHolds, time.Duration(share*float64(purseSpan))), share
		b.Fill(now)
	}
}

// hot is how long after now the next count is due that is not to wait for the
// next look; false where there is none.
func (c *counting) hot(now time.Duration) (pause time.Duration, ok bool) {
	for _, e := range c.entries {
		if e.wanted != c.at || e.proc.State == 'Z' || e.proc.State == 'X' {
			continue
		}
		for kind := range countKind(countKinds) {
			t := &e.tallies[kind]
			p := t.pause(kind, e)
			if t.busy || !t.known && !e.hurried || p >= countQuick || kind == countMaps && e.hangs() {
				continue
			}
			if due := max(t.asked+p-now, c.purses[kind].Dry(), 0); !ok || due < pause {
				pause, ok = due, true
			}
		}
	}
	return pause, ok
}

// nthRSS is the RSS above which a process is one of the fullest, and how many
// that have just as much are: a thousand may be alike.
func nthRSS(procs []rss.Proc) (least rss.Bytes, alike int) {
	var top [fullest]rss.Bytes // descending
	for i := range procs {
		r := procs[i].RSS
		for j := range top {
			if r > top[j] {
				r, top[j] = top[j], r
			}
		}
	}
	least = top[fullest-1]
	for _, r := range top {
		if r == least {
			alike++
		}
	}
	return least, alike
}

// due returns what is to be counted now: all that is due, the longest overdue
// for its pause first, as far as the purses reach by what each took last.
func (c *counting) due(now time.Duration) []countAsk {
	c.fill(now)
	calls := c.calls[:0]
	for _, e := range c.entries {
		if e.wanted != c.at || e.proc.State == 'Z' || e.proc.State == 'X' {
			continue
		}
		for kind := range countKind(countKinds) {
			if kind == countMaps && e.hangs() || c.purses[kind].Fill(now) <= 0 {
				continue
			}
			t := &e.tallies[kind]
			urgent := 1 + (now - e.first).Seconds()
			if t.known || t.failed {
				pause := t.pause(kind, e)
				urgent = float64(now-t.asked+min(sameWake, pause/4)) / float64(pause)
			}
			if !t.busy && urgent >= 1 {
				calls = append(calls, countCall{e, kind, urgent})
			}
		}
	}
	c.calls = calls
	slices.SortFunc(calls, func(a, b countCall) int {
		return cmp.Or(cmp.Compare(b.urgent, a.urgent), cmp.Compare(b.e.proc.RSS, a.e.proc.RSS), cmp.Compare(a.e.proc.ID.PID, b.e.proc.ID.PID), cmp.Compare(a.kind, b.kind))
	})
	var asks []countAsk
	var spent [countKinds]time.Duration
	for _, k := range calls {
		if spent[k.kind] >= c.purses[k.kind].Fill(now) {
			continue
		}
		t := &k.e.tallies[k.kind]
		spent[k.kind] += t.likely(k.kind)
		stale := t.limit == 0 || now-t.limitAt >= limitHolds || t.share() >= event.NearShare
		if stale {
			t.limitAt = now
		}
		asks = append(asks, countAsk{id: k.e.proc.ID, kind: k.kind, limit: stale})
		t.busy, t.asked, t.askedVirtual = true, now, k.e.proc.Virtual
	}
	return asks
}

// done takes in one count.
func (c *counting) done(r countRead) {
	c.purses[r.ask.kind].Spend(r.count.Cost)
	e := c.entries[r.ask.id]
	if e == nil || !e.tallies[r.ask.kind].busy { // what it was asked of is gone
		return
	}
	t := &e.tallies[r.ask.kind]
	t.busy, t.failed = false, r.err != nil
	if r.limit > 0 {
		t.limit = r.limit
	}
	if r.limits != nil {
		e.limits, e.locks = r.limits, r.locks
	}
	if r.err != nil {
		return
	}
	t.rate = 0
	if passed := (t.asked - t.at).Seconds(); t.known && passed > 0 {
		t.rate = max(float64(r.count.N-t.n)/passed, 0)
	}
	if pages := float64(t.askedVirtual.Sub(t.virtual) / leastMap); t.known && pages >= leastPages {
		t.perPage = min(max(float64(r.count.N-t.n)/pages, 0), 1)
	}
	t.n, t.at, t.virtual, t.cost, t.known = r.count.N, t.asked, t.askedVirtual, r.count.Cost, true
}
