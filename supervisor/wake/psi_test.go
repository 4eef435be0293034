package wake

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestStalledTells: the kernel says that a process waits for memory, here one
// that writes a file greater than what its cgroup may hold.
func TestStalledTells(t *testing.T) {
	if f, err := os.OpenFile("/proc/pressure/memory", os.O_RDWR, 0); err != nil {
		t.Skip("needs pressure stall information: ", err)
	} else {
		f.Close()
	}
	b := New()
	wardentest.NoError(t, b.Stalls(2, "/proc"))
	g := rsstest.NewGroup(t, 16*rss.MiB)
	e := rsstest.StartEater(t)
	g.Join(e.PID)
	dir := t.TempDir()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				e.File(64*rss.MiB, filepath.Join(dir, "file"))
			}
		}
	}()
	select {
	case <-b.C():
		if why := b.Causes(); why != 2 {
			t.Errorf("rung for %b", why)
		}
	case <-time.After(time.Minute):
		t.Error("not told of stalls")
	}
	close(stop)
	<-done
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
