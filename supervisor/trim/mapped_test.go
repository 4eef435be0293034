package trim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// TestMapped: what is mapped shared and read-only from a file, and no other.
func TestMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	m, unmap := mapped(t, path)
	defer unmap()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, how := range [][2]int{{unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED}, {unix.PROT_READ, unix.MAP_PRIVATE}} {
		b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, how[0], how[1])
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(b)
	}
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	self, _ := parseStat(b)
	id := rss.ProcID{PID: os.Getpid(), Start: self.start}
	all, err := Mapped("/proc", id)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(o Mapping) bool { return o.Inode != m.Inode || o.Dev != m.Dev })
	if len(all) != 1 || all[0].Path != path || all[0].Hi-all[0].Lo != 8<<20 || all[0].Resident != 0 {
		t.Errorf("%+v", all)
	}
	id.Start++
	if _, err := Mapped("/proc", id); !errors.Is(err, unix.ESRCH) {
		t.Errorf("of one that has ended: %v", err)
	}
}
