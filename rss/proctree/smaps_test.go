package proctree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// record is one mapping as Linux 4.18 prints it.
func record(header string, size, pss int) string {
	return fmt.Sprintf(`%s
Size:             %6d kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:              %6d kB
Pss:              %6d kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:            0 kB
Anonymous:             0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:    2048 kB
Swap:                  8 kB
SwapPss:               8 kB
Locked:                0 kB
VmFlags: rd wr mr mw me ac sd
`, header, size, size, pss)
}

var twoMappings = record("00400000-00452000 r-xp 00000000 fe:00 247278                     /usr/bin/python3", 328, 100) +
	record("7f0000000000-7f0000400000 rw-p 00000000 00:00 0 ", 4096, 4096)

func TestSumSmaps(t *testing.T) {
	name := strings.Repeat(`/data\012Rss: 7 kB Pss:/`, 200) + " (deleted)"
	for _, c := range []struct {
		what, in string
		rss, pss rss.Bytes // in KiB
		err      error
	}{
		{what: "two mappings; no hugetlb page is in Rss", in: twoMappings, rss: 4424, pss: 4196},
		{what: "the name of a file with line feeds, in 5 kB", in: twoMappings + record("7f1000000000-7f1000400000 r--s 00000000 fe:00 7 "+name, 10, 5), rss: 4434, pss: 4201},
		{what: "[vsyscall] at the end", in: twoMappings + record("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]", 0, 0), rss: 4424, pss: 4196},
		{what: "kernel 6.x, more fields and no VmFlags",
			in: "1000-2000 r--p 0 00:00 0 [anon:a: b]\nRss: 4 kB\nPss: 2 kB\nPss_Dirty: 9 kB\nKSM: 0 kB\nTHPeligible:           1\n", rss: 4, pss: 2},
		{what: "no Pss lines", in: strings.ReplaceAll(twoMappings, "Pss:", "Pxx:"), err: errMalformed},
		{what: "one without", in: twoMappings + "8000-9000 r--p 0 00:00 0\nRss: 4 kB\n", err: errMalformed},
		{what: "cut within a line", in: twoMappings[:len(twoMappings)-3], err: errMalformed},
		{what: "cut within a record", in: twoMappings[:strings.LastIndex(twoMappings, "Pss: ")], err: errMalformed},
		{what: "no mapping before", in: "Rss: 4 kB\nPss: 4 kB\n", err: errMalformed},
		{what: "other unit", in: "1000-2000 r\nRss: 4 MB\nPss: 4 kB\n", err: errMalformed},
		{what: "no number", in: "1000-2000 r\nRss: x kB\nPss: 4 kB\n", err: errMalformed},
		{what: "too much", in: "1000-2000 r\nRss: 18446744073709551615 kB\nPss: 4 kB\n", err: errMalformed},
		{what: "no address", in: "1000 r\nRss: 4 kB\nPss: 4 kB\n", err: errMalformed},
		{what: "no mapping: a zombie, a kernel thread", in: "", err: errGone},
	} {
		p, err := sumSmaps(strings.NewReader(c.in))
		if !errors.Is(err, c.err) || p.RSS != c.rss*rss.KiB || p.PSS != c.pss*rss.KiB {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", c.what, p.RSS, p.PSS, err, c.rss*rss.KiB, c.pss*rss.KiB, c.err)
		}
	}
}

// smaps has no Pss_File: it is told from what is mapped, and how much of that is anonymous.
func TestSumSmapsOfFiles(t *testing.T) {
	written := func(header string, size, pss, anon int) string {
		return strings.Replace(record(header, size, pss), "Anonymous:             0 kB", fmt.Sprintf("Anonymous:     %9d kB", anon), 1)
	}
	const pad = "                     "
	in := written("00400000-00452000 r-xp 00000000 fe:00 247278"+pad+"/usr/bin/python3", 328, 100, 0) +
		written("7f0000000000-7f0000400000 rw-p 00000000 00:00 0 ", 4096, 2048, 4096) +
		written("7f0000400000-7f0000500000 rw-p 00000000 fe:00 7"+pad+"/usr/lib/libtorch.so", 1000, 800, 750) +
		written("7f0100000000-7f0200000000 r--s 00000000 fe:00 8"+pad+"/data/train.lmdb", 8000, 2000, 0) +
		written("7f0200000000-7f0300000000 rw-s 00000000 00:19 9"+pad+"/dev/shm/torch_1_2 (deleted)", 500, 250, 0) +
		written("7f0300000000-7f0400000000 rw-s 00000000 00:01 9"+pad+"/memfd:x (deleted)", 500, 250, 0) +
		written("7f0400000000-7f0500000000 rw-p 00000000 00:00 0"+pad+"[heap]", 600, 300, 600)
	p, err := sumSmaps(strings.NewReader(in))
	if err != nil || !p.Split || p.File != (100+200+2000)*rss.KiB || p.Anon != (2048+600+300)*rss.KiB || p.Mapped != (328+250+8000+500+500)*rss.KiB {
		t.Errorf("%+v, %v", p, err)
	}
}

// Two mappings became one between two reads, and the kernel shows it whole.
func TestSumSmapsMerged(t *testing.T) {
	in := record("1000-2000 rw-p 0 00:00 0", 100, 100) + record("4000-5000 rw-p 0 00:00 0", 40, 30) +
		record("4000-9000 rw-p 0 00:00 0", 70, 50) + record("9000-a000 rw-p 0 00:00 0", 1, 1)
	if p, err := sumSmaps(strings.NewReader(in)); err != nil || p.RSS != 171*rss.KiB || p.PSS != 151*rss.KiB || p.Mapped != 171*rss.KiB {
		t.Errorf("%+v, %v; want 171 and 151 KiB", p, err)
	}
}

func TestPSSInPiecesOfATree(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Put(rsstest.Process{PID: 7, Comm: "python", Start: 70})
	tree.Write("proc/7/smaps", twoMappings)
	r := New(tree.Proc)
	id := rss.ProcID{PID: 7, Start: 70}
	p, err := r.PSSInPieces(id)
	if err != nil || p.PSS != 4196*rss.KiB || p.RSS != 4424*rss.KiB || p.Cost == 0 || p.Held == 0 || p.Held > p.Cost {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.PSSInPieces(rss.ProcID{PID: 7, Start: 71}); !Vanished(err) {
		t.Errorf("another process with the PID: %v", err)
	}
	if _, err := r.PSSInPieces(rss.ProcID{PID: 8}); !Vanished(err) || !strings.HasPrefix(err.Error(), "cannot read smaps of process 8: ") {
		t.Errorf("no such process: %v", err)
	}
	if err := os.Chmod(tree.Path("proc/7/smaps"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 { // root may read it
		if _, err := r.PSSInPieces(id); !Denied(err) {
			t.Errorf("denied: %v", err)
		}
	}
}

// failing fails at the nth read, as procfs does when a process may not be read
// any more: access is checked at open(2), so only a test can make it happen.
type failing struct {
	*strings.Reader
	n   int
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, f.err
	}
	return f.Reader.Read(b)
}

func TestSumSmapsErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ESRCH, syscall.EACCES} {
		for n := range 3 {
			err := error(&fs.PathError{Op: "read", Path: "smaps", Err: errno})
			p, err := sumSmaps(&failing{strings.NewReader(twoMappings), n, err})
			if p != (rss.PSS{}) || Vanished(err) != (errno == syscall.ESRCH) || Denied(err) != (errno == syscall.EACCES) {
				t.Errorf("%v at read %d: %+v, %v", errno, n, p, err)
			}
		}
	}
}

// The number of mappings costs no memory.
func TestSumSmapsAllocations(t *testing.T) {
	allocs := func(n int) float64 {
		in := twoMappings + strings.Repeat(record("7f1000000000-7f1000001000 r--p 0 00:00 0 /x", 4, 4), n)
		return testing.AllocsPerRun(3, func() { sumSmaps(strings.NewReader(in)) })
	}
	if few, many := allocs(1), allocs(5000); many > few {
		t.Errorf("%v allocations with 3 mappings, %v with 5002", few, many)
	}
}

// slow is a file of which the first n reads take 20 ms each.
type slow struct {
	*strings.Reader
	n int
}

func (s *slow) Read(b []byte) (int, error) {
	if s.n--; s.n >= 0 {
		for began := threadTime(); threadTime()-began < 20*time.Millisecond; {
		}
	}
	return s.Reader.Read(b)
}

func TestSumSmapsHeld(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if p, err := sumSmaps(&slow{strings.NewReader(twoMappings), 3}); err != nil || p.Held < 20*time.Millisecond || p.Held > 45*time.Millisecond {
		t.Errorf("held %v, %v; three reads took 20 ms each", p.Held, err)
	}
	if p, err := sumSmaps(&slow{strings.NewReader(twoMappings), 0}); err != nil || p.Held > 10*time.Millisecond {
		t.Errorf("held %v, %v; no read took long", p.Held, err)
	}
}

// naive is what smapsSum does, with all of the file at hand.
func naive(in string) (size, pss rss.Bytes, ok bool) {
	if !strings.HasSuffix(in, "\n") {
		return 0, 0, false
	}
	maps, seen := 0, 0
	for line := range strings.Lines(in) {
		var n uint64
		var unit string
		switch words := strings.Fields(line); {
		case len(words) == 0:
			return 0, 0, false
		case words[0] == "Rss:" || words[0] == "Pss:":
			if _, err := fmt.Sscanf(line, words[0]+" %d %s", &n, &unit); err != nil {
				return 0, 0, false
			}
			seen++
			if words[0] == "Rss:" {
				size += rss.Bytes(n) * rss.KiB
			} else {
				pss += rss.Bytes(n) * rss.KiB
			}
		case !strings.HasSuffix(words[0], ":"):
			maps++
		}
	}
	return size, pss, seen == 2*maps
}

func FuzzSmaps(f *testing.F) {
	f.Add([]byte(twoMappings), 7)
	f.Add([]byte("1000-2000 r--p 0 00:00 0 "+strings.Repeat("x", 100)+"\nRss: 4 kB\nPss: 2 kB\n"), 1)
	f.Add([]byte("1000-3000 r\nRss: 4 kB\nPss: 2 kB\n2000-4000 r\nRss: 5 kB\nPss: 3 kB\n"), 64)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		var whole, pieces smapsSum
		whole.add(b)
		for rest := b; len(rest) > 0; {
			k := min(max(n, 1), len(rest))
			pieces.add(rest[:k])
			rest = rest[k:]
		}
		if whole != pieces {
			t.Fatalf("in one %+v, in pieces of %d %+v", whole, n, pieces)
		}
		if !whole.whole() {
			return
		}
		size, pss, ok := naive(string(b))
		if ok && (whole.rss > size || whole.pss > pss) {
			t.Errorf("%v and %v, and all lines have %v and %v", whole.rss, whole.pss, size, pss)
		}
	})
}

// BenchmarkSmaps reads our own smaps in pieces.
func BenchmarkSmaps(b *testing.B) {
	for b.Loop() {
		f, err := os.Open("/proc/self/smaps")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sumSmaps(f); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
