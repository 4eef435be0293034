package supervisor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
)

// TestFoundIsTold where it is new, more certain, or has cost twice as much, and on
// stderr once, where the limit that binds is half full.
func TestFoundIsTold(t *testing.T) {
	type seen struct {
		confidence event.Confidence
		bytes      rss.Bytes
		used       rss.Bytes // of 1000 MiB
	}
	for _, c := range []struct {
		name    string
		finding event.Finding
		seen    []seen
		events  int
		lines   int
	}{
		{"possible", event.FindingWorkerLeak, []seen{{event.Possible, 10, 900}, {event.Possible, 900, 900}}, 0, 0},
		{"once", event.FindingWorkerLeak, []seen{{event.Likely, 10, 900}, {event.Likely, 10, 900}, {event.Likely, 19, 900}}, 1, 1},
		{"twice as much", event.FindingWorkerLeak, []seen{{event.Likely, 10, 900}, {event.Likely, 20, 900}, {event.Likely, 39, 900}, {event.Likely, 40, 900}}, 3, 1},
		{"less and again", event.FindingMapped, []seen{{event.Likely, 100, 900}, {event.Likely, 10, 900}, {event.Likely, 100, 900}}, 1, 1},
		{"more certain", event.FindingWorkerLeak, []seen{{event.Likely, 10, 900}, {event.Certain, 10, 900}, {event.Certain, 10, 900}}, 2, 1},
		{"less certain", event.FindingWorkerLeak, []seen{{event.Certain, 10, 900}, {event.Likely, 10, 900}, {event.Certain, 10, 900}, {event.Likely, 10, 900}}, 1, 1},
		{"of no known cost", event.FindingPinned, []seen{{event.Likely, 0, 900}, {event.Likely, 0, 900}, {event.Likely, 0, 900}}, 1, 1},
		{"much is left", event.FindingWorkerLeak, []seen{{event.Certain, 10, 499}, {event.Certain, 10, 499}}, 1, 0},
		{"much was left", event.FindingWorkerLeak, []seen{{event.Certain, 10, 100}, {event.Certain, 10, 499}, {event.Certain, 10, 500}, {event.Certain, 10, 900}}, 1, 1},
		{"mappings tell of themselves", event.FindingSpawn, []seen{{event.Certain, 10, 900}}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := opened(t, nil)
			for _, f := range c.seen {
				s.readings = []event.Limit{{Name: event.LimitUser, Used: f.used * rss.MiB, Limit: 1000 * rss.MiB, Binding: true}}
				d := event.Diagnosis{
					Finding: c.finding, Role: rss.RoleWorker, Confidence: f.confidence, Bytes: f.bytes * rss.MiB,
					Evidence: []string{"a number", "another", "one too many"}, Advice: []string{"this", "that", "one too many"},
				}
				s.tell.Finding(s.now(), d, presses(&d, bindingOf(s.readings)))
				s.later(time.Second)
			}
			told := named(s.events(), event.NameDiagnosis)
			if len(told) != c.events {
				t.Errorf("%d events, want %d: %v", len(told), c.events, told)
			}
			if n := strings.Count(s.stderr(), string(c.finding)); n != c.lines {
				t.Errorf("%d lines, want %d\n%s", n, c.lines, s.stderr())
			}
			if c.lines > 0 && !strings.Contains(s.stderr(), ": a number; another; do: this; or: that\n") {
				t.Errorf("said\n%s", s.stderr())
			}
			if c.events > 0 && len(told[0]["evidence"].([]any)) != 3 {
				t.Errorf("the event has not all: %v", told[0])
			}
		})
	}
}

// TestFindingsByRole are told each for itself.
func TestFindingsByRole(t *testing.T) {
	s := opened(t, nil)
	for range 3 {
		for _, role := range []rss.Role{rss.RoleWorker, rss.RoleTrainer} {
			s.tell.Finding(s.now(), event.Diagnosis{Finding: event.FindingMapped, Role: role, Confidence: event.Likely, Bytes: rss.GiB}, false)
		}
	}
	if told := named(s.events(), event.NameDiagnosis); len(told) != 2 {
		t.Errorf("events %v", told)
	}
}

// TestFindingSurvives: a worker leaks and ends; the summary and the last event have
// it all the same, and the warning on the way says why.
func TestFindingSurvives(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.open(s.holder.begin)
	grown := 20 * rss.MiB
	for range 150 {
		grown += 5 * rss.MiB
		s.put(worker1, id.PID, grown, 0)
		s.later(time.Second)
		s.full()
	}
	if !strings.Contains(s.stderr(), "memory 8") || !strings.Contains(s.stderr(), "; why: "+string(event.FindingWorkerLeak)) {
		t.Errorf("the warning does not say why\n%s", s.stderr())
	}
	s.fs.End(worker1)
	s.log(id, `"what":"ended","n":1`)
	for range 90 {
		s.later(time.Second)
		s.full()
	}
	s.end(&hold.Exit{})
	if !strings.Contains(s.stderr(), "\nwhy: "+string(event.FindingWorkerLeak)) {
		t.Errorf("the summary does not tell\n%s", s.stderr())
	}
	told := named(s.events(), event.NameDiagnosis)
	if len(told) == 0 || len(told) > 6 || told[0]["finding"] != string(event.FindingWorkerLeak) || told[0]["role"] != "worker" {
		t.Errorf("%d events %v", len(told), told)
	}
}

// closeStand is a reader whose answers the test gives, if any, and a sample.
func closeStand() (*closeReader, *probetest.ByHand[closeAsk, closeRead], *rss.Sample) {
	small, other := process(worker1, rss.RoleWorker, rss.MiB, 100*rss.MiB), process(worker2, rss.RoleWorker, rss.MiB, 100*rss.MiB)
	trainer := process(theCommand, rss.RoleTrainer, rss.MiB, 100*rss.MiB)
	h := probetest.New[closeAsk, closeRead](nil)
	return &closeReader{Reader: h.Reader, costs: probe.Bucket{Share: closeShare}, failed: map[diagnosis.Want]time.Duration{}}, h,
		&rss.Sample{Procs: []rss.Proc{trainer, small, other}}
}

func TestCloseReadings(t *testing.T) {
	r, hand, s := closeStand()
	// answered has the answer taken, whatever it is.
	answered := func() {
		t.Helper()
		hand.Answer(t, closeRead{})
		r.Take()
	}
	want := func(reading diagnosis.Reading, i int) diagnosis.Want {
		return diagnosis.Want{Reading: reading, ID: s.Procs[i].ID}
	}
	asked := func(what string, now time.Duration, exp *diagnosis.Want, wants ...diagnosis.Want) closeAsk {
		t.Helper()
		if ask, ok := hand.Asked(); ok {
			t.Fatalf("%s: %+v was asked before", what, ask.want)
		}
		r.ask(now, wants, s)
		ask, ok := hand.Asked()
		if ok != (exp != nil) || ok && ask.want != *exp {
			t.Fatalf("%s: %+v", what, ask)
		}
		return ask
	}
	first, second := want(diagnosis.WantParts, 1), want(diagnosis.WantParts, 2)

	asked("nothing wanted", 0, nil)
	gone := first
	gone.ID.PID += 100
	asked("one that is gone", 0, nil, gone)
	again := first
	again.ID.Start++
	asked("one that has the PID of another", 0, nil, again)
	for _, state := range []byte{'D', 'Z'} {
		s.Procs[1].State = state
		asked("state "+string(state), 0, nil, first)
	}
	s.Procs[1].State = 'S'
	s.Procs[1].RSS = 64 * rss.GiB
	if !proctree.Lengthy(s.Procs[1].RSS) {
		t.Fatal("64 GiB are not too much for smaps_rollup")
	}
	asked("smaps_rollup of a large one", 0, &second, first, second)
	answered()
	files := want(diagnosis.WantFiles, 1)
	asked("smaps of a large one", 0, &files, first, files)
	answered()
	s.Procs[1].RSS = 100 * rss.MiB

	// One at a time, whatever becomes of it.
	asked("the first", 0, &first, first, second)
	asked("… that hangs", time.Hour, nil, first, second)

	// What a reading costs is paid by the time that passes.
	var l diagnosis.Look
	hand.Answer(t, closeRead{want: first, parts: &diagnosis.Parts{ID: first.ID}, cost: 20 * time.Millisecond})
	now := time.Hour
	r.taken(now, &l)
	if len(l.Parts) != 1 || l.Parts[0].ID != first.ID {
		t.Errorf("taken %+v", l)
	}
	asked("9.9 s after 20 ms", now+9900*time.Millisecond, nil, second)
	now += 10 * time.Second
	asked("10 s after 20 ms", now, &second, second)

	// What cannot be read stands in nobody's way, and is tried again.
	hand.Answer(t, closeRead{want: second})
	r.taken(now, &diagnosis.Look{})
	asked("after a failure", now, &first, second, first)
	answered()
	asked("the failed one alone", now+30*time.Second, nil, second)
	asked("a minute later", now+closeRetry, &second, second)

	shm := want(diagnosis.WantShm, 0)
	answered()
	ask := asked("segments", now+2*time.Minute, &shm, shm)
	if len(ask.all) != 3 || len(ask.trainers) != 1 || ask.trainers[0] != theCommand {
		t.Errorf("asked of %v, trainers %v", ask.all, ask.trainers)
	}
	hand.Answer(t, closeRead{want: shm, shm: &diagnosis.Shm{ID: shm.ID, Used: 5, Size: 10}})
	l = diagnosis.Look{}
	r.taken(now+2*time.Minute, &l)
	if len(l.Shm) != 1 || l.Shm[0].Used != 5 {
		t.Errorf("how full it is is lost: %+v", l)
	}
	asked("segments that could not be read", now+2*time.Minute+time.Second, nil, shm)
}

// TestCloseReadingHangs: a process that lets nobody read holds no look up.
func TestCloseReadingHangs(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 100*rss.MiB, 0)
	fifo := fmt.Sprintf("%s/%d/smaps_rollup", s.fs.Proc, worker1)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open(s.holder.begin)
	for range 60 {
		s.later(2 * time.Second)
		s.full()
	}
	if !s.diagnosis.reader.Busy() {
		t.Errorf("a pipe that nobody writes was read; wanted %+v", s.diagnosis.state.Wants())
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		f.Close() // the reader goes on
	}
}

// TestCloseReadOfThisProcess brings what the kernel says of it.
func TestCloseReadOfThisProcess(t *testing.T) {
	tree := proctree.New("/proc")
	defer tree.Close()
	p, err := tree.One(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, reading := range []diagnosis.Reading{diagnosis.WantParts, diagnosis.WantFiles, diagnosis.WantShm} {
		ask := closeAsk{want: diagnosis.Want{Reading: reading, ID: p.ID}, now: time.Second, all: []int{p.ID.PID}, trainers: []int{p.ID.PID}}
		r := ask.read(tree, "/proc")
		if !r.whole() || r.cost <= 0 || r.want != ask.want {
			t.Errorf("%s: %+v", reading, r)
			continue
		}
		switch reading {
		case diagnosis.WantParts:
			if r.parts.RSS < rss.MiB || r.parts.At != time.Second {
				t.Errorf("%+v", r.parts)
			}
		case diagnosis.WantFiles:
			if len(r.files.Files) == 0 || r.files.At != time.Second {
				t.Errorf("%+v", r.files)
			}
		}
	}
	gone := closeAsk{want: diagnosis.Want{Reading: diagnosis.WantParts, ID: rss.ProcID{PID: theCommand, Start: 1}}}
	if r := gone.read(tree, "/proc"); r.whole() {
		t.Errorf("of nobody %+v", r)
	}
}
