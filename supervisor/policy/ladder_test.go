package policy

import (
	"errors"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

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

func TestLadder(t *testing.T) {
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
