package alert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

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
