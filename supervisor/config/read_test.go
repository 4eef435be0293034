package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for size, want := range map[int]string{MaxSize: "<nil>", MaxSize + 1: "longer than 64 KiB"} {
		path := filepath.Join(dir, "file")
		wardentest.Write(t, path, strings.Repeat("#", size))
		if text, err := Read(path); fmt.Sprint(err) != want || err == nil && len(text) != size {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	}
	if _, err := Read("/dev/zero"); err == nil || err.Error() != "longer than 64 KiB" {
		t.Error(err)
	}
	if text, err := Read("/dev/null"); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(dir); !errors.Is(err, syscall.EISDIR) {
		t.Error(err)
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), dir) {
		t.Errorf("%v does not say ENOENT, or repeats the path", err)
	}
}

// TestReadTrusted: only root's file is obeyed, and that as root alone can have made it.
func TestReadTrusted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.toml")
	wardentest.Write(t, path, "quiet = true\n")
	if text, err := ReadTrusted(path); (err == nil) != (os.Getuid() == 0) || err == nil && string(text) != "quiet = true\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ReadTrusted("/dev/null"); err == nil {
		t.Error("a device was read")
	}
	for _, c := range []struct {
		owner uint32
		mode  fs.FileMode
		want  string
	}{
		{0, 0o644, "<nil>"},
		{0, 0o755, "<nil>"},
		{0, 0o664, "its mode 0664 lets others than root write it"},
		{0, 0o646, "its mode 0646 lets others than root write it"},
		{1000, 0o644, "it belongs to user 1000, not to root"},
		{0, fs.ModeDir | 0o755, "it is not a regular file"},
		{0, fs.ModeNamedPipe | 0o644, "it is not a regular file"},
		{0, fs.ModeDevice | 0o644, "it is not a regular file"},
	} {
		if got := fmt.Sprint(distrust(c.owner, c.mode)); got != c.want {
			t.Errorf("%d %v: %q, want %q", c.owner, c.mode, got, c.want)
		}
	}
}
