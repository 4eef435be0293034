package policy

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// ahead is how far the clock that both ladders know is before that of the first.
const ahead = 100 * time.Hour

// successor is a script that goes on where c ends, in a ladder of its own whose clock
// begins at 0. waiting is a decision that had not been begun.
func (c *script) successor(waiting uint64) *script {
	c.t.Helper()
	m := c.s.Snapshot(c.now, c.now+ahead, waiting)
	data, err := m.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	read, err := ParseMemory(data)
	if err != nil {
		c.t.Fatal(err)
	}
	h := &script{t: c.t, s: New(c.s.Rules(), 1), can: c.can, end: c.end, answers: c.answers, leads: c.leads, ids: c.ids}
	h.s.Restore(read, 0, c.now+ahead, "")
	return h
}

// TestHandOverForecast: a new ladder knows no forecast for minutes, which is no word
// that there is none.
func TestHandOverForecast(t *testing.T) {
	grow := func(c *script, use *float64, d time.Duration) (fired []string) {
		for end := c.now + d; c.now < end; {
			*use += 0.01
			fired = append(fired, c.at(second, slurm(*use))...)
		}
		return fired
	}
	c, use := newScript(t, "eta<40m:signal=USR2"), 60.0
	if got := grow(c, &use, 30*time.Minute); !slices.Equal(got, []string{"eta<40m:signal=USR2"}) {
		t.Fatalf("fired %q", got)
	}
	h := c.successor(0)
	if got := grow(h, &use, 20*time.Minute); len(got) > 0 {
		t.Errorf("fired %q again at %.0f %%", got, use)
	}
	// It does not change for long: then the rule is armed again.
	for range 60 {
		h.at(time.Minute, slurm(use))
	}
	use = 60
	if got := grow(h, &use, time.Hour); len(got) != 1 {
		t.Errorf("fired %q", got)
	}
}

// TestRestoreOwn: a limit with two names has one rung.
func TestRestoreOwn(t *testing.T) {
	c := newScript(t, "85%:signal=USR2")
	l := slurm(86)
	l.Level = "46.0"
	c.want(c.at(second, l), "85%:signal=USR2")
	m := c.s.Snapshot(c.now, ahead, 0)
	h := newScript(t, "85%:signal=USR2")
	h.s.Restore(&m, 0, ahead, "46.0")
	h.want(h.at(second, slurm(86)))
	h.want(h.at(second, l))
	h.want(h.at(second, slurm(60)))
	h.want(h.at(second, l), "85%:signal=USR2")
}

// TestMemoryIsBounded: of too much that is kept which fired last.
func TestMemoryIsBounded(t *testing.T) {
	m := Memory{V: memoryVersion, At: 1}
	for i := range 5000 {
		m.Rungs = append(m.Rungs, RungMemory{Rule: "80%:warn", LimitID: event.LimitID{Name: event.LimitCgroup, Level: fmt.Sprint("/", i)}, Fired: true, At: time.Duration(5000 - i)})
	}
	data, err := m.Encode()
	if err != nil || len(data) > MostMemory {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	read, err := ParseMemory(data)
	if err != nil || len(read.Rungs) < 200 || !reflect.DeepEqual(read.Rungs[0], m.Rungs[0]) {
		t.Errorf("%d rungs, %v", len(read.Rungs), err)
	}
}

// FuzzParseMemory: with any content of the file, the ladder keeps its promises.
func FuzzParseMemory(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"v":2}`, `{"v":1,"at_ns":5}`, `{"v":1,"rungs":[{}]}`, strings.Repeat("[", 1000),
		`{"v":1,"at_ns":5,"rungs":[{"rule":"80%:warn","limit":"slurm","scope":"step","accounting":"rss","fired":true,"fired_at_ns":3,"gap_ns":60000000000}]}`,
		`{"v":1,"at_ns":5,"rungs":[{"rule":"85%:trim","limit":"slurm","scope":"step","accounting":"rss","fired":true,"fired_at_ns":9,"next_ns":4000000000000000000}]}`,
		`{"v":1,"rungs":[{"rule":"99%:stop","limit":"slurm","scope":"step","accounting":"rss","fired":true}]}`,
	} {
		f.Add([]byte(text))
	}
	ladder := rules(f, "80%:warn\neta<10m:warn\n85%:trim\n90%:signal=USR2\n99%:stop")
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMemory(data)
		if err != nil {
			return
		}
		again, err := m.Encode()
		wardentest.NoError(t, err)
		if read, err := ParseMemory(again); err != nil || len(read.Rungs) > len(m.Rungs) {
			t.Fatalf("%s: %v", again, err)
		}
		s := New(ladder, 1)
		s.Restore(m, 0, ahead, "")
		fired := map[string]bool{}
		step := func(now time.Duration, percent float64) {
			for _, d := range step(s, reading{Now: now, Limits: []event.Limit{slurm(percent)}, Can: canAll}).Decisions {
				if d.Threshold > 0 && d.Used < d.Threshold {
					t.Errorf("%s fired at %v", d.Rule, d.Used)
				}
				fired[d.Rule] = true
				s.Done(event.Outcome{Decision: d.ID, OK: d.Action != event.ActionStop, Before: d.Used, After: d.Used})
			}
		}
		step(time.Second, 10)
		for now := 2 * time.Hour; now < 2*time.Hour+time.Minute; now += time.Second {
			step(now, 99)
		}
		for _, rule := range []string{"80%:warn", "85%:trim", "90%:signal=USR2", "99%:stop"} {
			if !fired[rule] {
				t.Errorf("%s never fired after %s", rule, data)
			}
		}
		_ = s.Snapshot(3*time.Hour, rss.HoldTime, 0)
	})
}

// TestForecastIsGiven: the ladder judges by a forecast that it is given, also by none.
func TestForecastIsGiven(t *testing.T) {
	s := New(rules(t, "eta<10m:warn"), 1)
	l := slurm(70)
	judged := func(now, eta time.Duration, ok bool) []event.Decision {
		if l.ETA, l.ETAHigh = nil, nil; ok {
			seconds := eta.Seconds()
			l.ETA, l.ETAHigh = &seconds, &seconds
		}
		s.Observe(now, []event.Limit{l})
		return s.Judge(Input{Now: now, Limits: []event.Limit{l}}).Decisions
	}
	for now := time.Duration(0); now < 10*time.Minute; now += time.Second {
		l.Used += l.Limit / 4000
		if got := judged(now, 0, false); len(got) > 0 {
			t.Fatalf("after %v: %+v", now, got)
		}
	}
	if got := judged(10*time.Minute, 11*time.Minute, true); len(got) > 0 {
		t.Errorf("11 minutes: %+v", got)
	}
	if got := judged(10*time.Minute+time.Second, 9*time.Minute, true); len(got) != 1 || *got[0].ETA != 540 {
		t.Errorf("9 minutes: %+v", got)
	}
}

// TestParseRecorded: a ladder of a record may have trim+drop, which came between
// trim and recycle, and again after a while. No other rule that is refused today
// is read.
func TestParseRecorded(t *testing.T) {
	var ladder []event.Rule
	for _, text := range []string{"80%:recycle", "80%:trim+drop", "80%:trim"} {
		r, err := event.ParseRecorded(text)
		if err != nil || r.String() != text {
			t.Fatalf("%s: %v, %v", text, r, err)
		}
		ladder = append(ladder, r)
	}
	c := &script{t: t, s: New(ladder, 1), can: canAll}
	for _, want := range []string{"80%:trim", "80%:trim+drop", "80%:recycle"} {
		c.want(c.at(second, slurm(90)), want)
		c.done(true, event.ReasonDone, 90, 90)
	}
	c = &script{t: t, s: New(ladder[1:2], 1), can: canAll}
	c.want(c.at(second, slurm(90)), "80%:trim+drop")
	c.done(true, event.ReasonDone, 90, 89.9)
	c.want(c.at(second, slurm(90)))
	c.want(c.at(30*second, slurm(90)), "80%:trim+drop")
	if r, err := event.ParseRecorded("80%:explode"); err == nil {
		t.Errorf("80%%:explode is read as %v", r)
	}
}

func TestNextRung(t *testing.T) {
	s := New(rules(t, "80%:warn\neta<10m:warn\n85%:trim\nfree<300M:recycle\nshm 10%:warn"), 1)
	for _, c := range []struct {
		used float64
		want rss.Bytes
	}{
		{0, 2400 * rss.MiB}, {79.9, 2400 * rss.MiB}, {80, 2550 * rss.MiB}, {86, 2700*rss.MiB + 1}, {95, 3000 * rss.MiB},
	} {
		l := slurm(c.used)
		if got := s.NextRung(&l); got != c.want {
			t.Errorf("at %v %%: next rung at %v, want %v", c.used, got, c.want)
		}
	}
	l := slurm(79)
	l.UsedMax = l.Used
	if s.Straddles(&l) {
		t.Error("an exact reading straddles")
	}
	l.UsedMax = slurm(81).Used
	if !s.Straddles(&l) {
		t.Error("79 to 81 % does not straddle 80 %")
	}
	if at, ok := s.Rung(event.ActionTrim, &l); !ok || at != 2550*rss.MiB {
		t.Errorf("trim at %v, %v", at, ok)
	}
	if at, ok := s.Rung(event.ActionStop, &l); ok {
		t.Errorf("stop at %v, which the ladder has not", at)
	}
}

// A forecast rule is left at twice its time; the limit moves here, not use.
func TestForecastIsLeftAtTwice(t *testing.T) {
	c := newScript(t, "eta<5m:warn")
	used := func() event.Limit { return slurm(60 + 4*c.now.Minutes()) }
	for c.now < 5*time.Minute+30*second {
		if said := c.at(second, used()); len(said) > 0 {
			break
		}
	}
	if c.last.ID != 1 {
		t.Fatal("no warning on the way to the limit")
	}
	step := func(scale float64, d time.Duration) (said []string) {
		for range d / second {
			l := used()
			l.Limit = l.Limit.Scale(scale)
			said = append(said, c.at(second, l)...)
		}
		return said
	}
	// At 80 % and 4 points a minute.
	c.want(step(1.1, 30*second)) // 7 minutes: not left
	c.want(step(1, 30*second))
	c.want(step(1.3, 30*second)) // 11 minutes
	c.want(step(1, 90*second), "eta<5m:warn")
}

// TestLadder plays testdata/ladder.txt.
func TestLadder(t *testing.T) {
	all, err := os.ReadFile("testdata/ladder.txt")
	wardentest.NoError(t, err)
	for _, text := range strings.Split(string(all), "\n== ")[1:] {
		name, lines, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			var ladder []string
			var c *script
			for line := range strings.Lines(lines) {
				line = strings.TrimSpace(line)
				switch _, err := event.ParseRule(line); {
				case line == "" || line[0] == '#':
				case err == nil && c == nil:
					ladder = append(ladder, line)
				case c == nil:
					c = newScript(t, strings.Join(ladder, "\n"))
					c.answers, c.leads, c.ids = map[string]event.Feasibility{}, map[string]rss.Bytes{}, map[string]uint64{}
					c.can = func(r event.Rule, l *event.Limit) event.Feasibility {
						for _, k := range []string{string(l.Name), string(r.Action)} {
							if h, ok := c.answers[k]; ok {
								return h
							}
						}
						return canAll(r, l)
					}
					fallthrough
				default:
					c = c.play(line)
				}
			}
		})
	}
}

func TestDefaultLadder(t *testing.T) {
	var got []string
	for _, r := range Default() {
		got = append(got, r.String())
		if again, err := event.ParseRule(r.String()); err != nil || again != r {
			t.Errorf("%v reads as %v, %v", r, again, err)
		}
	}
	want := []string{"80%:warn", "eta<10m:warn", "85%:trim", "90%:recycle", "maps 80%:warn", "fds 80%:warn", "commit 80%:warn", "shm 80%:warn", "tasks 80%:warn",
		"maps 95%:warn", "fds 95%:warn", "commit 95%:warn", "shm 95%:warn", "tasks 95%:warn"}
	if !slices.Equal(got, want) {
		t.Errorf("default ladder %q, want %q", got, want)
	}
}

func TestLadderOfAt(t *testing.T) {
	for _, c := range []struct {
		at   []string
		n    int
		last string
	}{
		{nil, 14, "tasks 95%:warn"},
		{[]string{"95%:stop"}, 15, "95%:stop"},
		{[]string{"85%:trim"}, 14, "tasks 95%:warn"}, // there already
		{[]string{"none"}, 0, ""},
		{[]string{"none", "95%:stop", "95%:stop"}, 1, "95%:stop"},
	} {
		rules, err := Ladder(c.at)
		if err != nil || len(rules) != c.n || c.n > 0 && rules[c.n-1].String() != c.last {
			t.Errorf("Ladder(%q) = %v, %v", c.at, rules, err)
		}
	}
	for _, at := range [][]string{{"95%:stop", "none"}, {"95%"}} {
		var e *event.RuleError
		if rules, err := Ladder(at); !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("Ladder(%q) = %v, %v; want an error with a hint", at, rules, err)
		}
	}
}
