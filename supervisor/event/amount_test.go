package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestCountsAreNoBytes: what a reader takes for bytes is bytes, and nothing else.
func TestCountsAreNoBytes(t *testing.T) {
	maps := Limit{Name: LimitMaps, Scope: ScopeProcess, PID: 12, Used: 60000, UsedMax: 60000, Limit: 65530}
	size := Limit{Name: LimitCgroup, Used: 3 * rss.GiB, UsedMax: 3 * rss.GiB, Limit: 4 * rss.GiB}
	if b, err := json.Marshal(Found{Head: Head{V: 1, Event: NameLimit}, Limit: size}); err != nil ||
		!strings.Contains(string(b), `"used_bytes":3221225472,"used_max_bytes":3221225472,"limit_bytes":4294967296`) {
		t.Errorf("a size is %s (%v)", b, err)
	}
	for _, v := range []any{
		maps,
		Found{Head: Head{V: 1, Seq: 3, Event: NameLimit}, Limit: maps},
		Decision{Head: Head{V: 1, Seq: 3}, ID: 7, Limit: LimitMaps, Used: 60000, LimitSize: 65530, Threshold: 52424},
		Sample{Limits: []Limit{maps}},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); strings.Contains(text, "_bytes") || !strings.Contains(text, `"used":60000`) || !strings.Contains(text, `"limit_count":65530`) {
			t.Errorf("%T is %s", v, text)
		}
		back := reflect.New(reflect.TypeOf(v))
		if err := json.Unmarshal(b, back.Interface()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back.Elem().Interface(), v) {
			t.Errorf("%s is read back as %+v", b, back.Elem().Interface())
		}
	}
}
