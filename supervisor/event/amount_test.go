package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestCountsAreNoBytes: what a reader takes for bytes is bytes.
func TestCountsAreNoBytes(t *testing.T) {
	maps := Limit{Name: LimitMaps, Scope: ScopeProcess, PID: 12, Used: 60000, UsedMax: 60000, Limit: 65530}
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

// TestBytesStayBytes: the fields of a limit in bytes are as they ever were.
func TestBytesStayBytes(t *testing.T) {
	l := Limit{Name: LimitCgroup, Used: 3 * rss.GiB, UsedMax: 3 * rss.GiB, Limit: 4 * rss.GiB}
	b, err := json.Marshal(Found{Head: Head{V: 1, Event: NameLimit}, Limit: l})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if m["used_bytes"] != float64(3*rss.GiB) || m["limit_bytes"] != float64(4*rss.GiB) || m["event"] != "limit" || m["used"] != nil {
		t.Errorf("it is %s", b)
	}
}
