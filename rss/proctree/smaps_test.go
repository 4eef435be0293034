package proctree

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

//go:embed testdata/smaps_rollup
var rollupText string

//go:embed testdata/smaps
var mappedText string

// recordText is one mapping as Linux 4.18 prints it.
//
//go:embed testdata/smaps_record
var recordText string

func record(header string, size, pss int) string {
	return fmt.Sprintf(recordText, header, size, size, pss)
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

// TestSumSmapsOfFiles: smaps has no Pss_File; it follows from the mappings and their
// anonymous parts.
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
	must(t, os.Chmod(tree.Path("proc/7/smaps"), 0))
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
		for began := procfile.ThreadTime(); procfile.ThreadTime()-began < 20*time.Millisecond; {
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

// chunked gives out at most n bytes at a time.
type chunked struct {
	*strings.Reader
	n int
}

func (c chunked) Read(b []byte) (int, error) { return c.Reader.Read(b[:min(max(c.n, 1), len(b))]) }

// FuzzSmaps: it does not matter in which pieces the file comes, and no more is added up than
// all lines have.
func FuzzSmaps(f *testing.F) {
	f.Add(twoMappings, 7)
	f.Add(mappedText, 7)
	f.Add("1000-2000 r--p 0 00:00 0 "+strings.Repeat("x", 100)+"\nRss: 4 kB\nPss: 2 kB\n", 1)
	f.Add("1000-3000 r--p 0 00:00 1 /a\nRss: 4 kB\nPss: 2 kB\n2000-4000 r--s 0 00:00 1 /a (deleted)\nRss: 5 kB\nPss: 3 kB\n", 64)
	f.Fuzz(func(t *testing.T, in string, n int) {
		whole, err := sumSmaps(strings.NewReader(in))
		pieces, err2 := sumSmaps(chunked{strings.NewReader(in), n})
		if whole.Held, pieces.Held = 0, 0; err != err2 || whole != pieces {
			t.Fatalf("in one %+v, %v, in pieces of %d %+v, %v", whole, err, n, pieces, err2)
		}
		files, err := sumMapped(strings.NewReader(in))
		other, err2 := sumMapped(chunked{strings.NewReader(in), n})
		one := files.result()
		if d := cmp.Diff(one, other.result()); err != err2 || err == nil && d != "" {
			t.Fatalf("%v in one, %v in pieces of %d: %s", err, err2, n, d)
		}
		if len(one.Largest) > maxLargest || len(files.files) > maxFiles {
			t.Errorf("%d of %d files", len(one.Largest), len(files.files))
		}
		var all rss.Bytes
		for line := range strings.Lines(in) {
			var size uint64
			if _, err := fmt.Sscanf(strings.TrimLeft(line, " \t"), "Rss: %d kB", &size); err == nil {
				all += rss.Bytes(size) * rss.KiB
			}
		}
		if whole.RSS > all {
			t.Errorf("%v, and all lines have %v", whole.RSS, all)
		}
	})
}

// mapper starts a child with a file of 64 MiB mapped.
func mapper(t *testing.T) *rsstest.Eater {
	t.Helper()
	file := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(file, make([]byte, 64<<20), 0o600))
	e := rsstest.StartEater(t)
	t.Cleanup(func() { unix.Kill(e.PID, unix.SIGKILL) }) // it may have been stopped
	e.Map(64*rss.MiB, file)
	return e
}

// wait waits for a change of a child's state without reaping it.
func wait(t *testing.T, pid, what int) {
	t.Helper()
	var si unix.Siginfo
	must(t, unix.Waitid(unix.P_PID, pid, &si, what|unix.WNOWAIT, nil))
}

// Both files say the same about a stopped child, and about the same of
// ourselves.
func TestRealPSSInPieces(t *testing.T) {
	c := mapper(t)
	pid := c.PID
	must(t, unix.Kill(pid, unix.SIGSTOP))
	wait(t, pid, unix.WSTOPPED)
	r := New("/proc")
	defer r.Close()
	for _, who := range []struct {
		pid   int
		slack rss.Bytes
	}{{pid, 0}, {os.Getpid(), 8 * rss.MiB}} {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", who.pid))
		must(t, err)
		cut := rss.Bytes(strings.Count(string(maps), "\n")) * rss.KiB
		start, err := StartTime("/proc", who.pid)
		must(t, err)
		id := rss.ProcID{PID: who.pid, Start: start}
		// What else maps the binary moves the child's PSS: it is read before and
		// after, a few times until it is the same.
		var before, pieces, after rss.PSS
		for range 20 {
			var err1, err2, err3 error
			before, err1 = r.PSS(id)
			pieces, err2 = r.PSSInPieces(id)
			after, err3 = r.PSS(id)
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatal(err1, err2, err3)
			}
			if before.PSS == after.PSS {
				break
			}
		}
		low, high := min(before.PSS, after.PSS).Sub(cut+who.slack), max(before.PSS, after.PSS)+who.slack
		if pieces.PSS < low || pieces.PSS > high {
			t.Errorf("PSS of %d: %v in pieces, want %v to %v", who.pid, pieces.PSS, low, high)
		}
		low, high = min(before.RSS, after.RSS).Sub(who.slack), max(before.RSS, after.RSS)+who.slack
		if pieces.RSS < low || pieces.RSS > high {
			t.Errorf("RSS of %d: %v in pieces, want %v to %v", who.pid, pieces.RSS, low, high)
		}
		if !before.Split || !after.Split {
			t.Fatal("Linux 5.3 and later split PSS") // CI's do
		}
		if low, high = min(before.File, after.File).Sub(cut+who.slack), max(before.File, after.File)+cut+who.slack; pieces.File < low || pieces.File > high {
			t.Errorf("of files of %d: %v in pieces, want %v to %v", who.pid, pieces.File, low, high)
		}
		if low, high = min(before.Anon, after.Anon).Sub(cut+who.slack), max(before.Anon, after.Anon)+cut+who.slack; pieces.Anon < low || pieces.Anon > high {
			t.Errorf("anonymous of %d: %v in pieces, want %v to %v", who.pid, pieces.Anon, low, high)
		}
		if low, high = min(before.Mapped, after.Mapped).Sub(who.slack), max(before.Mapped, after.Mapped)+who.slack; pieces.Mapped < low || pieces.Mapped > high {
			t.Errorf("mapped by %d: %v in pieces, want %v to %v", who.pid, pieces.Mapped, low, high)
		}
		if who.pid == pid && (before.File < 64*rss.MiB || before.Mapped < 64*rss.MiB) {
			t.Errorf("file PSS %v of %v mapped, but one unshared file alone has 64 MiB", before.File, before.Mapped)
		}
		if who.pid == pid && pieces.RSS < 64*rss.MiB {
			t.Errorf("%v, and the file alone has 64 MiB", pieces.RSS)
		}
		if pieces.Held == 0 || pieces.Held > pieces.Cost || before.Held != before.Cost {
			t.Errorf("held for %v of %v in pieces, %v of %v in one", pieces.Held, pieces.Cost, before.Held, before.Cost)
		}
	}
}

// One read never walks two mappings.
func TestRealSmapsRecordsAreLonger(t *testing.T) {
	b, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	n := 0
	for line := range strings.Lines(string(b)) {
		if word, _, _ := strings.Cut(line, " "); !strings.HasSuffix(word, ":") {
			if n != 0 && n <= piece {
				t.Errorf("a record of %d bytes, and %d are read at once", n, piece)
			}
			n = 0
		}
		n += len(line)
	}
	if n <= piece {
		t.Errorf("a record of %d bytes, and %d are read at once", n, piece)
	}
}

// ending does something after the first piece.
type ending struct {
	*os.File
	then func()
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.File.Read(b)
	if e.then != nil {
		e.then()
		e.then = nil
	}
	return n, err
}

// A process that ends meanwhile leaves a file that ends early, without an
// error while it is a zombie.
func TestRealSmapsEndsEarly(t *testing.T) {
	for _, reap := range []bool{false, true} {
		c := mapper(t)
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", c.PID))
		must(t, err)
		defer f.Close()
		p, err := sumSmaps(&ending{f, func() {
			unix.Kill(c.PID, unix.SIGKILL)
			wait(t, c.PID, unix.WEXITED)
			if reap {
				c.End()
			}
		}})
		if p != (rss.PSS{}) || !Vanished(err) {
			t.Errorf("reaped %v: %+v, %v; want that it is gone", reap, p, err)
		}
	}
}

func TestParseParts(t *testing.T) {
	got, err := parseParts([]byte(rollupText))
	want := rss.Parts{
		RSS: 1780 << 10, PSS: 237 << 10, PSSAnon: 110 << 10, PSSFile: 121 << 10, Split: true,
		SharedDirty: 20 << 10, PrivateDirty: 116 << 10, Anonymous: 115 << 10,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := parseParts([]byte("0-1 [rollup]\nRss: 4 kB\nPss: 2 kB\n")); err != nil || got != (rss.Parts{RSS: 4096, PSS: 2048}) {
		t.Errorf("before Linux 5.3: %+v, %v", got, err)
	}
	if _, err := parseParts(nil); !Vanished(err) {
		t.Errorf("of a process without memory: %v", err)
	}
	for _, in := range []string{"x", "Rss: 4 kB\n", "Rss: 4 MB\nPss: 2 kB\n", "Rss: 4 kB\nPss: x kB\n", "Rss: 4 kB\nPss: 99999999999999 kB\n"} {
		if p, err := parseParts([]byte(in)); err == nil {
			t.Errorf("%q: %+v", in, p)
		}
	}
}

func FuzzParseParts(f *testing.F) {
	f.Add([]byte(rollupText))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseParts(b); err == nil && len(b) < len("Rss:0 kB\nPss:0 kB") {
			t.Errorf("%+v from %q", p, b)
		}
	})
}

func TestPartsOfThisProcess(t *testing.T) {
	const size = 8 * rss.MiB
	r := New("/proc")
	me := rss.ProcID{PID: os.Getpid()}
	before, err := r.Parts(me)
	if err != nil {
		t.Skip(err)
	}
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	must(t, err)
	defer unix.Munmap(b)
	p, err := r.Parts(me)
	if err != nil || p.Cost <= 0 || p.PrivateDirty < before.PrivateDirty+size-rss.MiB || p.Anonymous < before.Anonymous+size-rss.MiB ||
		p.Split && p.PSSAnon+p.PSSFile > p.PSS {
		t.Errorf("%+v, then %+v, %v", before, p, err)
	}
	if _, err := r.Parts(rss.ProcID{PID: me.PID, Start: 1}); !Vanished(err) {
		t.Errorf("of a process that had the PID before: %v", err)
	}
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 7})
	fs.Write("proc/7/smaps_rollup", rollupText)
	if p, err := New(fs.Proc).Parts(rss.ProcID{PID: 7}); err != nil || p.PSS != 237<<10 {
		t.Errorf("of text: %+v, %v", p, err)
	}
	if p, err := New(fs.Proc).PSS(rss.ProcID{PID: 7}); err != nil || p.PSS != 237<<10 || p.RSS != 1780<<10 || !p.Split || p.Anon != 110<<10 || p.File != 121<<10 || p.Mapped != 1665<<10 {
		t.Errorf("PSS of it: %+v, %v", p, err)
	}
	fs.Write("proc/7/smaps_rollup", "0-1 [rollup]\nRss: 8 kB\nPss: 2 kB\nAnonymous: 4 kB\n")
	if p, err := New(fs.Proc).PSS(rss.ProcID{PID: 7}); err != nil || p.PSS != 2<<10 || p.Split || p.Anon != 0 || p.File != 0 || p.Mapped != 0 {
		t.Errorf("before Linux 5.3: %+v, %v", p, err)
	}
}

func TestMappedFiles(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 7, Start: 70})
	fs.Write("proc/7/smaps", mappedText)
	m, cost, err := New(fs.Proc).MappedFiles(rss.ProcID{PID: 7, Start: 70})
	want := rss.MappedFiles{
		Largest: []rss.MappedFile{
			{Path: "/data/train lmdb/data.mdb", Kind: rss.FileOther, Shared: true, RSS: 600000 * rss.KiB},
			{Path: "/dev/shm/torch_1", Kind: rss.FileShm, Shared: true, RSS: rss.MiB},
			{Path: "/data/a.arrow", Kind: rss.FileArrow, RSS: 880 * rss.KiB},
		},
		Sums: []rss.MappedFile{
			{Kind: rss.FileOther, Shared: true, RSS: 600000 * rss.KiB},
			{Kind: rss.FileShm, Shared: true, RSS: rss.MiB},
			{Kind: rss.FileArrow, RSS: 880 * rss.KiB},
			{Kind: rss.FileLibrary, RSS: 512 * rss.KiB},
		},
	}
	if d := cmp.Diff(want, m); d != "" || err != nil || cost <= 0 {
		t.Errorf("%v, %v: %s", cost, err, d)
	}
	if _, _, err := New(fs.Proc).MappedFiles(rss.ProcID{PID: 7, Start: 71}); !Vanished(err) {
		t.Errorf("another process with the PID: %v", err)
	}
	if _, _, err := New(fs.Proc).MappedFiles(rss.ProcID{PID: 8}); !Vanished(err) {
		t.Errorf("no process: %v", err)
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
	sum, err := sumMapped(strings.NewReader(b.String()))
	m := sum.result()
	if err != nil || len(m.Largest) != maxLargest || m.Largest[0].RSS != 9000*rss.KiB || m.Largest[1].RSS != (n-2)*rss.KiB {
		t.Fatalf("%+v, %v", m.Largest, err)
	}
	if want := rss.Bytes((n-1)*(n-2)/2+9000) * rss.KiB; len(m.Sums) != 1 || m.Sums[0].RSS != want {
		t.Errorf("%+v, want %v", m.Sums, want)
	}
}

func TestFileKinds(t *testing.T) {
	for path, want := range map[string]string{
		"/d/data.mdb": rss.FileOther, "/d/cache-1.arrow": rss.FileArrow, "/d/x.parquet": rss.FileArrow,
		"/usr/lib/libc.so.6": rss.FileLibrary, "/usr/lib/x.cpython-311-x86_64-linux-gnu.so": rss.FileLibrary, "/memfd:a.so": rss.FileShm,
		"/SYSV00000000": rss.FileShm, "/dev/zero": rss.FileShm, "/dev/nvidia0": rss.FileDevice,
		"/d/arrow": rss.FileOther, "/d/file": rss.FileOther, "/": rss.FileOther,
	} {
		if got := fileKind(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestMappedFilesOfThisProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data.mdb")
	const size = 4 * rss.MiB
	must(t, os.WriteFile(name, make([]byte, size), 0o600))
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	must(t, err)
	defer unix.Munmap(b)
	m, _, err := New("/proc").MappedFiles(rss.ProcID{PID: os.Getpid()})
	if want := (rss.MappedFile{Path: name, Kind: rss.FileOther, Shared: true, RSS: size}); err != nil || len(m.Largest) == 0 || m.Largest[0] != want {
		t.Errorf("%+v, %v", m, err)
	}
}

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
