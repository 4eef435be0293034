package supervisor

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestStalledTells: the kernel says that a process waits for memory, here one
// that writes a file greater than what its cgroup may hold.
func TestStalledTells(t *testing.T) {
	n, err := newStalled("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if n == nil {
		t.Skip("needs pressure stall information: /proc/pressure/memory cannot be asked here")
	}
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
	case <-n.woken():
	case <-time.After(time.Minute):
		t.Error("not told of stalls")
	}
	close(stop)
	<-done
}

func TestNoStallInformation(t *testing.T) {
	fs := rsstest.Empty(t)
	if n, err := newStalled(fs.Proc); n != nil || err != nil {
		t.Errorf("%v, %v without /proc/pressure", n, err)
	}
	fs.Write("proc/pressure/memory", "") // takes the words, tells nothing
	n, err := newStalled(fs.Proc)
	if n == nil || err != nil {
		t.Fatalf("%v, %v", n, err)
	}
	select {
	case <-n.woken():
		t.Error("woken by a plain file")
	case <-time.After(50 * time.Millisecond):
	}
}
