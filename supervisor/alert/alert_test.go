package alert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestMessageShown: what a webhook gets has the fields that the documents show, all of
// those that every message about memory has.
func TestMessageShown(t *testing.T) {
	_, shown, found := strings.Cut(rsstest.Documents(t), "```\n{\"v\":1,\"status\"")
	shown, _, closed := strings.Cut("{\"v\":1,\"status\""+shown, "```")
	if !found || !closed {
		t.Fatal("no document shows a message")
	}
	dec := json.NewDecoder(strings.NewReader(shown))
	dec.DisallowUnknownFields()
	var m Message
	if err := dec.Decode(&m); err != nil {
		t.Fatalf("%v in\n%s", err, shown)
	}
	if m.UsedBytes == nil || m.ETA == nil || m.StartsAt.IsZero() {
		t.Errorf("%+v", m)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Message]()) {
		name, more, _ := strings.Cut(f.Tag.Get("json"), ",")
		if more == "" && !f.Anonymous && !strings.Contains(shown, `"`+name+`":`) {
			t.Errorf("%s is not shown", name)
		}
	}
}

// TestLabels: what is no label changes no ID, and each limit has its alert.
func TestLabels(t *testing.T) {
	a := at("80%", 91)
	other := a
	other.Used, other.Since, other.Summary = 1, noon.Add(time.Hour), "x"
	if a.ID() != other.ID() {
		t.Error("the ID follows what is no label")
	}
	other.Action = event.ActionStop
	if other.Severity() != SeverityCritical || a.ID() == other.ID() {
		t.Errorf("a stop is %s", other.Severity())
	}
	for _, l := range event.Limits {
		a := Alert{Limit: l}
		if l.Memory() && l != event.LimitThrottle != strings.HasPrefix(a.Name(), "RsswardenMemoryNearLimit") {
			t.Errorf("%s: %s", l, a.Name())
		}
	}
	if a := (Alert{Limit: event.LimitCgroup, ETA: true}); a.Name() != "RsswardenMemoryFullSoon" {
		t.Error(a.Name())
	}
}

// TestForms: what goes over the wire.
func TestForms(t *testing.T) {
	var out strings.Builder
	b, now := NewStore(), noon.Add(time.Minute)
	write := func(what string, body json.RawMessage, err error) {
		wardentest.NoError(t, err)
		fmt.Fprintf(&out, "%s:\n%s\n", what, body)
	}
	manager := func(what string, heard bool) {
		body, err := managerBody(b.sorted(), now, holds, func(string) bool { return heard })
		write(what, body, err)
	}
	hook := func(what string) {
		body, err := hookBody(b.sorted()[0])
		write(what, body, err)
	}
	eta := 252.0
	a := at("80%", 50)
	a.Left = &eta
	b.Set(noon, []Alert{a})
	manager("firing", true)
	hook("a webhook")
	b.End(noon) // at once: Alertmanager wants an end behind the start
	manager("resolved", true)
	manager("resolved before it was heard of", false)
	hook("a webhook, resolved")
	count := at("80%", 50)
	count.Limit, count.Used, count.Size = event.LimitFDs, 900, 1024
	b = NewStore()
	b.Set(noon, []Alert{count})
	hook("a number")
	golden.Check(t, "testdata/forms.txt", out.String())
}

// TestTargets: what is read of a receiver, how it is shown, and what is none.
func TestTargets(t *testing.T) {
	var b strings.Builder
	for _, text := range []string{
		"http://am:9093", " http://am:9093/ ", "https://h/prom/am/api/v2/alerts", "alertmanager+https://h/prom/",
		"https://hooks.example/services/T0/B0/xyzzy", "webhook+http://h", "webhook+http://h/", "http://me:s3cret@am:9093",
		"https://h/x?token=s3cret#frag", "https://h/x  token=s3cret", "http://am token-file=/x y", "https://[::1]:9/x",
		"", "am:9093", "am", "ftp://h/x", "http://", "http:///x", "alertmanager+", "webhook+am:9093", "http://h:port/", "http://a b/",
		"http://a token=", "http://a token=x y", "http://a token-file=x", "http://me:s3cret@a token=x", "slack+https://h/s3cret",
	} {
		got, err := ParseTarget(text)
		if err != nil {
			fmt.Fprintf(&b, "%q, shown as %s: it %v\n", text, Redact(text), err)
			continue
		}
		fmt.Fprintf(&b, "%q, shown as %s: %s %s, secret %v\n", text, Redact(text), got.Kind, got.URL, got.Secret())
	}
	golden.Check(t, "testdata/targets.txt", b.String())
}

// TestTokens: each receiver gets what it is to know us by, and no other's.
func TestTokens(t *testing.T) {
	for text, want := range map[string]struct {
		token, file string
		plain       bool
	}{
		"http://127.0.0.1:9093":             {"t0ken", "/f", false},
		"http://[::1]:9093":                 {"t0ken", "/f", false},
		"http://am:9093":                    {"t0ken", "/f", true},
		"https://am:9093":                   {"t0ken", "/f", false},
		"https://me:s3cret@am:9093":         {"", "", false},
		"https://am:9093 token=own":         {"own", "", false},
		"https://am:9093 token-file=/own":   {"", "/own", false},
		"https://hooks.example/x":           {"", "", false},
		"http://hooks.example/x token=own":  {"own", "", true},
		"webhook+http://localhost token=ow": {"ow", "", false},
	} {
		target, err := ParseTarget(text)
		wardentest.NoError(t, err)
		s := &Sender{opt: Options{Token: "t0ken", TokenFile: "/f"}}
		r := s.request(newReceiver(target), load{}, 0)
		if r.Token != want.token || r.TokenFile != want.file || target.Plain() != want.plain {
			t.Errorf("%s: %q, %q, in plain %v", text, r.Token, r.TokenFile, target.Plain())
		}
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("alertmanager+https://u:p@h:1/x?y#z")
	f.Fuzz(func(t *testing.T, text string) {
		target, err := ParseTarget(text)
		if err != nil {
			return
		}
		text = string(target.Kind) + "+" + target.URL
		if target.Token != "" {
			text += " token=" + target.Token
		} else if target.TokenFile != "" {
			text += " token-file=" + target.TokenFile
		}
		again, err := ParseTarget(text)
		if err != nil || again != target {
			t.Errorf("%q is %+v, and that %+v, %v", text, target, again, err)
		}
	})
}

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
