package alert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// at is a rung of that name on the limit slurm, at so many percent of 1 GiB.
func at(rung string, percent float64) Alert {
	return Alert{
		Job: "46", Node: "n1", Step: "0", Limit: event.LimitSlurm, Scope: event.ScopeStep, Rung: rung, Action: event.ActionWarn,
		Since: noon, Used: rss.GiB.Scale(percent / 100), Size: rss.GiB, Summary: fmt.Sprintf("memory %.0f %%", percent), Text: "so it is",
	}
}

// stand shows the alerts of a store: "80% firing since 0s".
func stand(b *Store) (all []string) {
	for _, e := range b.sorted() {
		text := fmt.Sprintf("%s %s since %v", e.Rung, Firing, e.Since.Sub(noon))
		if !e.firing() {
			text = fmt.Sprintf("%s %s at %v", e.Rung, Resolved, e.ends.Sub(noon))
		}
		all = append(all, text)
	}
	return all
}

// TestBook: one alert a rung, from its crossing until it was left for a while.
func TestBook(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name  string
		looks string // when, and the rungs that are crossed then
	}{
		{"crossed and left", "0s 80% | 1h 80% | 1h0m1s | 1h0m30s | 1h0m31s | 1h5m | 1h6m"},
		{"crossed again and again", "0s 80% | 10s | 35s 80% | 40s | 69s | 70s | 80s 80%"},
		{"two rungs", "0s 80% | 1m 80% 90% | 2m 80% | 3m 80%"},
	} {
		b := NewStore()
		fmt.Fprintf(&out, "%s\n", c.name)
		for look := range strings.SplitSeq(c.looks, "|") {
			words := strings.Fields(look)
			after, err := time.ParseDuration(words[0])
			wardentest.NoError(t, err)
			var current []Alert
			for _, rung := range words[1:] {
				a := at(rung, 85)
				a.Since = noon.Add(after)
				current = append(current, a)
			}
			b.Set(noon.Add(after), current)
			fmt.Fprintf(&out, "\tat %v crossed %q: %q\n", after, words[1:], stand(b))
		}
	}
	golden.Check(t, "testdata/book.txt", out.String())
}

// TestBookSameLabels: of two limits with equal labels the fuller is sent, and a limit that
// is no longer read keeps its last numbers.
func TestBookSameLabels(t *testing.T) {
	b := NewStore()
	b.Set(noon, []Alert{at("80%", 81), at("80%", 95), at("80%", 90)})
	if got := b.sorted(); len(got) != 1 || got[0].Summary != "memory 95 %" {
		t.Errorf("%d alerts, %q", len(got), got[0].Summary)
	}
	before := b.changes
	unread := at("80%", 0)
	unread.Size, unread.Summary = 0, ""
	b.Set(noon.Add(time.Second), []Alert{unread})
	if got := b.sorted()[0]; got.Summary != "memory 95 %" || b.changes != before {
		t.Errorf("%q after %d changes", got.Summary, b.changes-before)
	}
}

// TestBookBound: what there is no room for is counted, and the resolved go first.
func TestBookBound(t *testing.T) {
	b := NewStore()
	var many []Alert
	for i := range mostAlerts + 5 {
		many = append(many, at(fmt.Sprintf("%d%%", i), 99))
	}
	b.Set(noon, many)
	b.Set(noon, many)
	if len(b.entries) != mostAlerts || len(b.dropped) != 5 {
		t.Errorf("%d alerts and %d dropped", len(b.entries), len(b.dropped))
	}
	b.End(noon.Add(time.Second))
	b.Set(noon.Add(2*time.Second), []Alert{at("new", 99)})
	if len(b.entries) != mostAlerts || b.Firing() != 1 {
		t.Errorf("%d alerts, %d of them fire", len(b.entries), b.Firing())
	}
}
