package supervisor

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
)

// TestReadmeLines: the lines that the README shows of the other limits are what is
// said with those numbers.
func TestReadmeLines(t *testing.T) {
	told := rsstest.Documents(t)
	for _, line := range []string{
		phrase.Sharing(14858, &event.Sharing{Tensors: 80_000, Method: "spawn", Strategy: "file_system", Maps: 81_726, MaxMaps: 65_530}),
		phrase.Side(&event.Limit{
			Name: event.LimitMaps, Scope: event.ScopeProcess, PID: 14858, Role: "trainer", Used: 53_080, Limit: 65_530,
			Enforcer: "kernel, by ENOMEM of mmap", LimitSource: "vm.max_map_count",
		}),
	} {
		if !strings.Contains(told, " "+line+"\n") {
			t.Errorf("the README does not show\n%s", line)
		}
	}
}
