package replay

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestCountsAreNoBytes: a decision on a number is told as a number, also where the
// record has it.
func TestCountsAreNoBytes(t *testing.T) {
	for _, recorded := range []*Recorded{nil, {ID: 3, Used: 15000}} {
		b, err := json.Marshal([]Decision{{Rule: "fds 80%:warn", Limit: event.LimitFDs, Used: 16299, Size: 20000, Recorded: recorded}})
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); strings.Contains(text, "_bytes") || !strings.Contains(text, `"used":16299,"limit_count":20000,"recorded":`) {
			t.Errorf("%s", text)
		}
	}
	b, err := json.Marshal(Decision{Limit: event.LimitCgroup, Used: 5, Size: 6, Recorded: &Recorded{Used: 5}})
	if err != nil || strings.Count(string(b), `"used_bytes":5`) != 2 {
		t.Errorf("%s, %v", b, err)
	}
}
