package procfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(name, []byte(strings.Repeat("x", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int{10: 10, 999: 999, 1000: 1000, 1001: 1000} {
		if b, err := procfile.Read(name, most); err != nil || len(b) != want {
			t.Errorf("at most %d: %d bytes, %v; want %d", most, len(b), err, want)
		}
	}
	if b, err := procfile.Read("/dev/zero", procfile.Small); err != nil || len(b) != procfile.Small {
		t.Errorf("of a file without end: %d bytes, %v", len(b), err)
	}
	if _, err := procfile.Read(name+".none", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of none: %v", err)
	}
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]procfile.Mapping{
		"7f0000001000-7f0000003000 r--s 00004000 00:1a 4711                       /data/my train.mdb (deleted)": {
			Start: 0x7f0000001000, End: 0x7f0000003000, Offset: 0x4000, Perms: [4]byte([]byte("r--s")), Dev: unix.Mkdev(0, 0x1a), Inode: 4711, Path: []byte("/data/my train.mdb (deleted)"),
		},
		"1000-1000 rw-p 0 00:00 0": {Start: 0x1000, End: 0x1000, Perms: [4]byte([]byte("rw-p"))},
	} {
		m, ok := procfile.ParseMapping([]byte(line))
		if path := m.Path; !ok || m.Start != want.Start || m.End != want.End || m.Offset != want.Offset || m.Perms != want.Perms ||
			m.Dev != want.Dev || m.Inode != want.Inode || !bytes.Equal(path, want.Path) {
			t.Errorf("%q: %+v, %v", line, m, ok)
		}
	}
	for _, line := range []string{
		"", "1000", "1000-2000", "1000-2000 r-xp", "2000-1000 r-xp 0 00:00 0", "x-y r-xp 0 00:00 0", "1000-2000 r-x 0 00:00 0",
		"1000-2000 r-xpp 0 00:00 0", "1000-2000 r-xp g 00:00 0", "1000-2000 r-xp 0 0000 0", "1000-2000 r-xp 0 00:00  /x",
	} {
		if m, ok := procfile.ParseMapping([]byte(line)); ok {
			t.Errorf("%q: %+v", line, m)
		}
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add([]byte("7f0000001000-7f0000003000 rw-s 00004000 00:1a 4711                       /dev/shm/torch_1 (deleted)"))
	f.Add([]byte("1-2 r--s 0 0:0 1 /memfd:x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := procfile.ParseMapping(b); ok && (m.Start > m.End || !bytes.HasSuffix(b, m.Path)) {
			t.Errorf("%+v from %q", m, b)
		}
	})
}
