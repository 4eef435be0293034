package proctree

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// What mlock(2) locks shows as Locked, and pins nothing.
func TestLockedOfThisProcess(t *testing.T) {
	const size = rss.MiB / 4 // of the 8 MiB that RLIMIT_MEMLOCK is as a rule, 64 KiB before Linux 5.16
	r := New("/proc")
	defer r.Close()
	before, err := r.One(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := unix.Mlock(b); err != nil {
		t.Skip("cannot lock memory: ", err)
	}
	after, err := r.One(os.Getpid())
	if err != nil || after.Locked != before.Locked+size || after.Pinned != before.Pinned {
		t.Errorf("locked %v and pinned %v, then %v and %v, %v", before.Locked, before.Pinned, after.Locked, after.Pinned, err)
	}
}
