package store

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

func TestThinningKeepsPeaksAndDecisions(t *testing.T) {
	const size, samples, procs = 2 << 20, 120_000, 16
	dir := t.TempDir()
	spike := map[int]bool{700: true, 40_003: true, 99_999: true}
	largest := fill(t, dir, size, samples, procs, func(n int, s *record.Sample) {
		if spike[n] {
			s.Limits[0].Used = 60 * rss.GiB
			s.Limits[0].UsedMax = 60 * rss.GiB
		}
		s.AtDecision = n == 5000
	})
	if largest > size {
		t.Errorf("the file grew to %d of %d bytes", largest, size)
	}
	run := readBack(t, dir)
	kept, decisions, recent, last := 0, 0, 0, time.Duration(-1)
	for s := range run.Samples() {
		kept++
		if s.At <= last {
			t.Fatalf("%v after %v", s.At, last)
		}
		last = s.At
		if s.Limits[0].Used == 60*rss.GiB {
			delete(spike, int(s.At/time.Second))
		}
		if s.AtDecision {
			decisions++
		}
		if s.At >= (samples-300)*time.Second {
			recent++
		}
		if len(s.Procs) != procs {
			t.Fatalf("%d processes at %v", len(s.Procs), s.At)
		}
	}
	if len(spike) > 0 || decisions != 1 || !run.Thinned {
		t.Errorf("peaks at %v are gone; %d samples at decisions, want 1; thinned %v", spike, decisions, run.Thinned)
	}
	if recent != 300 || last != (samples-1)*time.Second {
		t.Errorf("of the last 300 s %d samples are left, the last of %v", recent, last)
	}
	t.Logf("%d of %d samples kept in %d KiB", kept, samples, largest>>10)
}

func TestSizeOfASample(t *testing.T) {
	for _, procs := range []int{4, 16, 64, 1000} {
		dir := t.TempDir()
		samples := 3600
		if procs == 1000 {
			samples = 400
		}
		size := fill(t, dir, fullSize, samples, procs, nil)
		per := float64(size) / float64(samples*procs)
		t.Logf("%d processes: %.1f bytes a process and sample", procs, per)
		if per > 24 {
			t.Errorf("%d processes: %.1f bytes a process and sample, more than 24", procs, per)
		}
	}
}

// TestRoutineEventsAreForgotten: the oldest of what comes by the thousand goes,
// what is rare stays.
func TestRoutineEventsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	s := newTaker(t, dir, 1<<20).s
	commit(t, s, metaItem())
	for n := range 20_000 {
		kind, text := byte(record.KindRoutine), `{"v":1,"time":"2026-11-22T00:00:01Z","event":"loader","what":"trimmed","pid":1}`
		if n%1000 == 0 {
			kind, text = record.KindEvent, `{"v":1,"time":"2026-11-22T00:00:01Z","event":"decision","id":1,"rule":"80%:warn"}`
		}
		commit(t, s, record.Item{Kind: kind, N: uint64(1<<40 + n + 1), Value: []byte(text)})
	}
	s.close()
	run, rare := readBack(t, dir), 0
	for _, e := range run.Events {
		if e.Name == event.NameDecision {
			rare++
		}
	}
	if rare != 20 || run.Dropped+len(run.Events) < 19_990 || run.Dropped == 0 {
		t.Errorf("%d rare events of 20, %d events, %d dropped", rare, len(run.Events), run.Dropped)
	}
}

// TestDecisionsWithoutEnd: a rule that fires every other second for a day does
// not fill the record up.
func TestDecisionsWithoutEnd(t *testing.T) {
	const samples = 86_400
	dir := t.TempDir()
	fill(t, dir, 1<<20, samples, 16, func(n int, s *record.Sample) { s.AtDecision = n%2 == 0 })
	all := samplesOf(readBack(t, dir))
	if last := all[len(all)-1].At; last != (samples-1)*time.Second {
		t.Errorf("the last of %d samples is of %v", len(all), last)
	}
}

// TestSlowSync: while the disk takes its time, what is written goes on.
func TestSlowSync(t *testing.T) {
	s := newTaker(t, t.TempDir(), 1<<20).s
	flush, slow := s.flush, make(chan struct{})
	s.flush = func() error { <-slow; return flush() }
	began := time.Now()
	for n := range 3 {
		if begun, err := s.sync(); begun != (n == 0) || err != nil {
			t.Fatalf("sync %d: begun %v, %v", n, begun, err)
		}
		commit(t, s, metaItem())
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("it took %v", d)
	}
	close(slow)
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		var err error
		if begun, err = s.sync(); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
}

// TestEventsLeaveRoom: events, of which the pages are half empty, do not fill a
// record before its samples are thinned.
func TestEventsLeaveRoom(t *testing.T) {
	k := newTaker(t, t.TempDir(), tmpfsSize)
	t.Cleanup(k.s.close)
	samples := fillUp(t, k)
	if k.s.used > k.s.size*8/10 {
		t.Errorf("%d of %d bytes are in use after %d samples", k.s.used, k.s.size, samples)
	}
}
