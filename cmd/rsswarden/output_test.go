package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestJSONSteersNoTerminal: what --json prints is read on terminals too, and means the
// same to a parser.
func TestJSONSteersNoTerminal(t *testing.T) {
	in := map[string]string{"comm": recordtest.Hostile + "\u007f\u0085\u2066\U000e0001 é 数据"}
	var b bytes.Buffer
	wardentest.NoError(t, writeJSON(&b, in))
	if bad := recordtest.Shows(b.String()); len(bad) > 0 || strings.ContainsAny(b.String(), "\u007f\u0085\u2066\U000e0001") {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), " é 数据") {
		t.Errorf("letters are escaped: %q", b.String())
	}
	var out map[string]string
	wardentest.NoError(t, json.Unmarshal(b.Bytes(), &out))
	if want := map[string]string{"comm": strings.ToValidUTF8(in["comm"], "\ufffd")}; !reflect.DeepEqual(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestSentences: an error of several lines is several sentences.
func TestSentences(t *testing.T) {
	err := errors.Join(errors.New("cannot make a"), errors.New("cannot make b\x1b[31m"))
	if got, want := sentences(err.Error()+"\n"), "cannot make a; cannot make b\ufffd[31m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
