package nodedir_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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
			wardentest.NoError(t, err)
			wardentest.NoError(t, c.make(in))
			got, err := nodedir.Resolve(in + "/way/dir")
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
	wardentest.NoError(t, err)
	if at, err := nodedir.MakeAll(in+"/a/b/c", 2, 0o700); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made %s, %v", at, err)
	}
	if _, err := os.Stat(in + "/a"); err == nil {
		t.Error("made a part of what has too many levels")
	}
	defer syscall.Umask(syscall.Umask(0o777))
	if at, err := nodedir.MakeAll(in+"/a/b/c", math.MaxInt, 0o755); err != nil || at != in+"/a/b/c" {
		t.Errorf("made %s, %v", at, err)
	}
	for _, dir := range []string{"/a", "/a/b", "/a/b/c"} {
		if info, err := os.Stat(in + dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

func TestProcFile(t *testing.T) {
	id := rss.ProcID{PID: 4194304, Start: 18446744073709551615}
	name := nodedir.FileOf("rank", id)
	if name != "rank.4194304.18446744073709551615" {
		t.Errorf("named %q", name)
	}
	if got, ok := nodedir.ProcOf(name, "rank"); !ok || got != id {
		t.Errorf("read %v, %v", got, ok)
	}
	for _, other := range []string{
		"", "rank", "rank.", "rank.1", "rank.1.", "rank..2", "rank.0.2", "rank.-1.2", "rank.+1.2", "rank.01.2", "rank.1.02",
		"rank.1.2.3", "rank.1.2.tmp", "rank.1.-2", "rank.4294967297.2", "rank.1.18446744073709551616", "order.1.2", "ranks.1.2", "rank.1.2\n",
	} {
		if got, ok := nodedir.ProcOf(other, "rank"); ok || got != (rss.ProcID{}) {
			t.Errorf("%q is of %v", other, got)
		}
	}
}

// TestUnserved finds paths that cross a mount of a file server or of a file system in user
// space, by name or by a link.
func TestUnserved(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	wardentest.NoError(t, err)
	for _, name := range []string{"disk/deep", "home/user", "with space"} {
		wardentest.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for name, to := range map[string]string{"link": dir + "/home/user", "disk/up": "../home", "disk/round": "round"} {
		wardentest.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	info := "22 1 0:21 / / rw - nfs4 server:/root rw\n" +
		"23 22 8:1 / " + dir + "/disk rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
		"24 22 0:40 / " + dir + "/home rw master:3 - fuse.sshfs host: rw\n" +
		"25 22 0:41 / " + dir + `/with\040space rw - lustre mgs:/fs rw` + "\n"
	for path, want := range map[string]bool{
		dir: true, dir + "/disk": true, dir + "/disk/deep/not/there": true, dir + "/other": true, dir + "/homeless": true,
		dir + "/home": false, dir + "/home/user/.cache": false, dir + "/link/.cache": false, dir + "/disk/up/user": false,
		dir + "/with space/a": false, dir + "/disk/round": false, "relative": false,
	} {
		if got := nodedir.Unserved([]byte(info), path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	for _, broken := range []string{"", "22 1 0:21 / / rw ext4\n"} {
		if nodedir.Unserved([]byte(broken), dir) {
			t.Errorf("%q says that nothing is served", broken)
		}
	}
}

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
