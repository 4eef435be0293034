package proctree_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

func proc(pid int, size rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, RSS: size}
}

// The readings of 64 processes of 1 GiB, 20 ms each, take a hundredth of the
// time that passes.
func TestBudgetShare(t *testing.T) {
	var b proctree.PSSBudget
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
	var b proctree.PSSBudget
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
	b := proctree.PSSBudget{Largest: 8 * rss.GiB}
	procs := []rss.Proc{proc(1, rss.MiB), proc(2, rss.GiB), proc(3, 9*rss.GiB), proc(4, 0)}
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

// What others map and give up changes the PSS of a process that does nothing,
// so it is read anew.
func TestBudgetOthersMove(t *testing.T) {
	var b proctree.PSSBudget
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

// TestNextReading: when a reading will be due is told without asking for it.
func TestNextReading(t *testing.T) {
	var b proctree.PSSBudget
	if _, ok := b.Next(0); ok {
		t.Error("one is wanted of nobody")
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
