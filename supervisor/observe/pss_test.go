package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
)

func TestReadWithin(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "slurm.conf"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, []byte("A=b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := readWithin(file); err != nil || string(b) != "A=b\n" {
		t.Errorf("read %q, %v", b, err)
	}
	if b, err := readWithin(fifo); err == nil { // nobody writes: an open would hang
		t.Errorf("read %q from a FIFO", b)
	}
	if _, err := readWithin(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("error %v, want that it does not exist", err)
	}
}

func putPSS(fs rsstest.Tree, pid int, size, pss rss.Bytes) {
	fs.Put(rsstest.Process{PID: pid, Parent: theCommand, Comm: "python", Anon: size})
	fs.Write(fmt.Sprintf("proc/%d/smaps_rollup", pid), fmt.Sprintf(
		"5555e4cc7000-7ffdd6211000 ---p 00000000 00:00 0                          [rollup]\nRss: %15d kB\nPss: %15d kB\n", size/rss.KiB, pss/rss.KiB))
}

// TestPSSReaderReadsOneAfterTheOther without a look in full between them.
func TestPSSReaderReadsOneAfterTheOther(t *testing.T) {
	fs := rsstest.Empty(t)
	r := newPSSReader(new(probe.Set), fs.Proc)
	var procs []rss.Proc
	const n = 5
	for i := range n {
		pid := worker1 + i
		putPSS(fs, pid, 100*rss.MiB, 40*rss.MiB)
		procs = append(procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1000 + uint64(pid)}, RSS: 100 * rss.MiB, Anon: 100 * rss.MiB})
	}
	r.update(0, procs, nil)
	for i := 1; r.Busy(); i++ {
		if !r.Wait(10*time.Second) || !r.taken(time.Duration(i)*time.Second) {
			t.Fatal("no reading came")
		}
		if i > n {
			t.Fatal("something is read twice")
		}
	}
	r.update(n*time.Second, procs, nil)
	for _, p := range procs {
		if p.PSS == nil || p.PSS.PSS != 40*rss.MiB {
			t.Errorf("process %d has PSS %+v", p.ID.PID, p.PSS)
		}
	}
}

// TestPSSReaderReadsLargeOnesInPieces, and tells of those that it leaves alone.
func TestPSSReaderReadsLargeOnesInPieces(t *testing.T) {
	fs := rsstest.Empty(t)
	putPSS(fs, worker1, rss.GiB, rss.GiB) // which would be wrong
	fs.Write(fmt.Sprintf("proc/%d/smaps", worker1), "1000-2000 r--s 0 00:00 0\nRss: 4194304 kB\nPss: 2097152 kB\n")
	procs := []rss.Proc{
		{ID: rss.ProcID{PID: worker1, Start: 1000 + worker1}, RSS: 4 * rss.GiB},
		{ID: rss.ProcID{PID: worker1 + 1, Start: 1}, RSS: 100 * rss.GiB},
	}
	r := newPSSReader(new(probe.Set), fs.Proc)
	r.update(0, procs, nil)
	if !r.Wait(10*time.Second) || !r.taken(time.Second) {
		t.Fatal("no reading came")
	}
	r.update(time.Second, procs, nil)
	if p := procs[0].PSS; p == nil || p.PSS != 2*rss.GiB || p.RSS != 4*rss.GiB {
		t.Errorf("PSS %+v, want what smaps says", p)
	}
	if procs[1].PSS != nil || r.Busy() {
		t.Errorf("100 GiB are read, which may be one mapping: %+v", procs[1].PSS)
	}
	if told := r.told(); len(told) != 1 || !strings.Contains(told[0].Error(), fmt.Sprint("process ", worker1+1)) {
		t.Errorf("told %v", told)
	}
	r.update(2*time.Second, procs, nil)
	if told := r.told(); told != nil {
		t.Errorf("told again: %v", told)
	}
	var none *pssReader
	if none.told() != nil {
		t.Error("without a reader there is something to tell")
	}
}

// TestPSSReaderNeverBlocksTheLoop: the answer may wait, and the process be gone.
func TestPSSReaderNeverBlocksTheLoop(t *testing.T) {
	r := newPSSReader(new(probe.Set), t.TempDir())
	p := []rss.Proc{{ID: rss.ProcID{PID: worker1, Start: 1}, RSS: rss.MiB}}
	deadline := time.Now().Add(10 * time.Second)
	r.update(0, p, nil)
	for i := 1; r.Busy(); i++ {
		if time.Now().After(deadline) {
			t.Fatal("no answer about a process that is gone")
		}
		r.update(time.Duration(i)*time.Millisecond, p, nil)
	}
	if p[0].PSS != nil {
		t.Errorf("PSS %+v of a process that is gone", p[0].PSS)
	}
	var none *pssReader
	none.update(0, p, nil)
	if _, due := none.next(0); due {
		t.Error("without a reader a reading is due")
	}
}

// TestPSSSettlesOnWhichSideOfARungUseStands, without waiting an interval.
func TestPSSSettlesOnWhichSideOfARungUseStands(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Settings.Accounting, o.Settings.Interval = event.AccountingPSS, time.Hour
	})
	s.put(theCommand, theHolder, 100*rss.MiB, 0)
	s.fs.Write(fmt.Sprintf("proc/%d/smaps_rollup", theCommand), "0-1 ---p 0 00:00 0 [rollup]\nRss: 102400 kB\nPss: 97280 kB\n")
	s.Settings.Limit = 110 * rss.MiB
	s.open(s.holder.begin)
	for s.straddles() { // the answer may be there already
		if !s.pss.Wait(10*time.Second) || !s.pss.taken(s.now()) {
			t.Fatal("no reading came")
		}
		s.full()
	}
	if s.straddles() || s.user().Used != 95*rss.MiB {
		t.Errorf("reading %+v, want 95 MiB for certain", s.user())
	}
	if d := named(s.events(), event.NameDecision); len(d) != 1 {
		t.Errorf("decisions %v, want the warning and none before it was certain", d)
	}
}

// TestHurriedPSSWakes: where it depends on readings of PSS what is to be done, the loop
// wakes for the next one, or they would take one look each, whatever they may cost.
func TestHurriedPSSWakes(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Accounting = event.AccountingPSS })
	hand := probetest.New[proctree.PSSAsk, pssRead](&s.probes)
	s.pss = &pssReader{Reader: hand.Reader, wakes: pssWakes}
	s.pss.budget.Update([]rss.Proc{{ID: rss.ProcID{PID: theCommand, Start: 1}, State: 'S', RSS: rss.GiB, Anon: rss.GiB}})
	if _, ok := s.pss.next(s.now()); ok {
		t.Error("in no hurry the next look will do")
	}
	s.pss.hurry(true)
	if pause := s.pause(s.now()); pause > cadence.MinPause {
		t.Errorf("it looks in %v, and a reading is due", pause)
	}
	s.tick()
	if ask, ok := hand.Asked(); !ok || ask.ID.PID != theCommand {
		t.Errorf("asked for %+v, %v", ask, ok)
	}
	if _, ok := s.pss.next(s.now()); ok {
		t.Error("another is due while one is under way")
	}
}

// TestPSSWakesInVain: a job may stand for days where only a reading tells on which
// side of a rung it is. The loop wakes for them for half a minute, and then for as many
// as 0.2 % of a core are, until something is done.
func TestPSSWakesInVain(t *testing.T) {
	hand := probetest.New[proctree.PSSAsk, pssRead](new(probe.Set))
	r := &pssReader{Reader: hand.Reader, wakes: pssWakes}
	r.hurry(true)
	const cost = 20 * time.Millisecond
	p := rss.Proc{ID: rss.ProcID{PID: theCommand, Start: 1}, State: 'S', RSS: rss.GiB, Anon: rss.GiB}
	woken := func(from, to time.Duration) (n int) {
		for now := from; now < to; now += 100 * time.Millisecond {
			p.RSS += rss.MiB
			r.budget.Update([]rss.Proc{p})
			r.wake(now)
			if ask, ok := hand.Asked(); ok {
				n++
				hand.Answer(t, pssRead{ask: ask, pss: rss.PSS{PSS: p.RSS, RSS: p.RSS, Cost: cost}})
				r.taken(now)
			}
		}
		return n
	}
	all := func(share float64, d time.Duration) int { return int(share * float64(d) / float64(cost)) }
	first := woken(0, 30*time.Second)
	if want := all(hurriedShare, 30*time.Second); first < want-2 || first > want+2 {
		t.Errorf("%d readings in half a minute, want %d", first, want)
	}
	woken(30*time.Second, 2*time.Minute)
	if n, want := woken(2*time.Minute, 12*time.Minute), all(pssWakes.Share, 10*time.Minute); n < want-2 || n > want+2 {
		t.Errorf("%d readings in ten minutes, want %d", n, want)
	}
	r.acted()
	if n := woken(12*time.Minute, 12*time.Minute+30*time.Second); n < first-2 {
		t.Errorf("%d readings in the half minute after something was done, want %d", n, first)
	}
}

// TestDearLooksAfterReadings: a reading on which much depends brings a full look, no
// oftener than such looks may cost, and never later than they may.
func TestDearLooksAfterReadings(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Settings.Accounting, o.Settings.Interval = event.AccountingPSS, time.Hour
	})
	s.Settings.Limit = 110 * rss.MiB
	s.open(s.holder.begin)
	hand := probetest.New[proctree.PSSAsk, pssRead](&s.probes) // it is answered here
	s.pss = &pssReader{Reader: hand.Reader}
	s.full()
	ask, _ := hand.Asked()
	hand.Answer(t, pssRead{ask: ask, pss: rss.PSS{PSS: 95 * rss.MiB, RSS: 100 * rss.MiB}})
	for range 8 {
		s.fullCost.Add(100 * time.Millisecond)
	}
	s.fullAt = s.now()
	looks := s.seq
	if !s.heardPSS() {
		t.Error("the reading is not taken")
	}
	if s.seq != looks {
		t.Error("a look of 0.1 s upon another")
	}
	if pause := s.fullPause(s.now()); pause != 2*time.Second {
		t.Errorf("the next look within %v, want 2 s: 5 %% of a core", pause)
	}
	s.later(2 * time.Second)
	s.gap = 0
	s.tick()
	if s.seq == looks || s.straddles() {
		t.Errorf("%d looks, and use stands on either side of a rung: %v", s.seq-looks, s.straddles())
	}
	if pause := s.fullPause(s.now()); pause <= 2*time.Second {
		t.Errorf("the next look within %v, and nothing is to be seen", pause)
	}
}
