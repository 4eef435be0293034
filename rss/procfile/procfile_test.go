package procfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(name, []byte(strings.Repeat("x", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int{10: 10, 999: 999, 1000: 1000, 1001: 1000} {
		if b, err := procfile.Read(name, most); err != nil || len(b) != want {
			t.Errorf("at most %d: %d bytes, %v; want %d", most, len(b), err, want)
		}
	}
	if b, err := procfile.Read("/dev/zero", procfile.Small); err != nil || len(b) != procfile.Small {
		t.Errorf("of a file without end: %d bytes, %v", len(b), err)
	}
	if _, err := procfile.Read(name+".none", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of none: %v", err)
	}
}
