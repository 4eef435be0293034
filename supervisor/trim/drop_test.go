package trim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
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

// memoryGroup is a memory cgroup of the test's own, on cgroup v1.
type memoryGroup struct {
	rsstest.Group
	t    *testing.T
	home string // the test's
}

func newMemoryGroup(t *testing.T) memoryGroup {
	t.Helper()
	g := memoryGroup{Group: rsstest.NewGroup(t, rss.TiB), t: t}
	if g.Version != 1 {
		t.Skip("no cgroup v1 with a memory controller")
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if _, path, ok := strings.Cut(line, ":memory:"); ok {
			g.home = filepath.Join("/sys/fs/cgroup/memory", strings.TrimSpace(path))
		}
	}
	return g
}

// inside has whatever start starts begin in the cgroup: v1 moves single threads,
// and a child is where its parent's thread is.
func (g memoryGroup) inside(start func()) {
	g.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	move := func(dir string) {
		must(g.t, os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0))
	}
	move(g.Dir)
	defer move(g.home)
	start()
}

// charge is what the cgroup is charged for, and what of it is mapped from files.
func (g memoryGroup) charge() (usage, mapped rss.Bytes) {
	g.t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(g.Dir, name))
		must(g.t, err)
		return strings.TrimSpace(string(b))
	}
	n, err := strconv.ParseUint(read("memory.usage_in_bytes"), 10, 64)
	must(g.t, err)
	_, rest, _ := strings.Cut(read("memory.stat"), "\ntotal_mapped_file ")
	if _, err := fmt.Sscan(rest, &mapped); err != nil {
		g.t.Fatal(err)
	}
	return rss.Bytes(n), mapped
}

// TestCharge: what a cgroup is charged for falls when all that map a file were
// trimmed and it was dropped, and by nothing less.
func TestCharge(t *testing.T) {
	const size = 256 * rss.MiB
	g := newMemoryGroup(t)
	data := dataFile(t, int(size))
	var fs unix.Statfs_t
	if err := unix.Statfs(data, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a file of tmpfs cannot leave the page cache")
	}
	f, err := os.Open(data)
	must(t, err)
	defer f.Close()
	inCache := func() rss.Bytes {
		n, ok := cached(f)
		if !ok {
			t.Skip("the kernel has no cachestat")
		}
		return n
	}
	// It was written from outside, and is charged there.
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil || inCache() > size/32 {
		t.Fatalf("%v of it are in the page cache: %v", inCache(), err)
	}
	var both [2]*tracee
	g.inside(func() {
		for i := range both {
			both[i] = startReaders(t, int(size), 0, 0, "futex", -1, false)
		}
	})

	// The statistics of a cgroup come within seconds.
	stands := func(when string, usage, mapped [2]rss.Bytes) {
		t.Helper()
		var u, m rss.Bytes
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			u, m = g.charge()
			if u >= usage[0] && u < usage[1] && m >= mapped[0] && m < mapped[1] {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: want a charge within %v and mapped files within %v", when, usage, mapped)
				break
			}
		}
		t.Logf("%-26s charge %v, mapped from files %v, the file in the page cache %v", when, u, m, inCache())
	}
	whole, none := [2]rss.Bytes{size, size + 64*rss.MiB}, [2]rss.Bytes{0, 16 * rss.MiB}
	stands("both mapped", whole, whole)
	if _, err := Drop("/proc", both[0].pid, data, dev(both[0]), both[0].pieces()[0].Inode); err != nil {
		t.Fatal(err)
	}
	stands("dropped while mapped", whole, whole)
	tr, y := newTracer(t), tally{}
	y.all(t, tr, both[0].pieces())
	stands("the first trimmed", whole, whole)
	y.all(t, tr, both[1].pieces())
	stands("both trimmed", whole, none)
	d, err := Drop("/proc", both[0].pid, data, dev(both[0]), both[0].pieces()[0].Inode)
	if err != nil || !d.Measured || d.Before != size || d.After > size/32 || inCache() > size/32 {
		t.Errorf("%+v, %v", d, err)
	}
	stands("both trimmed and dropped", [2]rss.Bytes{0, 32 * rss.MiB}, none)
	t.Log(&y)
	for _, p := range both {
		neverWoken(t, p)
	}
}

// dev is the device of the data file as its mappings show it.
func dev(p *tracee) uint64 { return p.pieces()[0].Dev }
