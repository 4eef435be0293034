package nodedir

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestResolve: a path is used only where root or this user owns each directory and each
// link on the way, and what is returned has no links in it.
func TestResolve(t *testing.T) {
	const other = 12345
	for _, c := range []struct {
		name string
		make func(in string) error // makes in/way/dir, which is resolved
		want string                // below in, of the directory that it leads to
		why  string                // it is refused
	}{
		{"directories", func(in string) error { return os.MkdirAll(in+"/way/dir", 0o700) }, "way/dir", ""},
		{"link of ours", func(in string) error {
			return errors.Join(os.MkdirAll(in+"/real/dir", 0o700), os.Symlink("real", in+"/way"))
		}, "real/dir", ""},
		{"link up and round", func(in string) error {
			return errors.Join(os.MkdirAll(in+"/real/dir", 0o700), os.Symlink("./real/../real//dir/..", in+"/way"))
		}, "real/dir", ""},
		{"absolute link", func(in string) error {
			return errors.Join(os.MkdirAll(in+"/way", 0o700), os.Mkdir(in+"/real", 0o700), os.Symlink(in+"/real", in+"/way/dir"))
		}, "real", ""},
		{"in a sticky directory", func(in string) error {
			return errors.Join(os.Mkdir(in+"/way", 0o700), syscall.Chmod(in+"/way", 0o1777), os.Mkdir(in+"/way/dir", 0o700))
		}, "way/dir", ""},
		{"missing", func(in string) error { return os.Mkdir(in+"/way", 0o700) }, "", "no such file"},
		{"a file", func(in string) error {
			return errors.Join(os.Mkdir(in+"/way", 0o700), os.WriteFile(in+"/way/dir", nil, 0o700))
		}, "", "not a directory"},
		{"links in a circle", func(in string) error {
			return errors.Join(os.Mkdir(in+"/way", 0o700), os.Symlink("dir", in+"/way/dir"))
		}, "", "too many levels"},
		{"writable by others", func(in string) error {
			return errors.Join(os.MkdirAll(in+"/way/dir", 0o700), os.Chmod(in+"/way", 0o777))
		}, "", "can be written by others"},
		{"link of another user in a sticky directory", func(in string) error {
			return errors.Join(os.Mkdir(in+"/way", 0o700), syscall.Chmod(in+"/way", 0o1777), os.Mkdir(in+"/real", 0o700),
				os.Symlink("../real", in+"/way/dir"), os.Lchown(in+"/way/dir", other, other))
		}, "", "belongs to another user"},
		{"link of ours through a directory of another user", func(in string) error {
			return errors.Join(os.Mkdir(in+"/way", 0o700), os.MkdirAll(in+"/theirs", 0o755), os.Mkdir(in+"/theirs/real", 0o700),
				os.Symlink("../theirs/real", in+"/way/dir"), os.Chown(in+"/theirs", other, other))
		}, "", "belongs to another user"},
		{"sticky directory of another user", func(in string) error {
			return errors.Join(os.Mkdir(in+"/way", 0o700), os.Mkdir(in+"/way/dir", 0o700), syscall.Chmod(in+"/way", 0o1777), os.Chown(in+"/way", other, other))
		}, "", "belongs to another user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Geteuid() != 0 && strings.Contains(c.name, "another user") {
				t.Skip("only root can give files away")
			}
			in, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.make(in); err != nil {
				t.Fatal(err)
			}
			got, err := Resolve(in + "/way/dir")
			switch {
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
				t.Errorf("resolved to %s, %v; want an error with %q", got, err, c.why)
			case c.why == "" && (err != nil || got != in+"/"+c.want):
				t.Errorf("resolved to %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// TestMakeAll: so many levels are made and no more, and the owner can use them whatever
// the umask is.
func TestMakeAll(t *testing.T) {
	in, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if at, err := MakeAll(in+"/a/b/c", 2, 0o700); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made %s, %v", at, err)
	}
	if _, err := os.Stat(in + "/a"); err == nil {
		t.Error("made a part of what has too many levels")
	}
	defer syscall.Umask(syscall.Umask(0o777))
	if at, err := MakeAll(in+"/a/b/c", math.MaxInt, 0o755); err != nil || at != in+"/a/b/c" {
		t.Errorf("made %s, %v", at, err)
	}
	for _, dir := range []string{"/a", "/a/b", "/a/b/c"} {
		if info, err := os.Stat(in + dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}
