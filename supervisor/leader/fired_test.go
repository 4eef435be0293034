package leader

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKept: what the leader keeps is there for the next one, and goes with the last.
func TestKept(t *testing.T) {
	dir := parent(t)
	one, _ := rank(t, 1)
	two, _ := rank(t, 2)
	a, b := join(t, dir, one), join(t, dir, two)
	if led, err := a.TryLead(); !led || err != nil {
		t.Fatalf("leads %v, %v", led, err)
	}
	if data, err := b.Kept(); data != nil || err != nil {
		t.Fatalf("%s, %v before anything was kept", data, err)
	}
	for _, text := range []string{`{"v":1}`, `{"v":1,"rungs":[]}`} {
		if err := a.Keep(json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := b.Kept(); string(data) != text || err != nil {
			t.Errorf("%s, %v, want %s", data, err, text)
		}
	}
	path := filepath.Join(a.Path(), firedName)
	for _, text := range []string{"", "{", strings.Repeat(" ", mostBytes) + "{}"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if data, err := b.Kept(); err == nil {
			t.Errorf("%.10q was read as %s", text, data)
		}
	}
	a.Leave()
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("it went with the leader: %v", err)
	}
	b.Leave()
	if _, err := os.Stat(a.Path()); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}
