package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

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
