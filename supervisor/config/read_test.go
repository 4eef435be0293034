package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat("#", size)), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if text, err := Read(write("largest", MaxSize)); err != nil || len(text) != MaxSize {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := Read(write("larger", MaxSize+1)); err == nil || err.Error() != "longer than 64 KiB" {
		t.Error(err)
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

func TestReadTrusted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.toml")
	if err := os.WriteFile(path, []byte("quiet = true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := ReadTrusted(path)
	var bad *UntrustedError
	if os.Getuid() == 0 {
		if err != nil || string(text) != "quiet = true\n" {
			t.Errorf("%q, %v", text, err)
		}
	} else if !errors.As(err, &bad) || len(text) > 0 {
		t.Errorf("the file of a plain user was obeyed: %q, %v", text, err)
	}
	if _, err := ReadTrusted("/dev/null"); !errors.As(err, &bad) {
		t.Error(err)
	}
}

func TestDistrust(t *testing.T) {
	for _, c := range []struct {
		owner int
		mode  fs.FileMode
		want  string
	}{
		{0, 0o644, ""},
		{0, 0o600, ""},
		{0, 0o755, ""},
		{0, 0o664, "its mode 0664 lets others than root write it"},
		{0, 0o646, "its mode 0646 lets others than root write it"},
		{1000, 0o644, "it belongs to user 1000, not to root"},
		{-1, 0o644, "it belongs to user -1, not to root"},
		{0, fs.ModeDir | 0o755, "it is not a regular file"},
		{0, fs.ModeNamedPipe | 0o644, "it is not a regular file"},
		{0, fs.ModeDevice | 0o644, "it is not a regular file"},
	} {
		if got := distrust(c.owner, c.mode); got != c.want {
			t.Errorf("%d %v: %q, want %q", c.owner, c.mode, got, c.want)
		}
	}
}
