package phrase

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestUnmatched: a rule for a limit on memory that there is none of is named.
func TestUnmatched(t *testing.T) {
	var rules []event.Rule
	for _, text := range []string{"80%:warn", "throttle 80%:trim", "slurm 95%:stop", "user 90%:warn", "maps 80%:warn", "time eta<5m:warn"} {
		r, err := event.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	limits := []event.Limit{{Name: event.LimitUser, Limit: 1}, {Name: event.LimitSlurm, Limit: 1}, {Name: event.LimitThrottle}}
	lines := Unmatched(rules, limits)
	if len(lines) != 1 || !strings.HasPrefix(lines[0], `rule "throttle 80%:trim" does not fire: there is no memory.high`) {
		t.Errorf("said %q", lines)
	}
	for name := range absent {
		if !name.Memory() || name == event.LimitUser {
			t.Errorf("%s is not looked for at the start", name)
		}
	}
}
