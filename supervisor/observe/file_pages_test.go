package observe

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestFilePages: what a process has mapped of a file bounds its pages of files, for another
// that was not read yet as well; nothing is read in the first
// minute while the limit is far.
func TestFilePages(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "data.mdb"))
	wardentest.NoError(t, err)
	defer file.Close()
	const size = 300 * rss.MiB
	wardentest.NoError(t, file.Truncate(int64(size)))
	b, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	wardentest.NoError(t, err)
	defer syscall.Munmap(b)
	start, err := proctree.StartTime("/proc", os.Getpid())
	wardentest.NoError(t, err)
	f := NewFilePages("/proc")
	procs := []rss.Proc{{ID: rss.ProcID{PID: os.Getpid(), Start: start}, File: 20 * rss.MiB}, {ID: rss.ProcID{PID: 1 << 22, Start: 1}, File: 10 * rss.MiB}, {File: rss.MiB}}
	at := func(now time.Duration, used rss.Bytes) {
		f.Update(now, []event.Limit{{Accounting: event.AccountingRSS, UsedMax: used, Limit: rss.GiB}}, procs)
	}
	at(0, 300*rss.MiB)
	if f.Busy() {
		t.Error("it is read although less than two fifths are used")
	}
	at(time.Second, 500*rss.MiB)
	if !f.Wait(10 * time.Second) {
		t.Fatal("it is not read")
	}
	at(2*time.Second, 500*rss.MiB)
	if got := procs[0].FileMost; got < size || got > size+100*rss.MiB {
		t.Errorf("%v at most, want %v and some code", got, size)
	}
	if procs[1].FileMost != procs[0].FileMost || procs[2].FileMost != rss.MiB {
		t.Errorf("%v for one that could not be read, %v for a small one; want %v, %v", procs[1].FileMost, procs[2].FileMost, procs[0].FileMost, rss.MiB)
	}
	f = NewFilePages("/proc")
	if at(spansSoon, 300*rss.MiB); !f.Busy() {
		t.Error("it is not read after a minute, for what the whole job needs")
	}
	f.Wait(10 * time.Second)
}
