package wake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// instances counts the inotify instances of this process.
func instances(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	wardentest.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

// yields waits until the bell has rung for these causes.
func yields(t *testing.T, b *Bell, why Cause) {
	t.Helper()
	for end := time.After(10 * time.Second); why != 0; {
		select {
		case <-b.C():
			why &^= b.Causes()
		case <-end:
			t.Fatalf("not rung for %b", why)
		}
	}
}

const changes = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_MODIFY

// TestWatch: the bell rings for each cause alone; what comes while nothing waits for it is
// not forgotten, and what cannot be watched is an error.
func TestWatch(t *testing.T) {
	b := New()
	dirs := []string{t.TempDir(), t.TempDir()}
	for i, dir := range dirs {
		wardentest.NoError(t, b.Watch(1<<i, changes, dir))
	}
	from := t.TempDir()
	write := func(dir, name string) {
		t.Helper()
		file := filepath.Join(from, "file")
		wardentest.NoError(t, errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Rename(file, filepath.Join(dir, name))))
	}
	for n := range 3 {
		for i, dir := range dirs {
			write(dir, fmt.Sprint("hello.", n))
			select {
			case <-b.C():
				if why := b.Causes(); why != 1<<i {
					t.Errorf("rung for %b, want %b", why, 1<<i)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("not rung for a new file")
			}
		}
	}
	for i := range 100 {
		write(dirs[i%2], fmt.Sprint("log.", i))
	}
	yields(t, b, 3)
	if err := b.Watch(1, changes, filepath.Join(from, "none")); err == nil {
		t.Error("watches a directory that is not there")
	}
	if err := New().Watch(1, changes, filepath.Join(from, "none")); err == nil {
		t.Error("watches nothing but a directory that is not there")
	}
}

// TestOnePathTwoCauses: a path that is watched for two causes rings for both.
func TestOnePathTwoCauses(t *testing.T) {
	b, dir := New(), t.TempDir()
	for i, mask := range []uint32{unix.IN_CREATE, unix.IN_DELETE} {
		wardentest.NoError(t, b.Watch(1<<i, mask, dir))
	}
	file := filepath.Join(dir, "file")
	wardentest.NoError(t, os.WriteFile(file, nil, 0o600))
	yields(t, b, 3)
	wardentest.NoError(t, os.Remove(file))
	yields(t, b, 3)
}

// TestOverflow: where the kernel has left events out, and where they cannot be read, the
// bell rings for all that is watched.
func TestOverflow(t *testing.T) {
	overflow := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(overflow, ^uint32(0))
	binary.NativeEndian.PutUint32(overflow[4:], unix.IN_Q_OVERFLOW)
	b := New()
	b.watched[1], b.watched[2] = 1, 4
	if why, over := b.heard(overflow, nil); why != 5 || over {
		t.Errorf("overflow: %b, over %v", why, over)
	}
	if why, over := b.heard(nil, os.ErrClosed); why != 5 || !over || len(b.watched) > 0 {
		t.Errorf("error: %b, over %v", why, over)
	}
}

// TestWatchEnds: the bell rings for a file as long as that is there, costs the user none of
// the few instances once nothing is left, and has one again for what comes later.
func TestWatchEnds(t *testing.T) {
	before := instances(t)
	b := New()
	one, two := t.TempDir(), t.TempDir()
	for i, dir := range []string{one, two} {
		wardentest.NoError(t, b.Watch(1<<i, changes, dir))
	}
	if n := instances(t); n != before+1 {
		t.Errorf("%d instances, %d before", n, before)
	}
	wardentest.NoError(t, os.Remove(one))
	yields(t, b, 1)
	wardentest.NoError(t, os.WriteFile(filepath.Join(two, "file"), nil, 0o600))
	yields(t, b, 2)
	wardentest.NoError(t, os.RemoveAll(two))
	for end := time.Now().Add(10 * time.Second); instances(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d inotify instances, %d before", instances(t), before)
		}
	}
	three := t.TempDir()
	wardentest.NoError(t, b.Watch(4, changes, three))
	wardentest.NoError(t, os.WriteFile(filepath.Join(three, "file"), nil, 0o600))
	yields(t, b, 4)
}

// TestStalledTells: the kernel says that a process waits for memory.
func TestStalledTells(t *testing.T) {
	if f, err := os.OpenFile("/proc/pressure/memory", os.O_RDWR, 0); err != nil {
		t.Skip("needs pressure stall information: ", err)
	} else {
		f.Close()
	}
	b := New()
	wardentest.NoError(t, b.Stalls(2, "/proc"))
	rsstest.Stall(t)
	select {
	case <-b.C():
		if why := b.Causes(); why != 2 {
			t.Errorf("rung for %b", why)
		}
	case <-time.After(time.Minute):
		t.Error("not told of stalls")
	}
}

func TestNoStallInformation(t *testing.T) {
	fs := rsstest.Empty(t)
	b := New()
	if err := b.Stalls(1, fs.Proc); err != nil {
		t.Errorf("%v without /proc/pressure", err)
	}
	fs.Write("proc/pressure/memory", "") // takes the words, tells nothing
	wardentest.NoError(t, b.Stalls(1, fs.Proc))
	select {
	case <-b.C():
		t.Error("woken by a plain file")
	case <-time.After(50 * time.Millisecond):
	}
}

// TestNoLeaveToAskForStalls: older kernels let only root ask. That is no fault, as
// nothing rests on the answer.
//
// C9: no permission to set a trigger.
func TestNoLeaveToAskForStalls(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Write("proc/pressure/memory", "some avg10=0.00\n")
	wardentest.NoError(t, os.Chmod(fs.Path("proc/pressure/memory"), 0o444))
	// testing makes its directory for its own user alone.
	for _, dir := range []string{filepath.Dir(fs.Dir), fs.Dir} {
		wardentest.NoError(t, os.Chmod(dir, 0o755))
	}
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		wardentest.NoError(t, unix.Setfsuid(65534))
		defer func() { _ = unix.Setfsuid(0) }()
	}
	if err := New().Stalls(1, fs.Proc); err != nil {
		t.Errorf("%v where it may only be read", err)
	}
}

// TestLater: until the bell listens it costs no instance, and then it rings for what may have
// happened before, and for what happens afterwards. What cannot be watched is an error then.
func TestLater(t *testing.T) {
	before, dir := instances(t), t.TempDir()
	b := New()
	b.Later()
	wardentest.NoError(t, errors.Join(b.Watch(1, changes, dir), b.Stalls(2, "/proc")))
	if n := instances(t); n != before || !b.Quiet() {
		t.Errorf("%d instances, %d before, quiet %v", n, before, b.Quiet())
	}
	wardentest.NoError(t, b.Listen())
	if n := instances(t); n != before+1 || b.Quiet() {
		t.Errorf("%d instances once it listens, %d before, quiet %v", n, before, b.Quiet())
	}
	yields(t, b, 1)
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	yields(t, b, 1)
	b = New()
	b.Later()
	wardentest.NoError(t, b.Watch(1, changes, filepath.Join(dir, "none")))
	if err := b.Listen(); err == nil {
		t.Error("watches a directory that is not there")
	}
}
