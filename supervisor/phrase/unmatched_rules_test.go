package supervisor

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestRulesInVain: a rule for a limit on memory that there is none of is told of, but
// not a site's, which is for all jobs.
func TestRulesInVain(t *testing.T) {
	rules := []string{"80%:warn", "throttle 80%:trim", "slurm 95%:stop", "user 90%:warn", "maps 80%:warn", "time eta<5m:warn"}
	limits := []event.Limit{{Name: event.LimitUser, Limit: 1}, {Name: event.LimitSlurm, Limit: 1}, {Name: event.LimitThrottle}}
	said := vain(&Settings{Rules: mustRules(rules...)}, limits)
	if len(said) != 1 || !strings.HasPrefix(said[0], `the rule "throttle 80%:trim" does not fire now: no memory.high`) {
		t.Errorf("said %q", said)
	}
	for _, origin := range []string{"site", "site (locked)"} {
		if said := vain(&Settings{Rules: mustRules(rules...), Origins: []event.Setting{{Name: "at", Origin: origin}}}, nil); len(said) > 0 {
			t.Errorf("%s: said %q", origin, said)
		}
	}
	for name := range absent {
		if !name.Memory() || name == event.LimitUser {
			t.Errorf("%s is not looked for at the start", name)
		}
	}
}
