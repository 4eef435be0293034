package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// TestLimitsSteerNoTerminal: names of cgroups are their users' to choose, and whoever asks
// for the limits of another's process reads them.
func TestLimitsSteerNoTerminal(t *testing.T) {
	eta := 1.0
	r := &limitsReport{PID: 1, Explanation: limit.Explanation{
		Limits: []event.Limit{{Name: "cgroup", Scope: "job", Enforcer: "kernel", LimitSource: "/sys/x", UsedSource: "/sys/y", Level: "/x", Note: "n", Used: 1, Limit: 2, ETA: &eta}},
		Looked: []limit.Looked{{Where: "/sys", Found: "x"}},
	}, Procs: 2}
	kinds := 0
	recordtest.Poison(recordtest.Hostile, func(kind string) {
		kinds++
		if bad := recordtest.Shows(r.text()); len(bad) > 0 {
			t.Errorf("%q: %q", kind, bad)
		}
	}, r)
	if kinds < 8 {
		t.Errorf("%d kinds of strings", kinds)
	}
}

// TestJSONSteersNoTerminal: what --json prints is read on terminals too, and means the
// same to a parser.
func TestJSONSteersNoTerminal(t *testing.T) {
	in := map[string]string{"comm": recordtest.Hostile + "\u007f\u0085\u2066\U000e0001 é 数据"}
	var b bytes.Buffer
	if err := writeJSON(&b, in); err != nil {
		t.Fatal(err)
	}
	if bad := recordtest.Shows(b.String()); len(bad) > 0 || strings.ContainsAny(b.String(), "\u007f\u0085\u2066\U000e0001") {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), " é 数据") {
		t.Errorf("letters are escaped: %q", b.String())
	}
	var out map[string]string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"comm": strings.ToValidUTF8(in["comm"], "\ufffd")}; !reflect.DeepEqual(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestLogSteersNoTerminal: in either form of our lines.
func TestLogSteersNoTerminal(t *testing.T) {
	for _, format := range []string{"console", "json"} {
		name := filepath.Join(t.TempDir(), "log")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		log, flush := newLog(f, format, false)
		log.Warn("process 7 (" + recordtest.Hostile + ") is large")
		flush(10 * time.Second)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bad := recordtest.Shows(string(b)); len(bad) > 0 || strings.Count(string(b), "\n") != 1 {
			t.Errorf("%s: %q", format, b)
		}
		f.Close()
	}
}
