package trim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// dropFile is a clean file of 8 MiB, all of it in the page cache, as a mapping
// of it is shown.
func dropFile(t *testing.T) Mapping {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	if _, err := f.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	must(t, f.Sync())
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a file of tmpfs cannot leave the page cache")
	}
	if _, ok := cached(f); !ok {
		t.Skip("the kernel has no cachestat")
	}
	m, unmap := mapped(t, path)
	unmap()
	return m
}

// mapped maps a file and touches all of it.
func mapped(t *testing.T, path string) (m Mapping, unmap func()) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	must(t, err)
	pieces, err := piecesOf(os.Getpid(), path)
	must(t, err)
	return Mapping{Path: path, Dev: pieces[0].Dev, Inode: pieces[0].Inode}, func() { _ = unix.Munmap(b) }
}

func (m Mapping) drop() (Dropped, error) { return Drop("/proc", os.Getpid(), m.Path, m.Dev, m.Inode) }

func TestDrop(t *testing.T) {
	m := dropFile(t)
	_, unmap := mapped(t, m.Path)
	if d, err := m.drop(); err != nil || d != (Dropped{Before: 8 * rss.MiB, After: 8 * rss.MiB, Measured: true}) {
		t.Errorf("of what is mapped: %+v, %v", d, err)
	}
	unmap()
	if d, err := m.drop(); err != nil || d != (Dropped{Before: 8 * rss.MiB, Measured: true}) {
		t.Errorf("of an unmapped file: %+v, %v", d, err)
	}
	// Nothing was lost.
	if b, err := os.ReadFile(m.Path); err != nil || len(b) != 8<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// What has taken the file's name meanwhile is not touched.
func TestDropOther(t *testing.T) {
	m := dropFile(t)
	for name, c := range map[string]struct {
		put  func(path string) error
		want error
	}{
		"gone":   {func(string) error { return nil }, unix.ENOENT},
		"a file": {func(path string) error { return os.WriteFile(path, []byte("other"), 0o600) }, errOther},
		"a FIFO": {func(path string) error { return unix.Mkfifo(path, 0o600) }, errOther},
	} {
		t.Run(name, func(t *testing.T) {
			// It stays under another name, or its inode would be given away.
			must(t, os.Rename(m.Path, m.Path+".old"))
			defer os.Rename(m.Path+".old", m.Path)
			must(t, c.put(m.Path))
			_, err := m.drop()
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "cannot drop "+m.Path+": ") {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// The process may have ended by then.
func TestDropOfEnded(t *testing.T) {
	m := dropFile(t)
	if d, err := Drop(t.TempDir(), 1, m.Path, m.Dev, m.Inode); err != nil || d.Before.Sub(d.After) != 8*rss.MiB {
		t.Errorf("%+v, %v", d, err)
	}
}
