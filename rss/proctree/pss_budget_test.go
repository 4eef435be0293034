package proctree

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func proc(pid int, size rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, RSS: size}
}

// The readings of 64 processes of 1 GiB, 20 ms each, take a hundredth of the
// time that passes.
func TestBudgetShare(t *testing.T) {
	var b PSSBudget
	var procs []rss.Proc
	for i := range 64 {
		procs = append(procs, proc(i+1, rss.GiB))
	}
	const cost = 20 * time.Millisecond
	var spent time.Duration
	end := 10 * time.Minute
	for now := time.Duration(0); now < end; now += 100 * time.Millisecond {
		b.Update(procs)
		for ask, ok := b.Due(now); ok; ask, ok = b.Due(now) {
			spent += cost
			b.Done(ask, rss.PSS{PSS: rss.GiB / 2, RSS: rss.GiB, Cost: cost}, nil, now)
		}
	}
	if share := float64(spent) / float64(end); share > 0.0105 || share < 0.008 {
		t.Errorf("took %.4f of the time", share)
	}
	b.Attach(procs)
	for _, p := range procs {
		if p.PSS == nil || end-p.PSS.At > 5*time.Minute {
			t.Errorf("%d was not read, or not for long: %+v", p.ID.PID, p.PSS)
		}
	}
}

func TestBudgetSmallOnesAtOnce(t *testing.T) {
	var b PSSBudget
	var procs []rss.Proc
	for i := range 64 {
		procs = append(procs, proc(i+1, rss.MiB))
	}
	b.Update(procs)
	n, now := 0, time.Hour
	for ask, ok := b.Due(now); ok; ask, ok = b.Due(now) {
		b.Done(ask, rss.PSS{PSS: rss.MiB, RSS: rss.MiB, Cost: 10 * time.Microsecond}, nil, now)
		n++
	}
	if n != 64 {
		t.Errorf("%d of 64 read", n)
	}
}

func TestBudgetOrder(t *testing.T) {
	var b PSSBudget
	procs := []rss.Proc{proc(1, rss.MiB), proc(2, rss.GiB), proc(3, 65*rss.GiB), proc(4, 0)}
	b.Update(procs)
	done := func(want int, now time.Duration, err error) {
		t.Helper()
		ask, ok := b.Due(now)
		if !ok || ask.ID.PID != want {
			t.Fatalf("due: %v, %v; want %d", ask, ok, want)
		}
		b.Done(ask, rss.PSS{PSS: 1, RSS: find(procs, want).RSS, Cost: time.Nanosecond}, err, now)
	}
	done(2, 0, nil)
	done(1, 0, nil)
	if id, ok := b.Due(0); ok {
		t.Fatalf("due: %v: too large, empty, or just read", id)
	}
	procs = []rss.Proc{proc(1, 600*rss.MiB), proc(2, rss.GiB+rss.MiB)}
	b.Update(procs)
	done(1, time.Second, errors.New("denied"))
	done(2, time.Second, nil)
	if id, ok := b.Due(time.Second); ok {
		t.Fatalf("due: %v: failed or just read", id)
	}
	done(1, 62*time.Second, nil)

	t.Run("never two at once", func(t *testing.T) {
		b.Update([]rss.Proc{proc(9, rss.GiB)})
		if ask, ok := b.Due(time.Hour); !ok || ask.ID.PID != 9 {
			t.Fatal(ask, ok)
		}
		if id, ok := b.Due(time.Hour); ok {
			t.Fatal(id)
		}
	})
}

// TestBudgetOthersMove: mappings of other processes change the PSS of an idle one, so its
// PSS is read again.
func TestBudgetOthersMove(t *testing.T) {
	var b PSSBudget
	still, other := proc(1, rss.GiB), proc(2, rss.GiB)
	third := proc(3, 100*rss.MiB)
	third.File = third.RSS
	read := func(now time.Duration) (pids []int) {
		for ask, ok := b.Due(now); ok && len(pids) < 10; ask, ok = b.Due(now) {
			p := find([]rss.Proc{still, other, third}, ask.ID.PID)
			b.Done(ask, rss.PSS{PSS: p.RSS / 2, RSS: p.RSS, Cost: time.Nanosecond}, nil, now)
			pids = append(pids, ask.ID.PID)
		}
		return pids
	}
	b.Update([]rss.Proc{still, other})
	if got := read(0); len(got) != 2 {
		t.Fatalf("read %v", got)
	}
	b.Update([]rss.Proc{still, other, third})
	procs := []rss.Proc{still}
	b.Attach(procs)
	if p := procs[0].PSS; p.Born != 100*rss.MiB || p.Joined != 0 || p.Loose != 0 {
		t.Errorf("a third has come with 100 MiB: %+v", p)
	}
	mapped := third
	mapped.File, mapped.RSS = third.File+10*rss.MiB, third.RSS+10*rss.MiB
	b.Update([]rss.Proc{still, other, mapped})
	b.Attach(procs)
	if p := procs[0].PSS; p.Born != 100*rss.MiB || p.Joined != 10*rss.MiB || p.Loose != 0 {
		t.Errorf("it has mapped 10 MiB more: %+v", p)
	}
	b.Update([]rss.Proc{still, other, third})
	if got := read(time.Millisecond); len(got) != 3 {
		t.Errorf("read %v, want all three", got)
	}
	b.Update([]rss.Proc{still})
	b.Attach(procs)
	if p := procs[0].PSS; p.Loose != rss.GiB+100*rss.MiB || p.Joined+p.Born != 0 {
		t.Errorf("two have ended: %+v", p)
	}
	if got := read(2 * time.Millisecond); len(got) != 1 {
		t.Errorf("read %v, want the one that is left", got)
	}
	b.Update(procs)
	b.Attach(procs)
	if p := procs[0].PSS; p.Loose != 0 || p.Joined+p.Born != 0 {
		t.Errorf("just read: %+v", p)
	}
	if got := read(3 * time.Millisecond); len(got) != 0 {
		t.Errorf("read %v, and nothing has moved", got)
	}
}

// TestNextReading: Next says when a reading is due without taking it.
func TestNextReading(t *testing.T) {
	var b PSSBudget
	if _, ok := b.Next(0); ok {
		t.Error("a reading is due although there are no processes")
	}
	p := rss.Proc{ID: rss.ProcID{PID: 11, Start: 1}, RSS: rss.GiB, Anon: rss.GiB}
	b.Update([]rss.Proc{p})
	if pause, ok := b.Next(time.Second); !ok || pause != 0 {
		t.Errorf("the first in %v, %v", pause, ok)
	}
	ask, _ := b.Due(time.Second)
	if _, ok := b.Next(time.Second); ok {
		t.Error("it is being read")
	}
	b.Share = 0.05
	b.Done(ask, rss.PSS{PSS: rss.GiB, RSS: rss.GiB, Cost: 20 * time.Millisecond}, nil, time.Second)
	if _, ok := b.Next(time.Second); ok {
		t.Error("it has not moved")
	}
	p.RSS += rss.MiB
	b.Update([]rss.Proc{p})
	if pause, ok := b.Next(time.Second); !ok || pause != 400*time.Millisecond {
		t.Errorf("the next in %v, %v, want 0.4 s", pause, ok)
	}
}

// reading is one that a simulated budget asked for.
type reading struct {
	PSSAsk
	at   time.Duration
	cost time.Duration
}

// machine answers what a budget asks for: a walk of 1 GiB takes rate, and one
// mapping has this share of it.
type machine struct {
	b     PSSBudget
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
		if c.rate == 0 && Lengthy(c.size) != c.pieces {
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
	var b PSSBudget
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
		t.Errorf("read although its mappings are unknown: %+v", all)
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
