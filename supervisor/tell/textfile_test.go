package tell

import (
	"errors"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// TestTextfileNews: each change is reported, even for the same reason as before.
func TestTextfileNews(t *testing.T) {
	s := newStand(t)
	s.set.Textfile = "/metrics"
	for i := range 2 {
		now := time.Duration(i) * 4 * time.Second
		s.Textfile.tell(now, errors.New("cannot write to D: no space left on device"))
		s.Textfile.tell(now+2*time.Second, nil)
	}
	for line, want := range map[string]int{
		"textfile: cannot write to D: no space left on device; the command runs on": 2, "textfile: written again": 2,
	} {
		if n := s.said.count(line); n != want {
			t.Errorf("%d times, want %d: %s\n%q", n, want, line, s.said.all)
		}
	}
	told := 0
	for _, e := range s.events() {
		if e["event"] == "fault" && e["part"] == "textfile" && e["error"] == "cannot write to D: no space left on device" {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d fault events", told)
	}
}

// TestTextfileDue: a text is made each 15 s and at each decision, which puts none off.
func TestTextfileDue(t *testing.T) {
	s := newStand(t)
	made := 0
	kills := func() []limit.Kills { made++; return nil }
	costs := func(time.Duration) []event.Cost { return nil }
	s.Textfile.look(looked(0), true, kills, costs)
	if made != 0 {
		t.Error("made without a file")
	}
	s.set.Textfile = t.TempDir()
	s.Textfile.Open("")
	for _, c := range []struct {
		at      time.Duration
		decided bool
		want    int
	}{
		{0, false, 1}, {14 * time.Second, false, 1}, {14 * time.Second, true, 2}, {15*time.Second - early, false, 3}, {29 * time.Second, false, 3}, {30*time.Second - early, false, 4},
	} {
		if s.Textfile.look(looked(c.at), c.decided, kills, costs); made != c.want {
			t.Errorf("at %v %d texts, want %d", c.at, made, c.want)
		}
	}
	s.Textfile.Close()
	<-s.Textfile.Removed
	if s.Textfile.look(looked(time.Hour), true, kills, costs); made != 4 {
		t.Error("made after the end")
	}
}
