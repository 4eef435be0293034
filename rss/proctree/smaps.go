package proctree

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// PSSInPieces reads the same as [Reader.PSS] from /proc/PID/smaps, one mapping
// at a time: fs/seq_file.c gives mmap_lock back between two reads, so nobody
// waits for more than the walk of one mapping. PSS may be smaller by 1 KiB for
// each mapping, since smaps cuts each to whole kB: so does what slurmstepd
// adds up. Held is the longest read, and up to 1 ms of others; the errors are
// those of PSS.
func (r *Reader) PSSInPieces(id rss.ProcID) (rss.PSS, error) {
	return r.timed(id, "smaps", func() (rss.PSS, error) {
		f, err := os.Open(filepath.Join(r.proc, strconv.Itoa(id.PID), "smaps"))
		if err != nil {
			return rss.PSS{}, err
		}
		defer f.Close()
		return sumSmaps(f)
	})
}

// piece is shorter than any record of smaps, 20 lines of 16 to 28 bytes on
// Linux 4.14 and more since. The kernel walks on while a read has room left:
// with more room it would walk several mappings under one lock, and the last of
// them twice where its record does not fit.
const piece = 512

// window is how long reads are timed as one: asking for the processor's time
// costs as much as the walk of a small mapping.
const window = time.Millisecond

// smapsFile is /proc/PID/smaps, opened.
type smapsFile interface {
	io.Reader
	io.ReaderAt
}

func sumSmaps(f smapsFile) (rss.PSS, error) {
	var s smapsSum
	held, err := readPieces(f, s.add)
	if err != nil {
		return rss.PSS{}, err
	}
	if !s.whole() {
		return rss.PSS{}, errMalformed
	}
	s.settle()
	return rss.PSS{PSS: s.pss, RSS: s.rss, Held: held, Anon: s.own, File: s.file, Mapped: s.rss.Sub(s.anon), Split: true}, nil
}

// readPieces hands all of smaps to add, piece by piece, and tells the longest
// that a read held mmap_lock.
func readPieces(f smapsFile, add func([]byte)) (time.Duration, error) {
	buf := make([]byte, piece)
	var held time.Duration
	asked, before := time.Now(), threadTime()
	timed := func(last bool) {
		if last || time.Since(asked) >= window {
			now := threadTime()
			held, before, asked = max(held, now-before), now, time.Now()
		}
	}
	for {
		n, err := f.Read(buf)
		timed(false)
		add(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	// A process that ends or executes another program meanwhile makes the file
	// end early. What can be read from its beginning again was there all along.
	if n, err := f.ReadAt(buf[:1], 0); n == 0 {
		if err == io.EOF {
			err = errGone
		}
		return 0, err
	}
	timed(true)
	return held, nil
}

// smapsSum adds up the Rss and Pss lines of /proc/PID/smaps
// (proc_pid_smaps(5)), given in pieces of any length. Hugetlb pages are in
// neither.
//
// Of a mapping smaps has no Pss_Anon and Pss_File: of Pss as large a part is taken for
// anonymous as of Rss, and the rest is a file's where one is mapped.
type smapsSum struct {
	rss, pss  rss.Bytes
	anon      rss.Bytes // of rss, of the records before the last
	own, file rss.Bytes // … of pss
	// last is what the record that is being read has added.
	last struct {
		rss, pss, anon rss.Bytes
		file           bool
	}
	end  uint64 // of its mapping
	maps int
	seen int // Rss and Pss lines
	bad  bool

	// line is the beginning of a line that has not ended yet: no field is longer.
	// A file's name begins in column 74, and its first bytes tell whether it is one.
	line [96]byte
	n    int
}

func (s *smapsSum) add(b []byte) {
	for len(b) > 0 {
		part, rest := b, []byte(nil)
		i := bytes.IndexByte(b, '\n')
		if i >= 0 {
			part, rest = b[:i], b[i+1:]
		}
		s.n += copy(s.line[s.n:], part)
		if i >= 0 {
			s.take(s.line[:s.n])
			s.n = 0
		}
		b = rest
	}
}

func (s *smapsSum) take(line []byte) {
	word, rest := field(line)
	switch {
	case string(word) == "Rss:":
		s.count(&s.rss, &s.last.rss, rest)
	case string(word) == "Pss:":
		s.count(&s.pss, &s.last.pss, rest)
	case string(word) == "Anonymous:":
		if n, ok := kilobytes(rest); ok {
			s.last.anon = n
		}
	case !bytes.HasSuffix(word, []byte(":")):
		s.begin(word, rest)
	}
}

// begin begins the record of a mapping, "START-END" in hexadecimal.
func (s *smapsSum) begin(word, rest []byte) {
	a, b, _ := bytes.Cut(word, []byte("-"))
	start, ok := hexadecimal(a)
	end, ok2 := hexadecimal(b)
	if !ok || !ok2 || end < start {
		s.bad = true
		return
	}
	// The next mapping has merged with the last one between two reads: the
	// kernel shows both as one, and the last a second time.
	if start < s.end {
		s.rss, s.pss = s.rss.Sub(s.last.rss), s.pss.Sub(s.last.pss)
		s.last.rss, s.last.pss, s.last.anon = 0, 0, 0
	}
	s.settle()
	s.last.file = ofFile(rest)
	s.end = max(s.end, end)
	s.maps++
}

// ofFile tells from what follows the address, "PERMS OFFSET DEV INODE PATH", that a
// file is mapped, and no shared memory or device.
func ofFile(rest []byte) bool {
	for range 4 {
		_, rest = field(rest)
	}
	path := bytes.TrimLeft(rest, " ")
	if len(path) == 0 || path[0] != '/' {
		return false
	}
	for _, no := range []string{"/dev/", "/memfd:", "/SYSV"} {
		if bytes.HasPrefix(path, []byte(no)) {
			return false
		}
	}
	return true
}

// settle enters the record that has ended.
func (s *smapsSum) settle() {
	l := &s.last
	own := l.pss.Scale(min(l.anon, l.rss).Of(l.rss))
	s.anon, s.own = s.anon+min(l.anon, l.rss), s.own+own
	if l.file {
		s.file += l.pss - own
	}
	l.rss, l.pss, l.anon, l.file = 0, 0, 0, false
}

func (s *smapsSum) count(sum, last *rss.Bytes, rest []byte) {
	size, ok := kilobytes(rest)
	if !ok || s.maps == 0 {
		s.bad = true
		return
	}
	if *sum+size < size {
		s.bad = true
		return
	}
	*sum, *last = *sum+size, *last+size
	s.seen++
}

// whole says that every mapping had both lines, and that none was cut.
func (s *smapsSum) whole() bool {
	return !s.bad && s.n == 0 && s.maps > 0 && s.seen == 2*s.maps
}

func hexadecimal(w []byte) (n uint64, ok bool) {
	if len(w) == 0 || len(w) > 16 {
		return 0, false
	}
	for _, c := range w {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, true
}

// PSS reads /proc/PID/smaps_rollup (Linux 4.14; ptrace access needed). It
// costs about 7 to 21 ms for each GiB that is resident, holds the process's
// mmap_lock for most of that, and waits for it: call it on a side goroutine,
// as often as a [PSSBudget] allows. At is left 0: the reader has no clock. An
// error comes with the Cost of what was read in vain.
func (r *Reader) PSS(id rss.ProcID) (rss.PSS, error) {
	return r.timed(id, "smaps_rollup", func() (rss.PSS, error) { return readRollup(r.proc, id.PID) })
}

// Parts reads the same file as [Reader.PSS], at the same cost and on the same
// terms, and returns all of it. Where a PSS of the same moment is wanted too, it
// is in it.
func (r *Reader) Parts(id rss.ProcID) (rss.Parts, error) {
	var p rss.Parts
	cost, err := r.sure(id, "smaps_rollup", func() (err error) {
		p, err = readParts(r.proc, id.PID)
		return err
	})
	if err != nil {
		return rss.Parts{Cost: cost}, err
	}
	p.Cost = cost
	return p, nil
}

// timed reads a PSS, and tells what that costs.
func (r *Reader) timed(id rss.ProcID, file string, read func() (rss.PSS, error)) (rss.PSS, error) {
	var p rss.PSS
	cost, err := r.sure(id, file, func() (err error) {
		p, err = read()
		return err
	})
	if err != nil {
		return rss.PSS{Cost: cost}, err
	}
	p.Cost = cost
	if p.Held == 0 {
		p.Held = cost
	}
	return p, nil
}

// sure reads a file of a process, tells what that costs, and makes sure that it
// was that process's.
func (r *Reader) sure(id rss.ProcID, file string, read func() error) (cost time.Duration, err error) {
	// The processor's time, not the clock's: on a busy node a reading waits for
	// its turn, and costs no more for it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	err = read()
	if err == nil {
		// The same process has the PID after the reading, so it had it before.
		var start uint64
		start, err = StartTime(r.proc, id.PID)
		if err == nil && id.Start != 0 && start != id.Start {
			err = errGone
		}
	}
	cost = threadTime() - began
	if err != nil {
		err = fmt.Errorf("cannot read %s of process %d: %w", file, id.PID, err)
	}
	return cost, err
}

// threadTime is the processor's time that the calling thread has taken.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // not since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}

func readRollup(proc string, pid int) (rss.PSS, error) {
	p, err := readParts(proc, pid)
	if err != nil {
		return rss.PSS{}, err
	}
	pss := rss.PSS{PSS: p.PSS, RSS: p.RSS, Split: p.Split}
	if p.Split {
		pss.Anon, pss.File, pss.Mapped = p.PSSAnon, p.PSSFile, p.RSS.Sub(p.Anonymous)
	}
	return pss, nil
}

func readParts(proc string, pid int) (rss.Parts, error) {
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "smaps_rollup")
	if err != nil {
		return rss.Parts{}, err
	}
	return parseParts(b)
}

// parseParts reads /proc/PID/smaps_rollup: a line with addresses, then "Name:
// value kB" lines. procfs does not know the Pss_ lines.
func parseParts(b []byte) (rss.Parts, error) {
	var p rss.Parts
	if len(b) == 0 {
		return p, errGone // it has no memory any more
	}
	const hasRSS, hasPSS = 1, 2
	has := 0
	for len(b) > 0 {
		var name, value []byte
		name, value, b = cutNamed(b)
		var to *rss.Bytes
		switch string(name) {
		case "Rss":
			to = &p.RSS
			has |= hasRSS
		case "Pss":
			to = &p.PSS
			has |= hasPSS
		case "Pss_Anon":
			to = &p.PSSAnon
			p.Split = true
		case "Pss_File":
			to = &p.PSSFile
		case "Pss_Shmem":
			to = &p.PSSShmem
		case "Shared_Clean":
			to = &p.SharedClean
		case "Shared_Dirty":
			to = &p.SharedDirty
		case "Private_Clean":
			to = &p.PrivateClean
		case "Private_Dirty":
			to = &p.PrivateDirty
		case "Anonymous":
			to = &p.Anonymous
		case "Swap":
			to = &p.Swap
		case "SwapPss":
			to = &p.SwapPSS
		default:
			continue
		}
		var ok bool
		if *to, ok = kilobytes(value); !ok {
			return rss.Parts{}, errMalformed
		}
	}
	if has != hasRSS|hasPSS {
		return rss.Parts{}, errMalformed
	}
	return p, nil
}

// MappedSize is what mappings of files have together, in bytes.
type MappedSize struct {
	Mappings int
	Size     rss.Bytes // of address space
	RSS, PSS rss.Bytes
	// Anon is what of RSS is the process's own copy: pages of a private mapping
	// that were written. They can't be trimmed.
	Anon rss.Bytes
}

func (s *MappedSize) add(t MappedSize) {
	s.Mappings += t.Mappings
	s.Size, s.RSS, s.PSS, s.Anon = s.Size+t.Size, s.RSS+t.RSS, s.PSS+t.PSS, s.Anon+t.Anon
}

// MappedFile is a file that a process has mapped.
type MappedFile struct {
	Path     string // as the process's mount namespace names it
	Deleted  bool   // has no name any more
	Kind     FileKind
	Shared   bool // MAP_SHARED
	Writable bool // one mapping at least is
	MappedSize
}

// MappedKind is how files of a kind are mapped.
type MappedKind struct {
	Kind             FileKind
	Shared, Writable bool
}

// MappedFiles is what files a process has mapped.
type MappedFiles struct {
	// Largest are the 8 files with the largest RSS, libraries left out. Mapped
	// both shared and private, a file is two.
	Largest []MappedFile
	// Partial says that there were more than 1,024 files: of the small ones some
	// mappings may be missing in Largest, never in By.
	Partial bool
	By      map[MappedKind]MappedSize // all of them, libraries too

	Cost time.Duration // processor time of the reading
	Held time.Duration // as in [rss.PSS]: one mapping's walk
}

// Sum adds up what is mapped in one way, over the kinds: libraries, shared memory
// and devices left out.
func (m *MappedFiles) Sum(shared bool) MappedSize {
	var sum MappedSize
	for k, s := range m.By {
		if k.Shared == shared && k.Kind != FileLibrary && k.Kind != FileShm && k.Kind != FileDevice {
			sum.add(s)
		}
	}
	return sum
}

// MappedFiles reads which files a process has mapped from /proc/PID/smaps
// (proc_pid_smaps(5)), a mapping at a time. It costs what [Reader.PSSInPieces]
// does, and waits for mmap_lock as that: call it on a side goroutine. An error
// comes with the Cost of what was read in vain. Memory is bounded, however many
// mappings there are.
func (r *Reader) MappedFiles(id rss.ProcID) (MappedFiles, error) {
	var m MappedFiles
	cost, err := r.sure(id, "smaps", func() error {
		f, err := os.Open(filepath.Join(r.proc, strconv.Itoa(id.PID), "smaps"))
		if err != nil {
			return err
		}
		defer f.Close()
		m, err = sumMapped(f)
		return err
	})
	if err != nil {
		return MappedFiles{Cost: cost}, err
	}
	m.Cost = cost
	return m, nil
}

func sumMapped(f smapsFile) (MappedFiles, error) {
	s := newMappedSum()
	held, err := readPieces(f, s.add)
	if err != nil {
		return MappedFiles{}, err
	}
	m, ok := s.result()
	if !ok {
		return MappedFiles{}, errMalformed
	}
	m.Held = held
	return m, nil
}

const (
	mostFiles    = 1024 // that are told apart
	mostLargest  = 8
	mostPathLine = 4096 + 128 // the kernel makes a path in one page
)

// mappedSum adds smaps up by file, given in pieces of any length.
type mappedSum struct {
	line []byte // the beginning of one that has not ended yet
	bad  bool
	maps int
	end  uint64 // of the mapping of the record that is being read

	now   MappedFile // that record
	seen  int        // its Rss and Pss lines
	files map[fileKey]*MappedFile
	out   MappedFiles
}

type fileKey struct {
	path   string
	shared bool
}

func newMappedSum() *mappedSum {
	return &mappedSum{files: map[fileKey]*MappedFile{}, out: MappedFiles{By: map[MappedKind]MappedSize{}}}
}

func (s *mappedSum) add(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part, rest := b, []byte(nil)
		if i >= 0 {
			part, rest = b[:i], b[i+1:]
		}
		s.line = append(s.line, part[:min(len(part), mostPathLine-len(s.line))]...)
		if i >= 0 {
			s.take(s.line)
			s.line = s.line[:0]
		}
		b = rest
	}
}

func (s *mappedSum) take(line []byte) {
	word, rest := field(line)
	var to *rss.Bytes
	switch string(word) {
	case "Size:":
		to = &s.now.Size
	case "Rss:":
		to = &s.now.RSS
		s.seen++
	case "Pss:":
		to = &s.now.PSS
		s.seen++
	case "Anonymous:":
		to = &s.now.Anon
	default:
		if !bytes.HasSuffix(word, []byte(":")) {
			s.begin(word, rest)
		}
		return
	}
	n, ok := kilobytes(rest)
	if !ok || s.maps == 0 {
		s.bad = true
		return
	}
	*to = n
}

// begin begins the record of a mapping: "START-END PERMS OFFSET DEV INODE PATH".
func (s *mappedSum) begin(word, rest []byte) {
	a, b, _ := bytes.Cut(word, []byte("-"))
	start, ok := hexadecimal(a)
	end, ok2 := hexadecimal(b)
	perms, rest := field(rest)
	if !ok || !ok2 || end < start || len(perms) != 4 {
		s.bad = true
		return
	}
	if start < s.end {
		// The record before is shown a second time, merged with this: see smapsSum.
		s.maps--
	} else {
		s.flush()
	}
	s.seen = 0
	s.end = max(s.end, end)
	s.maps++
	s.now = MappedFile{Shared: perms[3] == 's', Writable: perms[1] == 'w'}
	for range 3 {
		_, rest = field(rest)
	}
	path := bytes.TrimLeft(rest, " ")
	if len(path) == 0 || path[0] != '/' {
		return // anonymous, [heap], anon_inode:…
	}
	s.now.Path, s.now.Deleted = strings.CutSuffix(string(path), " (deleted)")
	s.now.Kind = fileKind(s.now.Path)
	if perms[2] == 'x' && s.now.Kind == FileOther {
		s.now.Kind = FileLibrary
	}
}

// flush enters the record that has ended.
func (s *mappedSum) flush() {
	if s.maps == 0 {
		return
	}
	if s.seen != 2 {
		s.bad = true
	}
	if s.now.Path == "" {
		return
	}
	s.now.Mappings = 1
	kind := MappedKind{s.now.Kind, s.now.Shared, s.now.Writable}
	sum := s.out.By[kind]
	sum.add(s.now.MappedSize)
	s.out.By[kind] = sum
	if s.now.Kind == FileLibrary {
		return
	}
	key := fileKey{s.now.Path, s.now.Shared}
	f := s.files[key]
	if f == nil {
		if len(s.files) == mostFiles {
			s.thin()
		}
		f = &MappedFile{Path: s.now.Path, Deleted: s.now.Deleted, Kind: s.now.Kind, Shared: s.now.Shared}
		s.files[key] = f
	}
	f.Writable = f.Writable || s.now.Writable
	f.add(s.now.MappedSize)
}

// thin forgets the smaller half of the files. Mappings of one file stand side by
// side as a rule.
func (s *mappedSum) thin() {
	s.out.Partial = true
	for _, f := range s.sorted()[mostFiles/2:] {
		delete(s.files, fileKey{f.Path, f.Shared})
	}
}

func (s *mappedSum) sorted() []*MappedFile {
	all := make([]*MappedFile, 0, len(s.files))
	for _, f := range s.files {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *MappedFile) int {
		return cmp.Or(cmp.Compare(b.RSS, a.RSS), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// result is what was added up; false where it was cut or is nonsense.
func (s *mappedSum) result() (MappedFiles, bool) {
	s.flush()
	if s.bad || s.maps == 0 || len(s.line) > 0 {
		return MappedFiles{}, false
	}
	for _, f := range s.sorted() {
		if len(s.out.Largest) < mostLargest {
			s.out.Largest = append(s.out.Largest, *f)
		}
	}
	return s.out, true
}

// FileKind is what a mapped file is, as its name tells.
type FileKind string

// The kinds. [FileShm] is in memory and no file of a disk: trimming gives nothing
// back of it.
const (
	FileLMDB    FileKind = "lmdb"    // *.mdb, *.lmdb: mapped shared, as a whole
	FileArrow   FileKind = "arrow"   // *.arrow, *.feather, *.ipc, *.parquet: pyarrow maps them private and read-only
	FileArray   FileKind = "array"   // *.npy, *.npz, *.bin, *.idx, *.dat: numpy.memmap
	FileWeights FileKind = "weights" // *.safetensors, *.pt, *.pth, *.ckpt, *.gguf
	FileLibrary FileKind = "library" // *.so, *.so.N, and all that is mapped executable
	FileShm     FileKind = "shm"     // /dev/shm, memfd, System V, MAP_SHARED without a file
	FileDevice  FileKind = "device"  // /dev, /dev/shm aside
	FileOther   FileKind = "other"
)

var kindsBySuffix = map[string]FileKind{
	"mdb": FileLMDB, "lmdb": FileLMDB,
	"arrow": FileArrow, "feather": FileArrow, "ipc": FileArrow, "parquet": FileArrow,
	"npy": FileArray, "npz": FileArray, "bin": FileArray, "idx": FileArray, "dat": FileArray,
	"safetensors": FileWeights, "pt": FileWeights, "pth": FileWeights, "ckpt": FileWeights, "gguf": FileWeights,
	"so": FileLibrary,
}

// fileKind knows a file by its path, " (deleted)" taken off.
func fileKind(path string) FileKind {
	switch {
	case strings.Contains(path, "/dev/shm/"), strings.HasPrefix(path, "/memfd:"), strings.HasPrefix(path, "/SYSV"), path == "/dev/zero":
		return FileShm
	case strings.HasPrefix(path, "/dev/"):
		return FileDevice
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	if i := strings.LastIndexByte(base, '.'); i >= 0 {
		if k, ok := kindsBySuffix[base[i+1:]]; ok {
			return k
		}
	}
	if strings.Contains(base, ".so.") {
		return FileLibrary
	}
	return FileOther
}
