package event

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestLimitRows: every limit has the words that its kind needs.
func TestLimitRows(t *testing.T) {
	for _, n := range Limits {
		r := n.Row()
		counted := n.Thing() != ""
		switch {
		case n.Says() == "":
			t.Errorf("%s: no sentence", n)
		case counted != (n.Cure() != ""), counted == (n.Memory() || n == LimitTime):
			t.Errorf("%s: what runs out is %q, the cure %q", n, n.Thing(), n.Cure())
		case counted && (r.Use == "" || r.Alert == ""):
			t.Errorf("%s: no word for its use, or no name of an alert", n)
		case (r.Kills || r.Ladder || r.OfJob) && !n.Memory():
			t.Errorf("%s is not on memory: %+v", n, r)
		case r.Kills && r.Spares:
			t.Errorf("%s kills and spares", n)
		}
	}
	if n := LimitName("of tomorrow"); n.Memory() || n.Counts() || n.Row().Kills || !n.Row().Amount {
		t.Errorf("a limit of a newer version: %+v", n.Row())
	}
}

// TestLimitsOfOneProcess: which of them there are, and what they compare.
func TestLimitsOfOneProcess(t *testing.T) {
	p := &rss.Proc{ID: rss.ProcID{PID: 7}, Role: rss.RoleTrainer, Virtual: 3 * rss.GiB, Locked: rss.MiB, Pinned: 2 * rss.MiB}
	none := &rss.ResourceLimits{AddressSpace: math.MaxUint64, LockedMemory: math.MaxUint64}
	some := &rss.ResourceLimits{AddressSpace: 4 * rss.GiB, LockedMemory: 8 * rss.MiB}
	if _, ok := addressSpace(p, none); ok {
		t.Error("an unlimited address space is limited")
	}
	if _, ok := lockedMemory(p, none); ok {
		t.Error("unlimited locked memory is limited")
	}
	if l, ok := addressSpace(p, some); !ok || l.Ratio() != 0.75 || l.PID != 7 || l.Role != rss.RoleTrainer {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := lockedMemory(p, some); !ok || l.Used != 2*rss.MiB || l.UsedSource != "VmPin of /proc/PID/status" {
		t.Errorf("%+v, %v", l, ok)
	}
	if _, ok := lockedMemory(&rss.Proc{}, some); ok {
		t.Error("who locks nothing is limited")
	}
}

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
