package tell

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

func TestLinesAreRationed(t *testing.T) {
	var said lines
	l := NewLog(&said)
	now := time.Duration(0)
	for i := range 30 { // one a second
		now += time.Second
		l.Say(now, "trim", fmt.Sprintf("line %d", i))
	}
	if len(said.all) != freely {
		t.Errorf("%d lines, want the first %d", len(said.all), freely)
	}
	if last := said.last(); last != "line 4 (more like it: one line a minute at most)" {
		t.Errorf("said %q", last)
	}
	l.Say(now, "recycle", "of another kind")
	if len(said.all) != freely+1 {
		t.Error("another kind pays for this one")
	}
	l.Say(now+ration, "trim", "the next")
	if last := said.last(); last != "the next (and 25 more like it since the last)" {
		t.Errorf("said %q", last)
	}
	l.Say(now+2*ration, "trim", "one more")
	if last := said.last(); last != "one more" {
		t.Errorf("said %q", last)
	}
}

func TestLinesRepeatWhatHappensAgain(t *testing.T) {
	var said lines
	l := NewLog(&said)
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
	l := NewLog(&lines{})
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
