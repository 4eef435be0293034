package proctree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

const mappedText = `400000-500000 r-xp 00000000 08:01 12                         /usr/bin/python3.11
Size:  1024 kB
Rss:    512 kB
Pss:    256 kB
Anonymous: 0 kB
VmFlags: rd ex mr
500000-600000 rw-p 00000000 00:00 0                          [heap]
Size:  1024 kB
Rss:   1024 kB
Pss:   1024 kB
Anonymous: 1024 kB
7f0000000000-7f0040000000 r--s 00000000 08:01 40 /data/train lmdb/data.mdb
Size: 1048576 kB
Rss:  600000 kB
Pss:  300000 kB
Anonymous: 0 kB
7f0040000000-7f0040100000 r--p 00000000 08:01 41 /data/a.arrow
Size: 1024 kB
Rss:   800 kB
Pss:   800 kB
Anonymous: 0 kB
7f0040100000-7f0040200000 rw-p 00100000 08:01 41 /data/a.arrow
Size: 1024 kB
Rss:    80 kB
Pss:    80 kB
Anonymous: 40 kB
7f0040200000-7f0040300000 rw-s 00000000 00:1a 42 /dev/shm/torch_1 (deleted)
Size: 1024 kB
Rss:  1024 kB
Pss:   512 kB
Anonymous: 0 kB
`

func TestMappedFiles(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 7, Start: 70})
	fs.Write("proc/7/smaps", mappedText)
	m, err := New(fs.Proc).MappedFiles(rss.ProcID{PID: 7, Start: 70})
	if err != nil || len(m.Largest) != 3 || m.Partial || m.Cost <= 0 || m.Held <= 0 || len(m.By) != 5 {
		t.Fatalf("%+v, %v", m, err)
	}
	for i, want := range []MappedFile{
		{"/data/train lmdb/data.mdb", false, FileLMDB, true, false, MappedSize{1, rss.GiB, 600000 * rss.KiB, 300000 * rss.KiB, 0}},
		{"/dev/shm/torch_1", true, FileShm, true, true, MappedSize{1, rss.MiB, rss.MiB, rss.MiB / 2, 0}},
		{"/data/a.arrow", false, FileArrow, false, true, MappedSize{2, 2 * rss.MiB, 880 * rss.KiB, 880 * rss.KiB, 40 * rss.KiB}},
	} {
		if m.Largest[i] != want {
			t.Errorf("%+v, want %+v", m.Largest[i], want)
		}
	}
	if got := m.By[MappedKind{FileLibrary, false, false}]; got.RSS != 512*rss.KiB {
		t.Errorf("libraries: %+v", got)
	}
	if shared, private := m.Sum(true), m.Sum(false); shared.RSS != 600000*rss.KiB || private.RSS != 880*rss.KiB || private.Mappings != 2 {
		t.Errorf("shared %+v, private %+v", shared, private)
	}
	if _, err := New(fs.Proc).MappedFiles(rss.ProcID{PID: 7, Start: 71}); !Vanished(err) {
		t.Errorf("another process with the PID: %v", err)
	}
	if _, err := New(fs.Proc).MappedFiles(rss.ProcID{PID: 8}); !Vanished(err) {
		t.Errorf("no process: %v", err)
	}
	for _, in := range []string{"x", mappedText[:len(mappedText)-5], "400000-500000 r-xp\nRss: 4 kB\n", "Rss: 4 kB\nPss: 4 kB\n", "400000-500000 r-xp 0 0 0\nRss: 4 kB\nPss: -\n"} {
		if m, err := sumMapped(strings.NewReader(in)); err == nil {
			t.Errorf("%q: %+v", in, m)
		}
	}
}

// More files than are told apart: the largest are found, and nothing is missing
// in the sums. Two mappings that have merged between two reads are one.
func TestMappedFilesMany(t *testing.T) {
	var b strings.Builder
	const n = 5000
	for i := range n {
		fmt.Fprintf(&b, "%x-%x r--p 0 08:01 %d /data/%d.parquet\nSize: 4 kB\nRss: %d kB\nPss: 0 kB\n", i<<20, i<<20+4096, i, i, i)
	}
	fmt.Fprintf(&b, "%x-%x r--p 0 08:01 1 /data/%d.parquet\nSize: 8 kB\nRss: 9000 kB\nPss: 0 kB\n", (n-1)<<20, n<<20+4096, n-1)
	m, err := sumMapped(strings.NewReader(b.String()))
	if err != nil || !m.Partial || len(m.Largest) != mostLargest || m.Largest[0].RSS != 9000*rss.KiB || m.Largest[1].RSS != (n-2)*rss.KiB {
		t.Fatalf("%+v, %v", m.Largest, err)
	}
	want := rss.Bytes((n-1)*(n-2)/2+9000) * rss.KiB
	if sum := m.Sum(false); sum.Mappings != n || sum.RSS != want {
		t.Errorf("%+v, want %v", sum, want)
	}
}

func TestFileKinds(t *testing.T) {
	for path, want := range map[string]FileKind{
		"/d/data.mdb": FileLMDB, "/d/cache-1.arrow": FileArrow, "/d/x.parquet": FileArrow, "/d/train.bin": FileArray,
		"/usr/lib/libc.so.6": FileLibrary, "/usr/lib/x.cpython-311-x86_64-linux-gnu.so": FileLibrary, "/memfd:a.so": FileShm,
		"/SYSV00000000": FileShm, "/dev/zero": FileShm, "/dev/nvidia0": FileDevice, "/d/m.safetensors": FileWeights,
		"/d/arrow": FileOther, "/d/file": FileOther, "/": FileOther,
	} {
		if got := fileKind(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestMappedFilesOfThisProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data.mdb")
	const size = 4 * rss.MiB
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	m, err := New("/proc").MappedFiles(rss.ProcID{PID: os.Getpid()})
	if err != nil || len(m.Largest) == 0 || m.Largest[0].Path != name || m.Largest[0].RSS != size || !m.Largest[0].Shared || m.Largest[0].Writable {
		t.Errorf("%+v, %v", m, err)
	}
	if p, err := New("/proc").PSSInPieces(rss.ProcID{PID: os.Getpid()}); err == nil && p.RSS < m.Sum(true).RSS {
		t.Errorf("%v of %v", m.Sum(true), p.RSS)
	}
}

func FuzzMapped(f *testing.F) {
	f.Add([]byte(mappedText), 7)
	f.Add([]byte("1000-3000 r--p 0 0 1 /a\nRss: 4 kB\nPss: 2 kB\n2000-4000 r--s 0 0 1 /a (deleted)\nRss: 5 kB\nPss: 3 kB\n"), 64)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		whole, pieces := newMappedSum(), newMappedSum()
		whole.add(b)
		for rest := b; len(rest) > 0; {
			k := min(max(n, 1), len(rest))
			pieces.add(rest[:k])
			rest = rest[k:]
		}
		one, ok := whole.result()
		other, ok2 := pieces.result()
		if ok != ok2 || ok && (one.Sum(true) != other.Sum(true) || one.Sum(false) != other.Sum(false) || len(one.Largest) != len(other.Largest)) {
			t.Fatalf("in one %+v, in pieces of %d %+v", one, n, other)
		}
		if len(one.Largest) > mostLargest || len(whole.files) > mostFiles {
			t.Errorf("%d of %d files", len(one.Largest), len(whole.files))
		}
	})
}
