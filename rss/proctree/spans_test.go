package proctree

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// TestSpans: an LMDB's map is longer than its file, and only the file counts.
func TestSpans(t *testing.T) {
	dir := t.TempDir()
	before, err := New("/proc").Spans(rss.ProcID{PID: os.Getpid()})
	must(t, err)
	if before.Code == 0 {
		t.Error("the program itself is no code")
	}
	f, err := os.Create(filepath.Join(dir, "data.mdb"))
	must(t, err)
	defer f.Close()
	const size, mapped = 8 << 20, 64 << 20
	must(t, f.Truncate(size))
	var want rss.Bytes = size
	if onTmpfs(t, dir) {
		want = 0
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, mapped, syscall.PROT_READ, syscall.MAP_SHARED)
	must(t, err)
	defer syscall.Munmap(b)
	after, err := New("/proc").Spans(rss.ProcID{PID: os.Getpid()})
	if err != nil || after.Data-before.Data != want || after.Code != before.Code {
		t.Errorf("%+v before, %+v after, %v; want %v more of data", before, after, err, want)
	}
	if _, err := New("/proc").Spans(rss.ProcID{PID: os.Getpid(), Start: 1}); err == nil {
		t.Error("another process with that PID is read")
	}
}

func onTmpfs(t *testing.T, dir string) bool {
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(dir, &fs))
	return fs.Type == 0x01021994
}

func TestOnDisk(t *testing.T) {
	for line, want := range map[string]bool{
		"7f00000000-7f00400000 r--s 00100000 fe:00 247278                     /data/my train.mdb": true,
		"00400000-00452000 r-xp 00000000 fe:00 12                     /usr/bin/python3":           true,
		"7f00000000-7f00400000 rw-p 00000000 00:00 0 ":                                            false,
		"7f00000000-7f00400000 rw-p 00000000 00:00 0                          [heap]":             false,
		"7f00000000-7f00400000 rw-s 00000000 00:01 7                          /dev/shm/torch_1":   false,
		"7f00000000-7f00400000 rw-s 00000000 00:01 7                          /memfd:x (deleted)": false,
	} {
		if m, ok := procfile.ParseMapping([]byte(line)); !ok || onDisk(&m) != want {
			t.Errorf("%q: %+v, %v", line, m, ok)
		}
	}
}
