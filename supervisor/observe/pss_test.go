package observe

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
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestReadWithin(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "slurm.conf"), filepath.Join(dir, "fifo")
	wardentest.NoError(t, os.WriteFile(file, []byte("A=b\n"), 0o644))
	wardentest.NoError(t, unix.Mkfifo(fifo, 0o600))
	if b, err := ReadWithin(file); err != nil || string(b) != "A=b\n" {
		t.Errorf("read %q, %v", b, err)
	}
	if b, err := ReadWithin(fifo); err == nil { // without a writer open would hang
		t.Errorf("read %q from a FIFO", b)
	}
	if _, err := ReadWithin(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("error %v, want that it does not exist", err)
	}
}

func putPSS(fs rsstest.Tree, pid int, size, pss rss.Bytes) {
	fs.Put(rsstest.Process{PID: pid, Parent: 4200, Comm: "python", Anon: size})
	fs.Write(fmt.Sprintf("proc/%d/smaps_rollup", pid), fmt.Sprintf(
		"5555e4cc7000-7ffdd6211000 ---p 00000000 00:00 0                          [rollup]\nRss: %15d kB\nPss: %15d kB\n", size/rss.KiB, pss/rss.KiB))
}

// TestPSSReaderReadsOneAfterTheOther without a look in full between them.
func TestPSSReaderReadsOneAfterTheOther(t *testing.T) {
	fs := rsstest.Empty(t)
	r := NewPSS(new(probe.Set), fs.Proc)
	var procs []rss.Proc
	const n = 5
	for i := range n {
		pid := 4242 + i
		putPSS(fs, pid, 100*rss.MiB, 40*rss.MiB)
		procs = append(procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1000 + uint64(pid)}, RSS: 100 * rss.MiB, Anon: 100 * rss.MiB})
	}
	r.Update(0, procs, nil)
	for i := 1; r.Busy(); i++ {
		if !r.Wait(10*time.Second) || !r.TakeOne(time.Duration(i)*time.Second) {
			t.Fatal("no reading came")
		}
		if i > n {
			t.Fatal("something is read twice")
		}
	}
	r.Update(n*time.Second, procs, nil)
	for _, p := range procs {
		if p.PSS == nil || p.PSS.PSS != 40*rss.MiB {
			t.Errorf("process %d has PSS %+v", p.ID.PID, p.PSS)
		}
	}
}

// TestPSSReaderReadsLargeOnesInPieces: and it reports those that it leaves alone.
func TestPSSReaderReadsLargeOnesInPieces(t *testing.T) {
	fs := rsstest.Empty(t)
	putPSS(fs, 4242, rss.GiB, rss.GiB) // which would be wrong
	fs.Write(fmt.Sprintf("proc/%d/smaps", 4242), "1000-2000 r--s 0 00:00 0\nRss: 4194304 kB\nPss: 2097152 kB\n")
	procs := []rss.Proc{
		{ID: rss.ProcID{PID: 4242, Start: 1000 + 4242}, RSS: 4 * rss.GiB},
		{ID: rss.ProcID{PID: 4242 + 1, Start: 1}, RSS: 100 * rss.GiB},
	}
	r := NewPSS(new(probe.Set), fs.Proc)
	r.Update(0, procs, nil)
	if !r.Wait(10*time.Second) || !r.TakeOne(time.Second) {
		t.Fatal("no reading came")
	}
	r.Update(time.Second, procs, nil)
	if p := procs[0].PSS; p == nil || p.PSS != 2*rss.GiB || p.RSS != 4*rss.GiB {
		t.Errorf("PSS %+v, want what smaps says", p)
	}
	if procs[1].PSS != nil || r.Busy() {
		t.Errorf("100 GiB are read, which may be one mapping: %+v", procs[1].PSS)
	}
	if told := r.Told(); len(told) != 1 || !strings.Contains(told[0].Error(), fmt.Sprint("process ", 4242+1)) {
		t.Errorf("told %v", told)
	}
	r.Update(2*time.Second, procs, nil)
	if told := r.Told(); told != nil {
		t.Errorf("told again: %v", told)
	}
	var none *PSS
	if none.Told() != nil {
		t.Error("without a reader there is something to tell")
	}
}

// TestPSSReaderNeverBlocksTheLoop: the answer may wait, and the process be gone.
func TestPSSReaderNeverBlocksTheLoop(t *testing.T) {
	r := NewPSS(new(probe.Set), t.TempDir())
	p := []rss.Proc{{ID: rss.ProcID{PID: 4242, Start: 1}, RSS: rss.MiB}}
	deadline := time.Now().Add(10 * time.Second)
	r.Update(0, p, nil)
	for i := 1; r.Busy(); i++ {
		if time.Now().After(deadline) {
			t.Fatal("no answer about a process that is gone")
		}
		r.Update(time.Duration(i)*time.Millisecond, p, nil)
	}
	if p[0].PSS != nil {
		t.Errorf("PSS %+v of a process that is gone", p[0].PSS)
	}
	var none *PSS
	none.Update(0, p, nil)
	if _, due := none.Next(0); due {
		t.Error("without a reader a reading is due")
	}
}

// TestPSSUselessWakes: a job may stand for days where only a reading tells on which
// side of a rung it is. The loop wakes for them for half a minute, and then for as many
// as 0.2 % of a core are, until something is done.
func TestPSSUselessWakes(t *testing.T) {
	hand := probetest.New[proctree.PSSAsk, PSSAnswer](new(probe.Set))
	r := PSSBy(hand.Reader)
	r.Hurry(true)
	const cost = 20 * time.Millisecond
	p := rss.Proc{ID: rss.ProcID{PID: 4200, Start: 1}, State: 'S', RSS: rss.GiB, Anon: rss.GiB}
	woken := func(from, to time.Duration) (n int) {
		for now := from; now < to; now += 100 * time.Millisecond {
			p.RSS += rss.MiB
			r.budget.Update([]rss.Proc{p})
			r.Wake(now)
			if ask, ok := hand.Asked(); ok {
				n++
				hand.Answer(t, PSSAnswer{Ask: ask, PSS: rss.PSS{PSS: p.RSS, RSS: p.RSS, Cost: cost}})
				r.TakeOne(now)
			}
		}
		return n
	}
	all := func(share float64, d time.Duration) int { return int(share * float64(d) / float64(cost)) }
	first := woken(0, 30*time.Second)
	if want := all(cadence.HurriedShare, 30*time.Second); first < want-2 || first > want+2 {
		t.Errorf("%d readings in half a minute, want %d", first, want)
	}
	woken(30*time.Second, 2*time.Minute)
	if n, want := woken(2*time.Minute, 12*time.Minute), all(pssWakes.Share, 10*time.Minute); n < want-2 || n > want+2 {
		t.Errorf("%d readings in ten minutes, want %d", n, want)
	}
	r.Acted()
	if n := woken(12*time.Minute, 12*time.Minute+30*time.Second); n < first-2 {
		t.Errorf("%d readings in the half minute after something was done, want %d", n, first)
	}
}

// TestHurriedPSSWakes: while a decision depends on readings, the loop is to wake for the
// next one; otherwise the next full read is soon enough.
func TestHurriedPSSWakes(t *testing.T) {
	hand := probetest.New[proctree.PSSAsk, PSSAnswer](new(probe.Set))
	r := PSSBy(hand.Reader)
	r.budget.Update([]rss.Proc{{ID: rss.ProcID{PID: 4200, Start: 1}, State: 'S', RSS: rss.GiB, Anon: rss.GiB}})
	if _, ok := r.Next(0); ok {
		t.Error("in no hurry the loop is to wake")
	}
	r.Hurry(true)
	if pause, ok := r.Next(0); !ok || pause > 0 {
		t.Errorf("the next reading is due in %v, %v", pause, ok)
	}
	r.Wake(0)
	if ask, ok := hand.Asked(); !ok || ask.ID.PID != 4200 {
		t.Errorf("asked for %+v, %v", ask, ok)
	}
	if _, ok := r.Next(0); ok {
		t.Error("another is due while one is under way")
	}
	hand.Answer(t, PSSAnswer{})
}
