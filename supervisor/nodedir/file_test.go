package nodedir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestWriteRenamed: a file is written whole or not at all, below a descriptor as well, and
// nothing that lies in the way is written through, waited for or left.
func TestWriteRenamed(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for what, plant := range map[string]func(part string) error{
		"nothing":            func(string) error { return nil },
		"a file":             func(part string) error { return os.WriteFile(part, []byte("half"), 0o600) },
		"a link":             func(part string) error { return os.Symlink(elsewhere, part) },
		"a pipe":             func(part string) error { return unix.Mkfifo(part, 0o600) },
		"an empty directory": func(part string) error { return os.Mkdir(part, 0o700) },
	} {
		t.Run(what, func(t *testing.T) {
			dir, err := os.Open(t.TempDir())
			wardentest.NoError(t, err)
			defer dir.Close()
			path := filepath.Join(dir.Name(), "file")
			holds := func(want string) {
				t.Helper()
				b, err := os.ReadFile(path)
				entries, _ := os.ReadDir(dir.Name())
				if err != nil || string(b) != want || len(entries) != 1 {
					t.Errorf("%q, %v, beside it %v, want %q alone", b, err, entries, want)
				}
			}
			for _, at := range []struct {
				fd         int
				part, path string
			}{{unix.AT_FDCWD, path + ".tmp", path}, {int(dir.Fd()), "file.tmp", "file"}} {
				wardentest.NoError(t, plant(path+".tmp"))
				err := nodedir.WriteRenamed(at.fd, at.part, at.path, 0o600, func(f *os.File) error {
					_, err := f.WriteString("whole")
					return err
				})
				if info, _ := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%v, %v", err, info)
				}
				holds("whole")
				full := errors.New("no room")
				if err := nodedir.WriteRenamed(at.fd, at.part, at.path, 0o600, func(f *os.File) error {
					_, _ = f.WriteString("ha")
					return full
				}); !errors.Is(err, full) {
					t.Errorf("a write that fails: %v", err)
				}
				holds("whole")
			}
			if _, err := os.Lstat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the link was followed: %v", err)
			}
		})
	}
	none := filepath.Join(t.TempDir(), "none", "file")
	err := nodedir.WriteRenamed(unix.AT_FDCWD, none+".tmp", none, 0o600, func(*os.File) error { return nil })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestWithoutPath: an error without its path still is what it was, and what is there opens.
func TestWithoutPath(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	_, open := nodedir.OpenPath(none)
	for _, err := range []error{open, os.Rename(none, dir), fs.ErrNotExist} {
		if got := nodedir.WithoutPath(err); !errors.Is(got, fs.ErrNotExist) || strings.Contains(got.Error(), none) {
			t.Errorf("%v of %v", got, err)
		}
	}
	f, err := nodedir.OpenPath(dir)
	wardentest.NoError(t, err)
	defer f.Close()
	if entries, err := os.ReadDir(nodedir.FDPath(f)); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
