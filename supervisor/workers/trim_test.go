package workers

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestMappers(t *testing.T) {
	f := staffed(11, 12)
	f.trainers[0].Loaders = append(f.trainers[0].Loaders, event.DataLoader{N: 2}) // loads for itself
	withPSS := proc(11, 100, 300)
	withPSS.PSS = &rss.PSS{PSS: 200, RSS: 400}
	f.last = &rss.Sample{Procs: []rss.Proc{proc(1, 50, 70), withPSS}}
	list := f.Mappers(event.AccountingRSS)
	if len(list) != 3 {
		t.Fatalf("%d mappers, want both workers and the trainer", len(list))
	}
	if list[0].Mapped != 300 || list[0].CountedMapped != 300 || list[0].Counted != 400 {
		t.Errorf("worker 11: %+v", list[0])
	}
	if list[1].ID.PID != 12 || list[1].Mapped != 0 {
		t.Errorf("worker 12, not in the sample yet: %+v", list[1])
	}
	if list[2].ID.PID != 1 || list[2].Mapped != 70 {
		t.Errorf("the trainer: %+v", list[2])
	}
	if list := f.Mappers(event.AccountingPSS); list[0].Mapped != 300 || list[0].CountedMapped != 150 {
		t.Errorf("worker 11 by pss: %+v, want half of what is mapped", list[0])
	}
}

// TestTrimmable holds that what a trim could not take is not counted on again:
// libraries, and private mappings where those are to be left alone.
func TestTrimmable(t *testing.T) {
	f := New(Options{Proc: "/proc"})
	m := Usage{ID: rss.ProcID{PID: 11, Start: 1}, Mapped: 900 * rss.MiB, CountedMapped: 900 * rss.MiB}
	half := m
	half.CountedMapped = 450 * rss.MiB // as PSS has it, shared by two
	if got := f.Trimmable(m); got != 900*rss.MiB-TrimFloor {
		t.Errorf("before any trim: %v", got)
	}
	f.Trimmed(11, 800*rss.MiB)
	if got := f.Trimmable(m); got != 100*rss.MiB {
		t.Errorf("after one that left 800 MiB: %v", got)
	}
	if got := f.Trimmable(half); got != 50*rss.MiB {
		t.Errorf("in PSS: %v", got)
	}
	f.Trimmed(11, 2*rss.GiB)
	if got := f.Trimmable(m); got != 0 {
		t.Errorf("nothing can be taken: %v", got)
	}
	f.see()
	if len(f.left) != 0 {
		t.Errorf("kept of processes that ended: %v", f.left)
	}
}

// TestTrimmableByPSS: libraries, which a trainer and all its workers have, count little
// in each, and data that one alone has mapped in full, whatever part PSS is of RSS.
func TestTrimmableByPSS(t *testing.T) {
	f := staffed(11, 12, 13)
	libs := func(pid int) rss.Proc { return proc(pid, 1000*rss.MiB, 20*rss.MiB) }
	f.see(proc(1, 1000*rss.MiB, 100*rss.MiB), libs(11), libs(12), libs(13))
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
			if got := f.Trimmable(mapped(&p, event.AccountingPSS)); (got+rss.MiB/2)/rss.MiB != c.want {
				t.Errorf("%v, want %d MiB", got, c.want)
			}
		})
	}
}

// TestSpread: until PSS is read again, new mappings count as shared as widely as the data
// were at the last reading, or as libraries are.
func TestSpread(t *testing.T) {
	f := staffed(11, 12, 13)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1000*rss.MiB, 100*rss.MiB)}}
	for _, pid := range []int{11, 12, 13} {
		s.Procs = append(s.Procs, proc(pid, 1000*rss.MiB, 20*rss.MiB))
	}
	f.Update(s, nil)
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
		m := f.spread(f.keeps(mapped(p, event.AccountingPSS)), p)
		if got := m.CountedMapped; got != c.want*rss.MiB {
			t.Errorf("%s: %v counts, want %d MiB", c.what, got, c.want)
		}
	}
}
