package policy

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
