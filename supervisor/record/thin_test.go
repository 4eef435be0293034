package record

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fill writes samples straight into a store of that size, as the recorder does,
// and returns the largest its file was.
func fill(t testing.TB, dir string, size int64, samples, procs int, each func(n int, s *Sample)) int64 {
	s, err := openStore(dirAt(t, dir), size)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	tab := newTables(1)
	var enc encoder
	var into Sample
	blockAt, largest := time.Duration(0), int64(0)
	meta := []byte(`{"v":1,"id":"x","start":"2026-11-22T00:00:00Z"}`)
	items := []item{{keyMeta, 0, meta}}
	for n := range samples {
		l := look(time.Duration(n)*time.Second, n%1000, procs)
		tab.sample(l, &into)
		if each != nil {
			each(n, &into)
		}
		items = append(items, tab.take()...)
		if enc.full() {
			items = append(items, item{keyBlock, uint64(blockAt / time.Millisecond), enc.block(0)})
		}
		if enc.empty() {
			blockAt = into.At
		}
		enc.add(&into)
		if n%10 != 9 && n != samples-1 {
			continue
		}
		items = append(items, item{keyBlock, uint64(blockAt / time.Millisecond), enc.snapshot(0)})
		if err := s.commit(items); err != nil {
			t.Fatalf("sample %d: %v", n, err)
		}
		items = nil
		if info, err := os.Stat(filepath.Join(dir, dataFile)); err == nil {
			largest = max(largest, info.Size())
		}
	}
	return largest
}

func TestThinningKeepsPeaksAndDecisions(t *testing.T) {
	const size, samples, procs = 2 << 20, 120_000, 16
	dir := t.TempDir()
	spike := map[int]bool{700: true, 40_003: true, 99_999: true}
	largest := fill(t, dir, size, samples, procs, func(n int, s *Sample) {
		if spike[n] {
			s.Limits[0].Used = 60 * rss.GiB
			s.Limits[0].UsedMax = 60 * rss.GiB
		}
		s.AtDecision = n == 5000
	})
	if largest > size {
		t.Errorf("the file grew to %d of %d bytes", largest, size)
	}
	run, err := Read(context.Background(), dir, child)
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Damage) > 0 || !run.Thinned {
		t.Errorf("damage %v, thinned %v", run.Damage, run.Thinned)
	}
	kept, decisions, last := 0, 0, time.Duration(-1)
	recent := 0
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
	if len(spike) > 0 {
		t.Errorf("peaks at %v are gone", spike)
	}
	if decisions != 1 {
		t.Errorf("%d samples at decisions, want 1", decisions)
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
	s, err := openStore(dirAt(t, dir), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	meta := []byte(`{"v":1,"id":"x","start":"2026-11-22T00:00:00Z"}`)
	if err := s.commit([]item{{keyMeta, 0, meta}}); err != nil {
		t.Fatal(err)
	}
	for n := range 20_000 {
		kind, text := byte(keyRoutine), `{"v":1,"time":"2026-11-22T00:00:01Z","event":"loader","what":"trimmed","pid":1}`
		if n%1000 == 0 {
			kind, text = keyEvent, `{"v":1,"time":"2026-11-22T00:00:01Z","event":"decision","id":1,"rule":"80%:warn"}`
		}
		if err := s.commit([]item{{kind, uint64(1<<40 + n + 1), []byte(text)}}); err != nil {
			t.Fatalf("event %d: %v", n, err)
		}
	}
	s.close()
	run, err := Read(context.Background(), dir, child)
	if err != nil {
		t.Fatal(err)
	}
	rare := 0
	for _, e := range run.Events {
		if e.Name == event.NameDecision {
			rare++
		}
	}
	if rare != 20 || run.Dropped+len(run.Events) < 19_990 || run.Dropped == 0 {
		t.Errorf("%d rare events of 20, %d events, %d dropped", rare, len(run.Events), run.Dropped)
	}
}
