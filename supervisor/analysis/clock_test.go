package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestAlignClocks: where the time of day was set between two records of one boot, the
// monotonic clock says how far apart they are; of other boots and other time
// namespaces it says nothing.
func TestOneClock(t *testing.T) {
	at := func(node, boot string, wall, mono time.Duration) *record.Run {
		return &record.Run{Meta: record.Meta{ID: fmt.Sprint(wall, mono), Node: node, BootID: boot, Start: scenetest.Noon.Add(wall), Mono: mono}}
	}
	for _, test := range []struct {
		name string
		runs []*record.Run
		want []time.Duration // starts
	}{
		{"set back by a minute between", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "b", -30*time.Second, time.Hour+30*time.Second)}, []time.Duration{-time.Minute, -30 * time.Second}},
		{"nothing set", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "b", 30*time.Second, time.Hour+30*time.Second)}, []time.Duration{0, 30 * time.Second}},
		{"another boot", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "c", 30*time.Second, time.Minute)}, []time.Duration{0, 30 * time.Second}},
		{"another node", []*record.Run{at("n1", "b", 0, time.Hour), at("n2", "b", 30*time.Second, time.Minute)}, []time.Duration{0, 30 * time.Second}},
		{"another time namespace", []*record.Run{at("n1", "b", 0, 100*time.Hour), at("n1", "b", 30*time.Second, time.Second)}, []time.Duration{0, 30 * time.Second}},
		{"not known", []*record.Run{at("n1", "b", 0, 0), at("n1", "b", 30*time.Second, time.Minute), nil}, []time.Duration{0, 30 * time.Second}},
	} {
		var got []time.Duration
		for _, r := range AlignClocks(test.runs) {
			if r != nil {
				got = append(got, r.Meta.Start.Sub(scenetest.Noon))
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if test.runs[0].Meta.Start != scenetest.Noon {
			t.Errorf("%s: the run itself was changed", test.name)
		}
	}
}
