package tell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// lines keeps what was written for people.
type lines struct{ all []string }

func (l *lines) Summary(draw func(text.Style) []string, _ any) {
	l.all = append(l.all, draw(text.Style{})...)
}
func (l *lines) Info(line string) { l.all = append(l.all, line) }
func (l *lines) Warn(line string) { l.all = append(l.all, line) }

func (l *lines) last() string { return l.all[len(l.all)-1] }

func (l *lines) count(part string) (n int) {
	for _, line := range l.all {
		n += strings.Count(line, part)
	}
	return n
}

func old() bool { return false }

// TestLinesAreRationed: the first lines of a kind are written, the rest are counted in one
// line a minute, and where nothing was counted there is none.
func TestLinesAreRationed(t *testing.T) {
	var said lines
	l := NewLog(&said, old)
	trim, recycle := Kind{Name: "85%:trim@user", Thing: "trim"}, Kind{Name: "90%:recycle@user", Thing: "recycle"}
	now := time.Duration(0)
	for i := range 34 { // one a second
		now += time.Second
		trim.Share = 0.85 + float64(i%10)/100
		l.SayOf(now, trim, fmt.Sprintf("trimmed %d", i))
	}
	for i := range 10 {
		now += time.Second
		l.SayOf(now, recycle, fmt.Sprintf("recycled %d", i))
	}
	if len(said.all) != 2*freely || said.last() != "recycled 2" {
		t.Fatalf("said %q", said.all)
	}
	for range 60 {
		now += time.Second
		l.Tick(now)
	}
	if len(said.all) != 2*freely+1 || said.last() != "last minute: 31 trims, 7 recycles, peak 94 %" {
		t.Errorf("said %q", said.all)
	}
	l.Tick(now + time.Hour)
	l.SayOf(now+time.Hour, trim, "the next")
	if len(said.all) != 2*freely+2 || said.last() != "the next" {
		t.Errorf("said %q", said.all)
	}
}

// TestBriefRunsHaveNoStart: the first lines wait until the run has lived long enough or
// something happens, and are forgotten where it ends before. A warning waits for nothing.
func TestBriefRunsHaveNoStart(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*Log, *bool)
		want []string
	}{
		"brief":             {func(*Log, *bool) {}, []string{"a warning", "summary"}},
		"long":              {func(l *Log, young *bool) { *young = false; l.Tick(Brief) }, []string{"a warning", "watching", "summary"}},
		"something happens": {func(l *Log, _ *bool) { l.Say(0, "trim", "trimmed") }, []string{"a warning", "watching", "trimmed", "summary"}},
	} {
		t.Run(name, func(t *testing.T) {
			var said lines
			young := true
			l := NewLog(&said, func() bool { return young })
			l.Info("watching")
			l.Warn("a warning")
			c.then(l, &young)
			l.delayed.end()
			l.Info("summary")
			if !slices.Equal(said.all, c.want) {
				t.Errorf("said %q", said.all)
			}
		})
	}
}

func TestLinesRepeatWhatHappensAgain(t *testing.T) {
	var said lines
	l := NewLog(&said, old)
	l.Say(time.Minute, "a@job", "memory 80 %")
	l.Say(time.Minute+time.Millisecond, "a@step", "memory 80 %") // step and job stand at the same
	if len(said.all) != 1 {
		t.Errorf("%d lines of one moment, want one", len(said.all))
	}
	l.Say(time.Hour, "a@job", "memory 80 %")
	if len(said.all) != 2 {
		t.Errorf("%d lines, want the second crossing to be said", len(said.all))
	}
}

func TestOnce(t *testing.T) {
	l := NewLog(&lines{}, old)
	if !l.Once("part", "text") || l.Once("part", "text") || !l.Once("part", "other") || !l.Once("other", "text") {
		t.Error("not each once")
	}
	for i := range 2 * maxKnown {
		l.Once("part", strings.Repeat("x", i%7)+fmt.Sprint(i))
	}
	if len(l.known) > maxKnown {
		t.Errorf("%d faults are remembered", len(l.known))
	}
}

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

// TestRecordDue: the record takes a look at most once in a time, one at a decision always,
// and no look twice.
func TestRecordDue(t *testing.T) {
	out := &events{}
	r := Record{out: out}
	if r.due(0, time.Second+early, 1, true) {
		t.Error("due where nothing is recorded")
	}
	k := &kept{}
	out.Recorder = k
	for i, c := range []struct {
		now        time.Duration
		seq        uint64
		atDecision bool
		want       bool
	}{
		{0, 1, false, true},
		{100 * time.Millisecond, 1, false, false},
		{500 * time.Millisecond, 2, false, false},
		{500 * time.Millisecond, 2, true, true},
		{500 * time.Millisecond, 2, true, true},
		{999 * time.Millisecond, 3, false, false},
		{time.Second, 3, false, true}, // a decision puts nothing off
		{2 * time.Second, 3, false, false},
		{2 * time.Second, 4, false, true},
	} {
		if got := r.due(c.now, time.Second+early, c.seq, c.atDecision); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	if r.Close(false, 0); k.begun {
		t.Error("a run that met nothing is kept")
	}
	if r.Close(true, 0); !k.begun {
		t.Error("a run that met something is not kept")
	}
}
