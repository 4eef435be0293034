package trim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func init() { modes["map"] = mapMode }

// mapMode maps FILE and reads one byte of each page of the ranges OFFSET:LENGTH
// of it; after "scattered" of every other page. It lives until its input
// ends.
func mapMode(args []string) int {
	fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
	if err != nil {
		fmt.Println("cannot open:", err)
		return 1
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		fmt.Println("cannot stat:", err)
		return 1
	}
	b, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		fmt.Println("cannot map:", err)
		return 1
	}
	sum, step := byte(0), os.Getpagesize()
	for _, arg := range args[1:] {
		if arg == "scattered" {
			step *= 2
			// Neither readahead nor large folios, which would bring the others.
			if err := unix.Madvise(b, unix.MADV_RANDOM); err != nil {
				fmt.Println("cannot advise:", err)
				return 1
			}
			continue
		}
		var offset, length int
		if _, err := fmt.Sscanf(arg, "%d:%d", &offset, &length); err != nil {
			fmt.Println(err)
			return 1
		}
		for i := offset; i < offset+length; i += step {
			sum += b[i]
		}
	}
	fmt.Println("ready", sum)
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(b)
	return 0
}

// helper is this binary in one of its modes. It ends with the test, or on request.
type helper struct {
	*rsstest.Child
	id   rss.ProcID
	said string // its first line
}

// startHelper starts one as that user, 0 for our own, and waits for its first
// line.
func startHelper(t testing.TB, uid int, mode string, args ...string) *helper {
	t.Helper()
	return startCommand(t, asMode(uid, mode, args...))
}

func startCommand(t testing.TB, c *exec.Cmd) *helper {
	t.Helper()
	h := &helper{Child: rsstest.StartChild(t, c)}
	var err error
	if h.said, err = h.Line(); err != nil {
		t.Fatalf("%v: %q, %v", c.Args, h.said, err)
	}
	h.id = idOf(t, h.PID)
	return h
}

func idOf(t testing.TB, pid int) rss.ProcID {
	t.Helper()
	start, err := proctree.StartTime("/proc", pid)
	must(t, err)
	return rss.ProcID{PID: pid, Start: start}
}

// sparse makes a file that takes no space.
func sparse(t testing.TB, size rss.Bytes) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "data.mdb")
	must(t, os.WriteFile(name, nil, 0o644))
	if err := os.Truncate(name, int64(size)); err != nil {
		t.Skip("no file of that size here: ", err)
	}
	return name
}

// startMap starts a process that has those ranges of the file resident, and
// says how it is mapped.
func startMap(t testing.TB, file string, ranges ...[2]rss.Bytes) (*helper, Mapping) {
	t.Helper()
	var args []string
	for _, r := range ranges {
		args = append(args, fmt.Sprintf("%d:%d", r[0], r[1]))
	}
	return startMapWith(t, file, args...)
}

func startMapWith(t testing.TB, file string, args ...string) (*helper, Mapping) {
	t.Helper()
	args = append([]string{file}, args...)
	h := startHelper(t, 0, "map", args...)
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", h.id.PID))
	must(t, err)
	defer f.Close()
	found, err := smapsOf(f)
	for _, m := range found {
		if m.Path == file {
			return h, m
		}
	}
	t.Fatalf("%s is not among %+v, %v", file, found, err)
	return nil, Mapping{}
}

// covers checks that pieces are what they promise to be, and hold the ranges.
func covers(t *testing.T, pieces []Piece, id rss.ProcID, m Mapping, ranges ...[2]rss.Bytes) {
	t.Helper()
	sum, end := rss.Bytes(0), m.Lo
	for _, p := range pieces {
		if p.ID != id || p.Dev != m.Dev || p.Inode != m.Inode || p.Offset != m.Offset+p.Lo-m.Lo || p.Lo < end || p.Hi <= p.Lo || p.Hi > m.Hi ||
			(p.Lo|p.Hi)%pageBytes != 0 || p.Resident > PieceSize || p.Resident > rss.Bytes(p.Hi-p.Lo) || p.Hi-p.Lo > uint64(Reach) {
			t.Errorf("%+v", p)
		}
		sum, end = sum+p.Resident, p.Hi
	}
	if sum != m.Resident {
		t.Errorf("%v are resident, and %v in pieces", m.Resident, sum)
	}
	for _, r := range ranges {
		for at := m.Lo + uint64(r[0]); at < m.Lo+uint64(r[0]+r[1]); at += pageBytes {
			if !slices.ContainsFunc(pieces, func(p Piece) bool { return p.Lo <= at && at < p.Hi }) {
				t.Fatalf("%x is in no piece", at)
			}
		}
	}
}

func hasScan(t *testing.T) bool {
	f, err := os.Open("/proc/self/pagemap")
	must(t, err)
	defer f.Close()
	return scanPagemap(f, pageBytes, 2*pageBytes, func(lo, hi uint64) {}) == nil
}

func TestPace(t *testing.T) {
	var p Pace
	a, b := file{1, 2}, file{1, 3}
	add := func(f file, resident rss.Bytes, took time.Duration) {
		p.Add(Piece{Dev: f.dev, Inode: f.inode, Resident: resident}, took)
	}
	if got := p.room(a); got != PieceSize {
		t.Errorf("at first %v", got)
	}
	// Single pages: 17 ms a GiB are what a piece is made for.
	add(a, PieceSize, 1060*time.Microsecond)
	if got := p.room(a); got < PieceSize || got > PieceSize*5/4 {
		t.Errorf("single pages: %v", got)
	}
	// Large folios: more at each stop, not all at once.
	add(b, PieceSize, 60*time.Microsecond)
	if got := p.room(b); got != 4*PieceSize {
		t.Errorf("large folios, second stop: %v", got)
	}
	add(b, 4*PieceSize, 240*time.Microsecond)
	if got := p.room(b); got != maxDrop {
		t.Errorf("large folios, third stop: %v", got)
	}
	// A stop during which another process had the CPU says little.
	add(b, maxDrop, 30*time.Millisecond)
	if got := p.room(b); got != maxDrop {
		t.Errorf("after one that waited: %v", got)
	}
	if got := p.room(a); got > PieceSize*5/4 {
		t.Errorf("the other file, in single pages: %v", got)
	}
	// The file was read again, in single pages.
	for range 4 {
		add(b, maxDrop, 17*time.Millisecond)
	}
	if got := p.room(b); got > PieceSize*5/4 {
		t.Errorf("single pages after large folios: %v", got)
	}
	add(a, 0, time.Second)
	add(a, PieceSize, 0)
	if got := p.room(a); got < PieceSize || got > PieceSize*5/4 {
		t.Errorf("after nothing: %v", got)
	}
	for i := range uint64(3 * maxFiles) {
		add(file{9, i}, PieceSize, time.Millisecond)
	}
	if len(p.files) > maxFiles {
		t.Errorf("%d files are remembered", len(p.files))
	}
}

func TestPaceTake(t *testing.T) {
	id := rss.ProcID{PID: 42, Start: 7}
	at := func(lo, size, offset uint64) Piece {
		return Piece{ID: id, Lo: lo, Hi: lo + size, Offset: offset, Dev: 1, Inode: 2, Resident: rss.Bytes(size)}
	}
	const mib = 1 << 20
	pieces := []Piece{
		at(0x10000000, 64*mib, 0), at(0x10000000+100*mib, 64*mib, 100*mib), // a hole between them
		at(0x10000000+164*mib, 64*mib, 164*mib),
		at(0x90000000, 64*mib, 0),
	}
	var fast Pace
	fast.Add(Piece{Dev: 1, Inode: 2, Resident: maxDrop}, time.Microsecond)
	got, n := fast.Take(pieces)
	if n != 3 || got.Lo != 0x10000000 || got.Hi != 0x10000000+228*mib || got.Resident != 192*rss.MiB || got.Offset != 0 {
		t.Errorf("fast: %d pieces, %+v", n, got)
	}
	var unknown Pace
	if got, n = unknown.Take(pieces); n != 1 || got != pieces[0] {
		t.Errorf("at first: %d pieces, %+v", n, got)
	}
	if got, n = fast.Take(pieces[3:]); n != 1 || got != pieces[3] {
		t.Errorf("the last: %d pieces, %+v", n, got)
	}
}

func TestPlanTree(t *testing.T) {
	fs, o := quiet(t)
	p := new(Planner).Plan(o)
	if p.Refusal != None || p.ID != o.ID || len(p.Mappings) != 2 ||
		p.Mappings[0].Path != "/data/valid.arrow" || p.Mappings[1].Path != "/data/train.arrow" {
		t.Errorf("%+v", p)
	}
	for name, c := range map[string]struct {
		do   func()
		want Refusal
	}{
		"malformed": {func() { fs.Write("proc/42/smaps", good()+"x\n") }, Failed},
		"ended":     {func() { fs.Remove("proc/42/smaps") }, Vanished},
	} {
		c.do()
		if p := new(Planner).Plan(o); p.Refusal != c.want || p.Detail == "" || p.Mappings != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestPlanReal(t *testing.T) {
	needsYama(t)
	small, large := sparse(t, 6*rss.MiB), sparse(t, 32*rss.MiB)
	h, want := startMap(t, large, [2]rss.Bytes{rss.MiB, 16 * rss.MiB})
	p := new(Planner).Plan(CheckOptions{Proc: "/proc", ID: h.id})
	if p.Refusal != None || len(p.Mappings) != 1 || p.Mappings[0].whole(h.id) != want.whole(h.id) || p.Mappings[0].Resident != want.Resident || want.Resident < 16*rss.MiB {
		t.Errorf("%+v", p)
	}
	var st unix.Stat_t
	must(t, unix.Stat(large, &st))
	if want.Inode != st.Ino || want.Hi-want.Lo != uint64(32*rss.MiB) || want.Offset != 0 {
		t.Errorf("%+v, and inode %d", want, st.Ino)
	}
	h, _ = startMap(t, small, [2]rss.Bytes{0, 6 * rss.MiB})
	must(t, os.Remove(small))
	if p := new(Planner).Plan(CheckOptions{Proc: "/proc", ID: h.id}); len(p.Mappings) != 1 || p.Mappings[0].Path != small+" (deleted)" {
		t.Errorf("%+v", p)
	}
}

// TestPlanner: what may be trimmed is asked once for each mapping, and what is
// resident each time.
func TestPlanner(t *testing.T) {
	needsYama(t)
	if !hasScan(t) {
		t.Skip("the kernel has no PAGEMAP_SCAN")
	}
	h, m := startMap(t, sparse(t, 32*rss.MiB), [2]rss.Bytes{0, 16 * rss.MiB})
	o := CheckOptions{Proc: "/proc", ID: h.id}
	var p Planner
	resident := func() rss.Bytes {
		t.Helper()
		got := p.Plan(o)
		if got.Refusal != None || len(got.Mappings) > 1 {
			t.Fatalf("%+v", got)
		}
		if len(got.Mappings) == 0 {
			return 0
		}
		return got.Mappings[0].Resident
	}
	if got := resident(); got < 16*rss.MiB {
		t.Fatalf("%v are resident", got)
	}
	known := p.judged[h.id].may
	if may, ok := known[m.whole(h.id)]; !ok || !may {
		t.Fatalf("%+v", known)
	}
	known[m.whole(h.id)] = false
	if got := resident(); got != 0 {
		t.Errorf("asked again: %v", got)
	}
	gone := rss.ProcID{PID: 1 << 23}
	p.judged[gone] = judgement{at: time.Now().Add(-2 * judgedFor)}
	p.judged[h.id] = judgement{time.Now().Add(-judgedFor), known}
	if got := resident(); got < 16*rss.MiB {
		t.Errorf("%v are resident, asked again after a minute", got)
	}
	if _, kept := p.judged[gone]; kept {
		t.Error("what has ended is kept")
	}
	// A mapping that is not known has all be asked.
	known = p.judged[h.id].may
	delete(known, m.whole(h.id))
	if got := resident(); got < 16*rss.MiB {
		t.Errorf("%v are resident of what is new", got)
	}
	tracer := NewTracer()
	defer tracer.Close()
	pieces, err := p.pieces("/proc", h.id, m)
	must(t, err)
	for _, piece := range pieces {
		wardentest.Until(t, "a trim", func() bool { return tracer.Do(piece).Refusal == None })
	}
	if got := resident(); got != 0 {
		t.Errorf("%v are resident after a trim", got)
	}
}

func TestPieces(t *testing.T) {
	ranges := [][2]rss.Bytes{{0, 100 * rss.MiB}, {4 * rss.GiB, 4 * rss.MiB}, {6*rss.GiB + 64*rss.KiB, 64 * rss.MiB}}
	h, m := startMap(t, sparse(t, 7*rss.GiB), ranges...)
	by := map[string][]Piece{}
	for _, way := range []string{"PAGEMAP_SCAN", "reading"} {
		t.Run(way, func(t *testing.T) {
			p := Planner{noScan: way == "reading"}
			if !p.noScan && !hasScan(t) {
				t.Skip("the kernel has no PAGEMAP_SCAN")
			}
			began := time.Now()
			pieces, err := p.pieces("/proc", h.id, m)
			t.Logf("%v: %d pieces of %v", time.Since(began), len(pieces), m.Resident)
			must(t, err)
			covers(t, pieces, h.id, m, ranges...)
			by[way] = pieces
		})
	}
	if len(by) == 2 && !slices.Equal(by["PAGEMAP_SCAN"], by["reading"]) {
		t.Errorf("%+v\n%+v", by["PAGEMAP_SCAN"], by["reading"])
	}
}

// More stretches than one look returns, and than a read holds.
func TestPiecesScattered(t *testing.T) {
	h, m := startMapWith(t, sparse(t, 160*rss.MiB), "scattered", fmt.Sprintf("0:%d", 144*rss.MiB))
	scanned, read := 0, 0
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", h.id.PID))
	must(t, err)
	defer f.Close()
	if err := readPagemap(f, m.Lo, m.Hi, func(lo, hi uint64) { read++ }); err != nil || read < 1000 {
		t.Fatalf("%d stretches, %v", read, err)
	}
	if hasScan(t) {
		if err := scanPagemap(f, m.Lo, m.Hi, func(lo, hi uint64) { scanned++ }); err != nil || scanned < read {
			t.Errorf("%d stretches by PAGEMAP_SCAN, %d by reading, %v", scanned, read, err)
		}
	}
	pieces, err := new(Planner).pieces("/proc", h.id, m)
	if err != nil || len(pieces) != 2 {
		t.Errorf("%+v, %v", pieces, err)
	}
	covers(t, pieces, h.id, m)
	if again, err := (&Planner{noScan: true}).pieces("/proc", h.id, m); err != nil || !slices.Equal(again, pieces) {
		t.Errorf("%+v and %+v, %v", pieces, again, err)
	}
}

// An LMDB environment is mapped as long as it may ever get.
func TestPiecesOfTerabyte(t *testing.T) {
	ranges := [][2]rss.Bytes{
		{0, 150 * rss.MiB}, {300*rss.GiB + 12*rss.KiB, 4 * rss.KiB}, {700 * rss.GiB, 100 * rss.MiB}, {rss.TiB - rss.MiB, rss.MiB},
	}
	h, m := startMap(t, sparse(t, rss.TiB), ranges...)
	t.Run("PAGEMAP_SCAN", func(t *testing.T) {
		if !hasScan(t) {
			t.Skip("the kernel has no PAGEMAP_SCAN")
		}
		began := time.Now()
		pieces, err := new(Planner).pieces("/proc", h.id, m)
		took := time.Since(began)
		t.Logf("%v: %d pieces of %v", took, len(pieces), m.Resident)
		if err != nil || took > time.Second {
			t.Fatal(took, err)
		}
		covers(t, pieces, h.id, m, ranges...)
	})
	t.Run("evenly", func(t *testing.T) {
		pieces, err := (&Planner{noScan: true}).pieces("/proc", h.id, m)
		if err != nil || len(pieces) != 256 {
			t.Fatal(len(pieces), err)
		}
		end, sum := m.Lo, rss.Bytes(0)
		for _, p := range pieces {
			if p.Lo != end || p.Hi-p.Lo > uint64(Reach) || p.Offset != p.Lo-m.Lo || p.Resident > PieceSize {
				t.Errorf("%+v after %x", p, end)
			}
			end, sum = p.Hi, sum+p.Resident
		}
		if end != m.Hi || sum > m.Resident || sum < m.Resident-rss.MiB {
			t.Errorf("up to %x of %x, %v of %v", end, m.Hi, sum, m.Resident)
		}
	})
}

func TestPiecesOfAnEndedProcess(t *testing.T) {
	h, m := startMap(t, sparse(t, 8*rss.MiB), [2]rss.Bytes{0, 8 * rss.MiB})
	other := h.id
	other.Start++
	if pieces, err := new(Planner).pieces("/proc", other, m); refusalOf(err) != Vanished || pieces != nil {
		t.Errorf("of another: %v, %v", pieces, err)
	}
	h.End()
	if pieces, err := new(Planner).pieces("/proc", h.id, m); refusalOf(err) != Vanished || pieces != nil {
		t.Errorf("of one that has ended: %v, %v", pieces, err)
	}
}

// TestReadPagemap: what ends at the end of the mapping, and what is cut short.
func TestReadPagemap(t *testing.T) {
	page := func(s string) string { // a page is resident where s has an x
		var b strings.Builder
		for _, c := range s {
			b.WriteString(map[rune]string{'x': "\x01\x00\x00\x00\x00\x00\x00\x80", '.': "\xff\xff\x00\x00\x00\x00\x00\x7f"}[c])
		}
		return b.String()
	}
	for in, want := range map[string]string{
		"": "", "....": "", "xxxx": "0-4", ".xx.": "1-3", "x..x": "0-1 3-4", "x.x.": "0-1 2-3",
	} {
		var got []string
		err := readPagemap(strings.NewReader(page(in)), 0, uint64(len(in))*pageBytes, func(lo, hi uint64) {
			got = append(got, strconv.Itoa(int(lo/pageBytes))+"-"+strconv.Itoa(int(hi/pageBytes)))
		})
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	if err := readPagemap(strings.NewReader(page("xx")), 0, 4*pageBytes, func(lo, hi uint64) {}); err != unix.ESRCH {
		t.Error(err)
	}
}

// record is one of smaps as Linux 6.18 prints it, in kB.
func record(header string, size, resident, proportional int, flags string) string {
	return header + "\n" + fmt.Sprintf(`Size:           %8d kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:            %8d kB
Pss:            %8d kB
Pss_Dirty:             0 kB
Shared_Clean:          0 kB
Private_Clean:  %8d kB
Referenced:     %8d kB
Anonymous:             0 kB
Locked:                0 kB
THPeligible:           0
`, size, resident, proportional, resident, resident) + "VmFlags: " + flags + " \n"
}

const (
	goodHeader = "7f0000000000-7f0001000000 r--s 00002000 fe:01 247278                     /data/train.arrow"
	anonFlags  = "rd wr mr mw me ac sd"
	goodFlags  = "rd mr me ms sd"    // of a file open for reading
	openFlags  = "rd sh mr mw me ms" // for writing too
)

func good() string { return record(goodHeader, 16384, 8192, 4096, goodFlags) }

func smapsOf(r io.Reader) ([]Mapping, error) { return readSmaps(r, func(Mapping) {}) }

func TestSmaps(t *testing.T) {
	anon := record("7effff000000-7f0000000000 rw-p 00000000 00:00 0 ", 16384, 16384, 16384, anonFlags)
	want := Mapping{
		Lo: 0x7f0000000000, Hi: 0x7f0001000000, Offset: 0x2000, Dev: unix.Mkdev(0xfe, 1), Inode: 247278,
		Path: "/data/train.arrow", Resident: 8 * rss.MiB,
	}
	// Reads end anywhere.
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(anon + good()), "one byte": iotest.OneByteReader(strings.NewReader(anon + good())),
		"data with EOF": iotest.DataErrReader(strings.NewReader(anon + good())),
	} {
		got, err := smapsOf(r)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestSmapsPicks(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		path     string // of what is found, "" for nothing
	}{
		"all is well":       {"", "", "/data/train.arrow"},
		"deleted":           {"train.arrow", "train.arrow (deleted)", "/data/train.arrow (deleted)"},
		"spaces":            {"train.arrow", "a  b", "/data/a  b"},
		"newline":           {"train.arrow", `a\012b`, "/data/a\nb"},
		"no inode":          {"247278", "0", ""},
		"20 digits":         {"247278", "18446744073709551615", "/data/train.arrow"},
		"writable":          {"r--s", "rw-s", ""},
		"executable":        {"r--s", "r-xs", ""},
		"private":           {"r--s", "r--p", ""},
		"no access":         {"r--s", "---s", ""},
		"device":            {"/data/train.arrow", "/dev/nvidia0", ""},
		"shared memory":     {"/data/train.arrow", "/dev/shm/x", ""},
		"zero":              {"/data/train.arrow", "/dev/zero (deleted)", ""},
		"memfd":             {"/data/train.arrow", "/memfd:x (deleted)", ""},
		"System V":          {"/data/train.arrow", "/SYSV00000000 (deleted)", ""},
		"hugetlb":           {"/data/train.arrow", "/anon_hugepage (deleted)", ""},
		"dma-buf":           {"/data/train.arrow", "/dmabuf:", ""},
		"unreachable":       {"/data/train.arrow", "(unreachable)/train.arrow", ""},
		"pseudo":            {"/data/train.arrow", "anon_inode:[perf_event]", ""},
		"no name":           {"/data/train.arrow", "", ""},
		"locked":            {" ms", " ms lo", ""},
		"device memory":     {" ms", " io ms", ""},
		"page frames":       {" ms", " pf ms", ""},
		"huge pages":        {" ms", " ms ht", ""},
		"userfaultfd":       {" ms", " um ms", ""},
		"not shared":        {" ms", "", ""},
		"open for writing":  {goodFlags, openFlags, "/data/train.arrow"},
		"pages of its own":  {"Anonymous:             0", "Anonymous:             4", ""},
		"before Linux 3.8":  {"VmFlags: " + goodFlags + " \n", "", ""},
		"little":            {"8192 kB\nPss", "4 kB\nPss", "/data/train.arrow"},
		"nothing but a dir": {"/data/train.arrow", "/", ""},
	} {
		in := strings.Replace(good(), c.old, c.new, 1)
		if c.old != "" && in == good() {
			t.Fatalf("%s: nothing replaced", name)
		}
		got, err := smapsOf(strings.NewReader(in))
		if err != nil || len(got) > 1 || (len(got) == 1) != (c.path != "") || len(got) == 1 && got[0].Path != c.path {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A mapping that merges with the one before it between two reads is shown as
// both: the longer one is what there is.
func TestSmapsMerged(t *testing.T) {
	longer := strings.Replace(goodHeader, "7f0001000000", "7f0002000000", 1)
	got, err := smapsOf(strings.NewReader(good() + record(longer, 32768, 16384, 16384, goodFlags)))
	if err != nil || len(got) != 1 || got[0].Hi != 0x7f0002000000 || got[0].Resident != 16*rss.MiB {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSmapsMalformed(t *testing.T) {
	for name, in := range map[string]string{
		"no record":        "Rss: 4 kB\n",
		"header alone":     goodHeader + "\n",
		"no Rss":           strings.Replace(good(), "Rss:", "Rxx:", 1),
		"other unit":       strings.Replace(good(), "8192 kB\nPss", "8192 MB\nPss", 1),
		"no number":        strings.Replace(good(), "8192 kB\nPss", "x kB\nPss", 1),
		"overflow":         strings.Replace(good(), "8192 kB\nPss", "99999999999999999999 kB\nPss", 1),
		"more than mapped": strings.Replace(good(), "8192 kB\nPss", "16388 kB\nPss", 1),
		"not a page":       strings.Replace(good(), "7f0000000000", "7f0000000001", 1),
		"backward":         strings.Replace(good(), "7f0001000000", "7effff000000", 1),
		"empty":            strings.Replace(good(), "7f0001000000", "7f0000000000", 1),
		"offset":           strings.Replace(good(), "00002000", "00002001", 1),
		"short header":     strings.Replace(good(), goodHeader, "7f0000000000-7f0001000000", 1),
		"twice":            good() + good(),
		"no colon":         strings.Replace(good(), "Size:", "Size ", 1),
		"long line":        strings.Replace(good(), "/data", "/"+strings.Repeat("x", 1<<16), 1),
		"cut":              strings.TrimSuffix(good(), "\n"),
	} {
		if got, err := smapsOf(strings.NewReader(in)); !errors.Is(err, errMalformed) || len(got) > 1 {
			t.Errorf("%s: %d mappings, %v", name, len(got), err)
		}
	}
	// The others are returned, with the number of those that are not.
	bad := strings.NewReplacer("7f0000", "7f1000", "7f0001", "7f1001", "Rss:", "Rxx:").Replace(good())
	got, err := smapsOf(strings.NewReader(good() + bad))
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), "1 places of 2 records") {
		t.Errorf("%d mappings, %v", len(got), err)
	}
	if _, err := smapsOf(iotest.ErrReader(unix.ESRCH)); !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}

func TestSmapsCrowded(t *testing.T) {
	var b bytes.Buffer
	for i := range MaxMappings + 1 {
		fmt.Fprintf(&b, "%x-%x rw-p 00000000 00:00 0 \n", 0x10000*(i+1), 0x10000*(i+2))
	}
	if _, err := smapsOf(&b); !errors.Is(err, errCrowded) {
		t.Error(err)
	}
}

func FuzzSmaps(f *testing.F) {
	f.Add([]byte(good()))
	f.Add([]byte(record("7f1000000000-7f1001000000 r--s 00000000 00:2f 18446744073709551615 /nfs/a\\012b (deleted)", 16384, 4096, 1, "ms lo")))
	f.Add([]byte(good() + record(strings.Replace(goodHeader, "7f0001", "7f0002", 1), 32768, 16384, 16384, goodFlags)))
	f.Add([]byte(goodHeader + "\n" + goodHeader + "\nRss:  \n\nPss: -1 kB\nVmFlags:\n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\nRss: 0 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := smapsOf(bytes.NewReader(b))
		end := uint64(0)
		for _, m := range got {
			if m.Lo < end || m.Lo >= m.Hi || (m.Lo|m.Hi|m.Offset)%pageBytes != 0 {
				t.Errorf("addresses %+v after %x", m, end)
			}
			if m.Inode == 0 || m.Resident > rss.Bytes(m.Hi-m.Lo) || !strings.HasPrefix(m.Path, "/") ||
				strings.HasPrefix(m.Path, "/dev/") || strings.HasPrefix(m.Path, "/memfd:") {
				t.Errorf("%+v", m)
			}
			end = m.Hi
		}
		if len(got) > 0 && !(bytes.Contains(b, []byte(" r--s ")) && bytes.Contains(b, []byte("ms"))) {
			t.Errorf("%+v from %q", got, b)
		}
		// What is read does not depend on where reads end.
		again, err2 := smapsOf(iotest.OneByteReader(bytes.NewReader(b)))
		if len(again) != len(got) || (err == nil) != (err2 == nil) {
			t.Errorf("%d mappings, %v and %d mappings, %v", len(got), err, len(again), err2)
		}
	})
}

// TestMapped: what is mapped shared and read-only from a file, and no other.
func TestMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b")
	must(t, os.WriteFile(path, make([]byte, 8<<20), 0o600))
	m, unmap := mapped(t, path)
	defer unmap()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	for _, how := range [][2]int{{unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED}, {unix.PROT_READ, unix.MAP_PRIVATE}} {
		b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, how[0], how[1])
		must(t, err)
		defer unix.Munmap(b)
	}
	id := idOf(t, os.Getpid())
	all, err := mappedNow("/proc", id)
	must(t, err)
	all = slices.DeleteFunc(all, func(o Mapping) bool { return o.Inode != m.Inode || o.Dev != m.Dev })
	if len(all) != 1 || all[0].Path != path || all[0].Hi-all[0].Lo != 8<<20 || all[0].Resident != 0 {
		t.Errorf("%+v", all)
	}
	id.Start++
	if _, err := mappedNow("/proc", id); !errors.Is(err, unix.ESRCH) {
		t.Errorf("of one that has ended: %v", err)
	}
}
