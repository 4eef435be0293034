package main

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// TestLogSteersNoTerminal: directories below a step may be its user's, and their names
// stand in what cannot be read of them.
func TestLogSteersNoTerminal(t *testing.T) {
	var b bytes.Buffer
	d := newDaemon(settings{node: "n1"}, slog.New(slog.NewTextHandler(&b, nil)))
	d.complain("files of jobs cannot be read", &fs.PathError{Op: "open", Path: "/sys/fs/cgroup/job_7/step_0/" + recordtest.Hostile, Err: unix.EACCES})
	if bad := recordtest.Shows(b.String()); len(bad) > 0 || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "job_7") {
		t.Errorf("nothing is told: %q", b.String())
	}
}

// TestTextfileFollowsNothing: links and pipes that others have put into the directory are
// replaced, not followed, and what was behind them stays.
func TestTextfileFollowsNothing(t *testing.T) {
	for what, plant := range map[string]func(path, victim string) error{
		"a link":      func(path, victim string) error { return os.Symlink(victim, path) },
		"a hard link": func(path, victim string) error { return os.Link(victim, path) },
		"a pipe":      func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
	} {
		dir := t.TempDir()
		victim := filepath.Join(dir, "victim")
		if err := os.WriteFile(victim, []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &promfile{dir: dir}
		if err := plant(f.name(), victim); err != nil {
			t.Fatal(err)
		}
		if err := f.write(&view{Snapshot: scene()}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if b, err := os.ReadFile(victim); err != nil || string(b) != "root's" {
			t.Errorf("%s: behind it is %q, %v", what, b, err)
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(victim, &st); err != nil || st.Mode&0o777 != 0o600 {
			t.Errorf("%s: its mode is %o, %v", what, st.Mode, err)
		}
		if info, err := os.Lstat(f.name()); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: the file is %v, %v", what, info.Mode(), err)
		}
		f.remove()
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
			t.Errorf("%s: %q are left", what, left)
		}
	}
}
