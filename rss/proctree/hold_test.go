package proctree_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

// reading is one that a simulated budget asked for.
type reading struct {
	proctree.PSSAsk
	at   time.Duration
	cost time.Duration
}

// machine answers what a budget asks for: a walk of 1 GiB takes rate, and one
// mapping has this share of it.
type machine struct {
	b     proctree.PSSBudget
	procs []rss.Proc
	rate  time.Duration
	one   float64
}

// until lets the budget ask every 100 ms.
func (m *machine) until(from, to time.Duration) (all []reading) {
	for now := from; now < to; now += 100 * time.Millisecond {
		m.b.Update(m.procs)
		for ask, ok := m.b.Due(now); ok; ask, ok = m.b.Due(now) {
			size := find(m.procs, ask.ID.PID).RSS
			cost := time.Duration(float64(m.rate) * size.Of(rss.GiB))
			p := rss.PSS{PSS: size / 2, RSS: size, Cost: cost, Held: cost}
			if ask.Pieces {
				p.Held = time.Duration(float64(cost) * m.one)
			}
			m.b.Done(ask, p, nil, now)
			all = append(all, reading{ask, now, cost})
		}
	}
	return all
}

// restless makes every process move, so that all are worth a reading.
func (m *machine) restless(to time.Duration) (all []reading) {
	for now := time.Duration(0); now < to; now += time.Second {
		for i := range m.procs {
			p := &m.procs[i]
			p.File = rss.Bytes(now/time.Second%2) * 100 * rss.MiB
			p.Anon = p.RSS - p.File
		}
		all = append(all, m.until(now, now+time.Second)...)
	}
	return all
}

// gaps tells the least time between two readings of the same process.
func gaps(all []reading) time.Duration {
	least, last := time.Duration(1<<62), map[rss.ProcID]time.Duration{}
	for _, r := range all {
		if at, ok := last[r.ID]; ok {
			least = min(least, r.at-at)
		}
		last[r.ID] = r.at
	}
	return least
}

func TestBudgetWayOfReading(t *testing.T) {
	for _, c := range []struct {
		what   string
		size   rss.Bytes
		rate   time.Duration // of the node, as read before; 0 for nothing
		pieces bool
	}{
		{"small", rss.GiB, 0, false},
		{"nothing known: 21 ms for 1 GiB, just below", 2340 * rss.MiB, 0, false},
		{"… and just above", 2480 * rss.MiB, 0, true},
		{"7 ms and half as much for safety, just below", 4600 * rss.MiB, 7 * time.Millisecond, false},
		{"… and just above", 4900 * rss.MiB, 7 * time.Millisecond, true},
		{"huge pages of others tell nothing", 4900 * rss.MiB, time.Microsecond, true},
		{"a slow node", 1200 * rss.MiB, 30 * time.Millisecond, true},
	} {
		m := machine{rate: c.rate}
		if c.rate > 0 {
			for i := range 20 { // each brings the rate down by half of the rest
				m.procs = append(m.procs, proc(i+1, rss.GiB))
			}
			if n := len(m.until(0, 10*time.Minute)); n < 20 {
				t.Fatalf("%s: only %d readings", c.what, n)
			}
		}
		m.b.Update([]rss.Proc{proc(99, c.size)})
		ask, ok := m.b.Due(time.Hour)
		if !ok || ask.ID.PID != 99 || ask.Pieces != c.pieces {
			t.Errorf("%s: %v %+v, want in pieces %v", c.what, ok, ask, c.pieces)
		}
		if c.rate == 0 && proctree.Lengthy(c.size) != c.pieces {
			t.Errorf("%s: one reading alone would not agree", c.what)
		}
	}
}

// A process is judged by what it cost itself, and by the node for what it has
// mapped since.
func TestBudgetOwnRate(t *testing.T) {
	m := machine{procs: []rss.Proc{proc(1, 6*rss.GiB)}, rate: 100 * time.Microsecond}
	first := m.until(0, time.Second)
	if len(first) != 1 || !first[0].Pieces {
		t.Fatalf("first %+v, want one, in pieces", first)
	}
	m.procs[0].RSS += 400 * rss.MiB
	if next := m.until(2*time.Second, 5*time.Second); len(next) == 0 || next[0].Pieces {
		t.Errorf("huge pages: %+v, want smaps_rollup at once", next)
	}
	m.procs[0].RSS += 6 * rss.GiB
	m.b.Update(m.procs)
	if ask, ok := m.b.Due(3 * time.Minute); !ok || !ask.Pieces {
		t.Errorf("6 GiB more, of which nothing is known: %v %+v, want in pieces", ok, ask)
	}
}

// What reading many small mappings in pieces costs is not what their walk does.
func TestBudgetManyMappings(t *testing.T) {
	var b proctree.PSSBudget
	many, other := proc(1, 2500*rss.MiB), proc(2, rss.GiB)
	b.Update([]rss.Proc{many})
	ask, ok := b.Due(0)
	if !ok || !ask.Pieces {
		t.Fatalf("due: %v %+v", ok, ask)
	}
	b.Done(ask, rss.PSS{RSS: many.RSS, Cost: time.Second, Held: time.Millisecond}, nil, 0)
	b.Update([]rss.Proc{other})
	if ask, ok := b.Due(time.Hour); !ok || ask.Pieces {
		t.Errorf("another: %v %+v, want smaps_rollup: 21 ms and half as much at most", ok, ask)
	}
}

// What would hold mmap_lock for long is read in pieces, and no more than its
// share pays for, also in a hurry.
func TestBudgetLengthyInPieces(t *testing.T) {
	for _, share := range []float64{0, 0.05} {
		m := machine{procs: []rss.Proc{proc(1, 10*rss.GiB), proc(2, rss.GiB)}, rate: 7 * time.Millisecond, one: 0.1}
		m.b.Share = share
		const span = 10 * time.Minute
		var cost time.Duration
		read := map[int]int{}
		for _, r := range m.restless(span) {
			cost += r.cost
			read[r.ID.PID]++
			if r.Pieces != (r.ID.PID == 1) {
				t.Errorf("%+v", r)
			}
		}
		if most := max(share, 0.01)*span.Seconds() + 0.1; cost.Seconds() > most {
			t.Errorf("share %v: %v in %v", share, cost, span)
		}
		if read[1] < 50 || read[2] < 5 {
			t.Errorf("share %v: read %v times", share, read)
		}
		if told := m.b.Told(); told != nil {
			t.Errorf("told %v", told)
		}
	}
}

// Above 50 GiB in all, everything is read once a minute, one after the other.
func TestBudgetCrowd(t *testing.T) {
	for _, c := range []struct {
		n     int
		share float64
		crowd bool
	}{{100, 0, true}, {100, 0.05, true}, {10, 0.05, false}} {
		m := machine{rate: 7 * time.Millisecond}
		m.b.Share = c.share
		for i := range c.n {
			m.procs = append(m.procs, proc(i+1, rss.GiB))
		}
		all := m.restless(10 * time.Minute)
		if gap := gaps(all); (gap < time.Minute) == c.crowd {
			t.Errorf("%d GiB, share %v: the least gap is %v", c.n, c.share, gap)
		}
		share := max(c.share, 0.01)
		for i := 1; i < len(all); i++ {
			pause := all[i].at - all[i-1].at
			if pause < time.Duration(float64(all[i-1].cost)/share) {
				t.Fatalf("share %v: %v after a reading of %v", share, pause, all[i-1].cost)
			}
		}
		seen := map[int]bool{}
		for _, r := range all {
			seen[r.ID.PID] = true
		}
		if len(seen) != c.n {
			t.Errorf("%d of %d were read", len(seen), c.n)
		}
	}
}

// A mapping that takes more than 50 ms is walked twice, once a minute: the first
// may have been the node's doing. Then size tells.
func TestBudgetForbids(t *testing.T) {
	m := machine{procs: []rss.Proc{proc(1, 10*rss.GiB)}, rate: 10 * time.Millisecond, one: 0.8}
	if all := m.until(0, 10*time.Minute); len(all) != 2 || !all[0].Pieces || all[1].at < time.Minute {
		t.Fatalf("readings %+v, want two: 80 ms of 100", all)
	}
	told := m.b.Told()
	if len(told) != 1 || !strings.Contains(told[0].Error(), "process 1 ") ||
		!strings.Contains(told[0].Error(), "80ms") || !strings.Contains(told[0].Error(), "below 6.25 GiB") {
		t.Errorf("told %v", told)
	}
	m.procs[0].RSS = 6500 * rss.MiB
	m.b.Attach(m.procs)
	if p := m.procs[0].PSS; p == nil || p.At != time.Minute || p.RSS != 10*rss.GiB {
		t.Errorf("its last reading is gone: %+v", p)
	}
	if all := m.until(11*time.Minute, 15*time.Minute); len(all) != 0 {
		t.Errorf("6500 MiB: %+v", all)
	}
	m.procs[0].RSS = 6300 * rss.MiB // of which the mapping has 49 ms
	if all := m.until(20*time.Minute, 20*time.Minute+time.Second); len(all) != 1 || !all[0].Pieces {
		t.Errorf("6300 MiB: %+v, want a reading in pieces", all)
	}
	m.procs[0].RSS = 7 * rss.GiB
	if all := m.until(30*time.Minute, 35*time.Minute); len(all) != 0 {
		t.Errorf("it has grown again: %+v", all)
	}
	if told := m.b.Told(); told != nil {
		t.Errorf("told again: %v", told)
	}
	m.procs[0].RSS = rss.GiB
	if all := m.until(40*time.Minute, 40*time.Minute+time.Second); len(all) != 1 || all[0].Pieces {
		t.Errorf("1 GiB: %+v, want smaps_rollup", all)
	}
}

func TestBudgetLargest(t *testing.T) {
	m := machine{procs: []rss.Proc{proc(1, 65*rss.GiB)}, rate: 7 * time.Millisecond, one: 0.01}
	if all := m.until(0, time.Minute); len(all) != 0 {
		t.Errorf("nobody knows its mappings: %+v", all)
	}
	if told := m.b.Told(); len(told) != 1 {
		t.Errorf("told %v", told)
	}
	m.procs = []rss.Proc{proc(2, 60*rss.GiB)}
	if all := m.until(time.Hour, time.Hour+time.Second); len(all) != 1 {
		t.Errorf("60 GiB: %+v", all)
	}
	m.procs[0].RSS = 80 * rss.GiB
	if all := m.until(2*time.Hour, 2*time.Hour+time.Second); len(all) != 1 || !all[0].Pieces {
		t.Errorf("its mappings are known to be small: %+v", all)
	}
}
