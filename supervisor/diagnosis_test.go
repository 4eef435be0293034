package supervisor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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
			s := opened(t)
			for _, f := range c.seen {
				s.view.Limits = []event.Limit{{Name: event.LimitUser, Used: f.used * rss.MiB, Limit: 1000 * rss.MiB, Binding: true}}
				d := event.Diagnosis{
					Finding: c.finding, Role: rss.RoleWorker, Confidence: f.confidence, Bytes: f.bytes * rss.MiB,
					Evidence: []string{"a number", "another", "one too many"}, Advice: []string{"this", "that", "one too many"},
				}
				s.tell.Findings.Tell(s.now(), []event.Diagnosis{d}, s.view.Binding())
				s.later(time.Second)
			}
			told := named(s.events(), event.NameDiagnosis)
			if len(told) != c.events {
				t.Errorf("%d events, want %d: %v", len(told), c.events, told)
			}
			if n := strings.Count(s.stderr(), string(c.finding)); n != c.lines {
				t.Errorf("%d lines, want %d\n%s", n, c.lines, s.stderr())
			}
			if c.lines > 0 && !strings.Contains(s.stderr(), "growth: ") {
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
	s := opened(t)
	for range 3 {
		for _, role := range []rss.Role{rss.RoleWorker, rss.RoleTrainer} {
			s.tell.Findings.Tell(s.now(), []event.Diagnosis{{Finding: event.FindingMapped, Role: role, Confidence: event.Likely, Bytes: rss.GiB}}, nil)
		}
	}
	if told := named(s.events(), event.NameDiagnosis); len(told) != 2 {
		t.Errorf("events %v", told)
	}
}

// TestFindingSurvives: a worker leaks and ends; the summary and the last event have
// it all the same, and a line on the way says why.
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
	s.told("growth: likely " + string(event.FindingWorkerLeak) + ", +")
	s.fs.End(worker1)
	s.log(id, `"what":"ended","n":1`)
	for range 90 {
		s.later(time.Second)
		s.full()
	}
	s.end(&hold.Exit{})
	told := named(s.events(), event.NameDiagnosis)
	if len(told) == 0 || len(told) > 6 || told[0]["finding"] != string(event.FindingWorkerLeak) || told[0]["role"] != "worker" {
		t.Errorf("%d events %v", len(told), told)
	}
}

// TestCloseReadingHangs: a process whose files cannot be read delays no look.
func TestCloseReadingHangs(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 100*rss.MiB, 0)
	fifo := fmt.Sprintf("%s/%d/smaps_rollup", s.fs.Proc, worker1)
	wardentest.NoError(t, unix.Mkfifo(fifo, 0o600))
	s.open(s.holder.begin)
	for range 60 {
		s.later(2 * time.Second)
		s.full()
	}
	if !s.observe.Diagnosis.Busy() {
		t.Errorf("a pipe without a writer was read; wanted %+v", s.observe.Diagnosis.State.Wants())
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		f.Close() // the reader goes on
	}
}
