package store

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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

// TestPruneLeavesTheLiving: a record that is written is not removed, also where its watcher
// cannot be asked, and one whose watcher accepts no connection delays no other run.
func TestPruneLeavesTheLiving(t *testing.T) {
	dir := t.TempDir()
	place := filepath.Join(dir, "records")
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=write", "RECORD_TEST_PROCS=1")
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var live string
	wardentest.Until(t, "a record", func() bool {
		if found := record.Find(place); len(found) == 1 {
			live = found[0].Record
		}
		return live != "" && answersAt(live)
	})
	must(t, cmd.Process.Signal(unix.SIGSTOP))
	old := filepath.Join(place, "20200101T000000Z-run-node-1")
	must(t, os.Mkdir(old, 0o700))
	must(t, os.WriteFile(filepath.Join(old, record.DataFile), nil, 0o600))
	long := time.Now().Add(-2 * pruneAge)
	for _, d := range []string{old, live} {
		must(t, os.Chtimes(filepath.Join(d, record.DataFile), long, long))
	}
	asked := make(chan bool)
	go func() {
		all := true
		for range 20 {
			all = answersAt(live) && all
		}
		asked <- all
	}()
	select {
	case all := <-asked:
		if !all {
			t.Error("one that is stopped counts as dead")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("one that is stopped keeps others waiting")
	}
	must(t, os.Remove(filepath.Join(live, liveName)))
	prune(place, 0, 0)
	if left := record.Find(place); len(left) != 1 || left[0].Record != live {
		t.Errorf("left %+v", left)
	}
	if run := readBack(t, live); !run.Live {
		t.Error("it counts as ended")
	}
}

// TestStrangersPlaces: what another user has put where all can write is not used.
func TestStrangersPlaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	const stranger = 12345
	dir, mine := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "rsswarden-0")
	must(t, os.Symlink(mine, link))
	must(t, os.Lchown(link, stranger, stranger))
	if _, _, err := makeDirIn(filepath.Join(link, "records"), false, "x", 1); err == nil {
		t.Error("a stranger's link is followed")
	}
	id := testMeta().ID
	theirs := filepath.Join(mine, id)
	must(t, os.Mkdir(theirs, 0o700))
	must(t, os.Chown(theirs, stranger, stranger))
	for attempt := range 3 {
		if _, _, err := makeDirIn(mine, false, id, attempt); err == nil {
			t.Errorf("watcher %d uses a stranger's directory", attempt)
		}
	}
}

// TestChosenPlaceIsKept: of what lies where a user wants it nothing is removed.
func TestChosenPlaceIsKept(t *testing.T) {
	long := time.Now().Add(-2 * pruneAge)
	for _, chosen := range []bool{false, true} {
		place := t.TempDir()
		for n := range keepRecords + 10 {
			dir := filepath.Join(place, record.NewID(time.Unix(int64(n), 0), nil, "node", 1))
			must(t, os.Mkdir(dir, 0o700))
			file := filepath.Join(dir, record.DataFile)
			must(t, os.WriteFile(file, nil, 0o600))
			must(t, os.Chtimes(file, long, long))
		}
		if _, _, err := makeDirIn(place, chosen, testMeta().ID, 1); err != nil {
			t.Fatal(err)
		}
		want := keepRecords - 1
		if chosen {
			want = keepRecords + 10
		}
		if left := record.Find(place); len(left) != want {
			t.Errorf("chosen %v: %d records are left, want %d", chosen, len(left), want)
		}
	}
}

// TestLiveRecord: a run that goes on is read through its watcher, while it writes.
func TestLiveRecord(t *testing.T) {
	place := t.TempDir()
	r, told, m := recorderIn(t, place, t.TempDir())
	dir := filepath.Join(place, m.ID)
	feed(t, r, m.Start, func() bool { return answersAt(dir) })
	for range 20 {
		n := 0
		feed(t, r, m.Start, func() bool { n++; return n > 20 })
		run, err := Read(context.Background(), dir, func() *exec.Cmd {
			t.Fatal("a live record was opened")
			return nil
		})
		if err != nil || !run.Live || len(run.Damage) > 0 {
			t.Fatalf("%v, live %v, damage %v", err, run != nil && run.Live, run)
		}
		if len(samplesOf(run)) == 0 {
			t.Error("no samples")
		}
	}
	r.Event(event.NameExit, event.Exit{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameExit}})
	r.Close(5 * time.Second)
	if run := readBack(t, dir); run.Live || run.Exit() == nil {
		t.Errorf("after its end: live %v, exit %v", run.Live, run.Exit())
	}
	if len(told.all) > 0 {
		t.Error(told.all)
	}
}

// TestSlowReader: a reader of a live record that stops reading does not delay the end of
// the run.
func TestSlowReader(t *testing.T) {
	place := t.TempDir()
	r, _, m := recorderIn(t, place, t.TempDir())
	dir := filepath.Join(place, m.ID)
	feed(t, r, m.Start, func() bool { return answersAt(dir) })
	n := 0
	feed(t, r, m.Start, func() bool { n++; return n > 1500 }) // more than a socket holds
	c, err := dialLive(dirAt(t, dir))
	must(t, err)
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.Close(10 * time.Second)
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("closing took %v", d)
	}
}
