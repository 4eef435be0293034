package alert

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
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
