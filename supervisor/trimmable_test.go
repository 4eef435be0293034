package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// TestTrimmable holds that what a trim could not take is not counted on again:
// libraries, and private mappings where those are to be left alone.
func TestTrimmable(t *testing.T) {
	f := newWorkforce("/proc")
	last := &rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 11, Start: 1}, State: 'S', File: 900 * rss.MiB, Shmem: 50 * rss.MiB}}}
	m := workers.Usage{ID: last.Procs[0].ID, Mapped: 900 * rss.MiB, CountedMapped: 900 * rss.MiB}
	half := m
	half.CountedMapped = 450 * rss.MiB // as PSS has it, shared by two
	if got := f.trimmable(m); got != 900*rss.MiB-trimFloor {
		t.Errorf("before any trim: %v", got)
	}
	s := loader.Said{After: 850 * rss.MiB}
	s.What, s.PID, s.Worker = event.LoaderTrimmed, 11, 11
	f.trimmed(&s, last)
	if got := f.trimmable(m); got != 100*rss.MiB {
		t.Errorf("after one that left 800 MiB: %v", got)
	}
	if got := f.trimmable(half); got != 50*rss.MiB {
		t.Errorf("in PSS: %v", got)
	}
	s.After = 2 * rss.GiB
	f.trimmed(&s, last)
	if got := f.trimmable(m); got != 0 {
		t.Errorf("nothing can be taken: %v", got)
	}
	s.Worker, s.After = 12, rss.MiB
	f.trimmed(&s, last) // not in the sample
	f.mark(&rss.Sample{}, nil, nil)
	if len(f.left) != 0 {
		t.Errorf("kept of processes that ended: %v", f.left)
	}
}

// TestTrimmableByPSS: libraries, which a trainer and all its workers have, count little
// in each, and data that one alone has mapped in full, whatever part PSS is of RSS.
func TestTrimmableByPSS(t *testing.T) {
	f := staffed(11, 12, 13)
	libs := func(pid int) rss.Proc { return proc(pid, 1000*rss.MiB, 20*rss.MiB) }
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1000*rss.MiB, 100*rss.MiB), libs(11), libs(12), libs(13)}}
	f.mark(s, nil, nil)
	for _, c := range []struct {
		what          string
		data, counted rss.Bytes // MiB, of each worker, and of that at the last reading
		since         rss.Bytes // mapped since
		split         bool
		want          rss.Bytes
	}{
		{"nothing but libraries", 0, 0, 0, true, 0},
		{"its own data", 10, 10, 0, true, 10},
		{"data of all three", 30, 10, 0, true, 10},
		{"and some since", 30, 10, 6, true, 16},
		{"an old kernel guesses", 30, 10, 0, false, 8},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := libs(11)
			p.PSS = &rss.PSS{PSS: (250 + 5 + c.counted) * rss.MiB, RSS: (1020 + c.data) * rss.MiB}
			if c.split {
				p.PSS.Split, p.PSS.File, p.PSS.Mapped = true, (5+c.counted)*rss.MiB, (20+c.data)*rss.MiB
			}
			p.File += (c.data + c.since) * rss.MiB
			p.RSS += (c.data + c.since) * rss.MiB
			if got := f.trimmable(mapper(&p, event.AccountingPSS)); (got+rss.MiB/2)/rss.MiB != c.want {
				t.Errorf("%v, want %d MiB", got, c.want)
			}
		})
	}
}

// TestSpread: what was mapped since the last reading of PSS is taken to be as widely shared
// as the data were then, or as libraries are, while nobody knows.
func TestSpread(t *testing.T) {
	f := staffed(11, 12, 13)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1000*rss.MiB, 100*rss.MiB)}}
	for _, pid := range []int{11, 12, 13} {
		s.Procs = append(s.Procs, proc(pid, 1000*rss.MiB, 20*rss.MiB))
	}
	f.mark(s, nil, nil)
	for _, c := range []struct {
		what string
		pss  *rss.PSS
		want rss.Bytes // MiB, of 420
	}{
		{"never read", nil, 105},
		{"read with libraries alone", &rss.PSS{Split: true, Mapped: 20 * rss.MiB, File: 5 * rss.MiB}, 5 + 100},
		{"read with data of its own", &rss.PSS{Split: true, Mapped: 120 * rss.MiB, File: 105 * rss.MiB}, 105 + 300},
		{"read with data that two have", &rss.PSS{Split: true, Mapped: 120 * rss.MiB, File: 55 * rss.MiB}, 55 + 150},
	} {
		p := s.Find(11)
		p.File, p.RSS, p.PSS = 420*rss.MiB, 1420*rss.MiB, c.pss
		m := f.spread(f.keeps(mapper(p, event.AccountingPSS)), p)
		if got := m.CountedMapped; got != c.want*rss.MiB {
			t.Errorf("%s: %v counts, want %d MiB", c.what, got, c.want)
		}
	}
}
