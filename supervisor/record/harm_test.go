package record

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestDecisionsWithoutEnd: a rule that fires every other second for a day does
// not fill the record up.
func TestDecisionsWithoutEnd(t *testing.T) {
	const samples = 86_400
	dir := t.TempDir()
	fill(t, dir, 1<<20, samples, 16, func(n int, s *Sample) { s.AtDecision = n%2 == 0 })
	run, err := Read(context.Background(), dir, child)
	if err != nil || len(run.Damage) > 0 {
		t.Fatal(err, run)
	}
	n, last := 0, time.Duration(0)
	for s := range run.Samples() {
		n, last = n+1, s.At
	}
	if last != (samples-1)*time.Second {
		t.Errorf("the last of %d samples is of %v", n, last)
	}
}

// TestThinnedInOrder: a sample at a decision has the time it was taken at, when
// the fullest of its stretch came after it.
func TestThinnedInOrder(t *testing.T) {
	var enc encoder
	for n, used := range []rss.Bytes{5, 3, 9, 1} {
		enc.add(&Sample{
			At: time.Duration(n) * time.Second, AtDecision: n == 1,
			Limits: []Reading{{Used: used * rss.GiB, UsedMax: used * rss.GiB, Size: 10 * rss.GiB, ETA: -1}},
		})
	}
	var got []string
	var d decoder
	for _, it := range thinned([][]byte{enc.block(0)}, 1) {
		for s := range d.samples(it.value) {
			got = append(got, fmt.Sprint(s.At, s.AtDecision, s.Limits[0].Used))
		}
	}
	if want := "1s true 3.00 GiB 2s false 9.00 GiB"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}

// TestManyProcesses: of a tree whose first minute finds no room in memory every
// process is known, and what is missing is told.
func TestManyProcesses(t *testing.T) {
	const procs = 16_000
	place := t.TempDir()
	m := testMeta()
	r := New(Options{Meta: m, Places: Places{Records: []string{place}, Journals: []string{t.TempDir()}}})
	for n := range 30 {
		l := look(time.Duration(n)*time.Second, n, procs)
		r.Sample(l)
	}
	r.Sample(look(quiet, 30, procs))
	for end := time.Now().Add(20 * time.Second); !exists(filepath.Join(place, m.ID, dataFile))() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	r.Sample(look(quiet+time.Second, 31, procs))
	r.Close(20 * time.Second)
	run, err := Read(context.Background(), filepath.Join(place, m.ID), child)
	if err != nil || len(run.Damage) > 0 {
		t.Fatal(err, run)
	}
	last := time.Duration(0)
	for s := range run.Samples() {
		last = s.At
		if len(s.Procs) != procs {
			t.Fatalf("%d processes at %v", len(s.Procs), s.At)
		}
	}
	if last != quiet+time.Second {
		t.Errorf("the last sample is of %v", last)
	}
	if len(run.Events) != 1 || !strings.Contains(run.Events[0].Value.(*event.Fault).Error, "missing") {
		t.Errorf("events %+v", run.Events)
	}
}

// TestForkStorm: of a job that starts thousands of processes a second for hours
// the record is bounded, and a look does not cost more for it.
func TestForkStorm(t *testing.T) {
	tab := newTables(1)
	var into Sample
	size, pid := 0, 1000
	for n := range 1000 {
		l := look(time.Duration(n)*time.Second, n, 4)
		for range 200 {
			pid++
			l.Sample.Procs = append(l.Sample.Procs, rss.Proc{ID: rss.ProcID{PID: pid}, Comm: "sh", Role: rss.RoleOther, Anon: rss.MiB, RSS: rss.MiB})
		}
		tab.sample(l, &into)
		for _, it := range tab.take() {
			size += len(it.value)
		}
		sum := rss.Bytes(0)
		for i := range into.Procs {
			sum += into.Procs[i].RSS()
		}
		var want rss.Bytes
		for i := range l.Sample.Procs {
			want += l.Sample.Procs[i].RSS
		}
		if sum != want {
			t.Fatalf("look %d: %v in all, want %v", n, sum, want)
		}
	}
	if size > 16<<20 || len(tab.procs) > 4096 {
		t.Errorf("%d bytes of processes, %d kept in mind", size, len(tab.procs))
	}
	l := look(0, 0, 10_000) // who was there before keeps its name, of 10,000 there are as many
	tab.count = mostProcs - 10_000
	tab.sample(l, &into)
	began := time.Now()
	for range 20 {
		tab.sample(l, &into)
	}
	if d := time.Since(began) / 20; d > 20*time.Millisecond {
		t.Errorf("a look at 10,000 processes takes %v", d)
	}
}

// TestEventsWithoutEnd: what comes each second for days does not end the record.
func TestEventsWithoutEnd(t *testing.T) {
	r := New(Options{Meta: testMeta()})
	bytes := 0
	for n := range 100_000 {
		r.Event(event.NameSignal, event.Signal{Head: event.Head{V: 1, Event: event.NameSignal}, Signal: "SIGUSR1", Sender: n})
		for _, it := range r.waiting.items {
			if it.kind == keyEvent {
				bytes += len(it.value)
			}
		}
		r.take()
	}
	if bytes > mostKept {
		t.Errorf("%d bytes of events stay", bytes)
	}
}

// TestRestartedBeforeItBegan: the second watcher of a run whose first left no
// journal begins it, and one that finds a line cut off goes on behind it.
func TestRestartedBeforeItBegan(t *testing.T) {
	for name, before := range map[string]string{"nothing": "", "cut off": `{"v":1,"time":"2026-`} {
		t.Run(name, func(t *testing.T) {
			places := Places{Records: []string{t.TempDir()}, Journals: []string{t.TempDir()}}
			m := testMeta()
			path := filepath.Join(places.Journals[0], m.ID+journalSuffix)
			if before != "" {
				line, _ := makeRunLine(m)
				if err := os.WriteFile(path, append(append(line, '\n'), before...), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := New(Options{Meta: m, AtOnce: true, Places: places, Attempt: 2})
			r.Event(event.NameStart, event.Start{Head: event.Head{V: 1, Time: m.Start, Event: event.NameStart}})
			r.Sample(look(time.Second, 1, 1))
			r.Close(5 * time.Second)
			run, err := ReadJournal(path)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for range run.Samples() {
				n++
			}
			if n != 1 || len(run.Events) != 1 || (len(run.Damage) > 0) != (before != "") {
				t.Errorf("%d samples, %d events, damage %v", n, len(run.Events), run.Damage)
			}
		})
	}
}

// TestSlowReaderKeepsNobody: who reads a live record and stops reading does not
// put off the end of the run.
func TestSlowReaderKeepsNobody(t *testing.T) {
	place := t.TempDir()
	r, _, m := recorderIn(t, place, t.TempDir())
	dir := filepath.Join(place, m.ID)
	feed(t, r, m.Start, func() bool { return answersAt(dir) })
	n := 0
	feed(t, r, m.Start, func() bool { n++; return n > 1500 }) // more than a socket holds
	c, err := dialLive(dirAt(t, dir))
	if err != nil {
		t.Fatal(err)
	}
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

// TestSlowSync: while the disk takes its time, what is written goes on.
func TestSlowSync(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dirAt(t, dir), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	flush, slow := s.flush, make(chan struct{})
	s.flush = func() error { <-slow; return flush() }
	began := time.Now()
	for n := range 3 {
		if begun, err := s.sync(); begun != (n == 0) || err != nil {
			t.Fatalf("sync %d: begun %v, %v", n, begun, err)
		}
		if err := s.commit([]item{{keyMeta, 0, []byte(`{"v":1,"id":"x"}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("it took %v", d)
	}
	close(slow)
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		if begun, err = s.sync(); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
}
