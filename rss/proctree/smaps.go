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

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// PSS reads /proc/PID/smaps_rollup (Linux 4.14; ptrace access needed). It
// costs about 7 to 21 ms for each GiB that is resident, holds the process's
// mmap_lock for most of that, and waits for it: call it on a side goroutine,
// as often as a [PSSBudget] allows. At is left 0: the reader has no clock. An
// error comes with the Cost of what was read without a result.
func (r *Reader) PSS(id rss.ProcID) (rss.PSS, error) {
	p, err := r.Parts(id)
	if err != nil {
		return rss.PSS{Cost: p.Cost}, err
	}
	pss := rss.PSS{PSS: p.PSS, RSS: p.RSS, Split: p.Split, Cost: p.Cost, Held: p.Cost}
	if p.Split {
		pss.Anon, pss.File, pss.Mapped = p.PSSAnon, p.PSSFile, p.RSS.Sub(p.Anonymous)
	}
	return pss, nil
}

// Parts reads the same file as [Reader.PSS], at the same cost and on the same
// terms, and returns all of it.
func (r *Reader) Parts(id rss.ProcID) (p rss.Parts, err error) {
	cost, err := r.sure(id, "smaps_rollup", func() error {
		f := newFiles(r.proc)
		defer f.close()
		b, err := f.read(id.PID, "smaps_rollup")
		if err == nil {
			p, err = parseParts(b)
		}
		return err
	})
	if err != nil {
		p = rss.Parts{}
	}
	p.Cost = cost
	return p, err
}

// parseParts reads /proc/PID/smaps_rollup: a line with addresses, then "Name:
// value kB" lines. procfs does not know the Pss_ lines.
func parseParts(b []byte) (rss.Parts, error) {
	var p rss.Parts
	if len(b) == 0 {
		return p, errGone // it has no memory any more
	}
	there, ok := readSizes(b, []sizeField{
		{"Rss", &p.RSS}, {"Pss", &p.PSS}, {"Pss_Anon", &p.PSSAnon}, {"Pss_File", &p.PSSFile}, {"Pss_Shmem", &p.PSSShmem},
		{"Shared_Clean", &p.SharedClean}, {"Shared_Dirty", &p.SharedDirty}, {"Private_Clean", &p.PrivateClean},
		{"Private_Dirty", &p.PrivateDirty}, {"Anonymous", &p.Anonymous}, {"Swap", &p.Swap}, {"SwapPss", &p.SwapPSS},
	})
	const rssAndPSS, pssAnon = 1<<0 | 1<<1, 1 << 2
	if !ok || there&rssAndPSS != rssAndPSS {
		return rss.Parts{}, errMalformed
	}
	p.Split = there&pssAnon != 0
	return p, nil
}

// PSSInPieces reads the same as [Reader.PSS] from /proc/PID/smaps, one mapping
// at a time: fs/seq_file.c releases mmap_lock between two reads, so the process
// waits for the walk of one mapping at most. PSS may be smaller by 1 KiB for
// each mapping, since smaps cuts each to whole kB: so does what slurmstepd
// adds up. Held is the longest read, and up to 1 ms of others; the errors are
// those of PSS.
func (r *Reader) PSSInPieces(id rss.ProcID) (p rss.PSS, err error) {
	cost, err := r.readSmaps(id, func(f smapsFile) (err error) {
		p, err = sumSmaps(f)
		return err
	})
	p.Cost = cost
	if err == nil && p.Held == 0 {
		p.Held = cost
	}
	return p, err
}

// MappedFiles reads which files a process has mapped from /proc/PID/smaps
// (proc_pid_smaps(5)), a mapping at a time. It costs what [Reader.PSSInPieces]
// does, and waits for mmap_lock as that: call it on a side goroutine. An error
// comes with the Cost of what was read without a result. Memory is bounded, however many
// mappings there are.
func (r *Reader) MappedFiles(id rss.ProcID) (m MappedFiles, err error) {
	m.Cost, err = r.readSmaps(id, func(f smapsFile) (err error) {
		m, err = sumMapped(f)
		return err
	})
	return m, err
}

func (r *Reader) readSmaps(id rss.ProcID, read func(smapsFile) error) (cost time.Duration, err error) {
	return r.sure(id, "smaps", func() error {
		f, err := os.Open(filepath.Join(r.proc, strconv.Itoa(id.PID), "smaps"))
		if err != nil {
			return err
		}
		defer f.Close()
		return read(f)
	})
}

// sure reads a file of a process, with what that costs.
func (r *Reader) sure(id rss.ProcID, file string, read func() error) (cost time.Duration, err error) {
	if cost, err = sure(r.proc, id, read); err != nil {
		err = fmt.Errorf("cannot read %s of process %d: %w", file, id.PID, err)
	}
	return cost, err
}

// sure reads, and makes sure that what was read is of that process: it has its PID still.
func sure(proc string, id rss.ProcID, read func() error) (cost time.Duration, err error) {
	return timed(func() error {
		if err := read(); err != nil {
			return err
		}
		start, err := StartTime(proc, id.PID)
		if err == nil && id.Start != 0 && start != id.Start {
			err = errGone
		}
		return err
	})
}

// timed reads, and returns what processor time that took.
func timed(read func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := procfile.ThreadTime()
	err := read()
	return procfile.ThreadTime() - began, err
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

// readPieces hands all of smaps to add, piece by piece, and tells the longest
// that a read held mmap_lock.
func readPieces(f smapsFile, add func([]byte)) (time.Duration, error) {
	buf := make([]byte, piece)
	var held time.Duration
	asked, before := time.Now(), procfile.ThreadTime()
	timed := func(last bool) {
		if last || time.Since(asked) >= window {
			now := procfile.ThreadTime()
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

// smapsRecord is what smaps says of one mapping.
type smapsRecord struct {
	perms          [4]byte // "rw-p"
	path           []byte  // empty for anonymous memory; valid until the next record
	size, rss, pss rss.Bytes
	anon           rss.Bytes // of rss
	seen           int       // Rss and Pss lines
}

// smapsParser splits smaps, given in pieces of any length, into records.
type smapsParser struct {
	take func(*smapsRecord) // is given each that has ended
	now  smapsRecord
	end  uint64 // of its mapping
	maps int
	bad  bool
	line []byte // the beginning of one that has not ended yet
}

// maxPathLine is longer than any line: the kernel makes a path in one page.
const maxPathLine = 4096 + 128

func (p *smapsParser) add(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part, rest := b, []byte(nil)
		if i >= 0 {
			part, rest = b[:i], b[i+1:]
		}
		p.line = append(p.line, part[:min(len(part), maxPathLine-len(p.line))]...)
		if i >= 0 {
			p.parse(p.line)
			p.line = p.line[:0]
		}
		b = rest
	}
}

func (p *smapsParser) parse(line []byte) {
	word, rest := field(line)
	var to *rss.Bytes
	switch string(word) {
	case "Size:":
		to = &p.now.size
	case "Rss:":
		to = &p.now.rss
		p.now.seen++
	case "Pss:":
		to = &p.now.pss
		p.now.seen++
	case "Anonymous:":
		to = &p.now.anon
	default:
		if !bytes.HasSuffix(word, []byte(":")) {
			p.begin(line)
		}
		return
	}
	n, ok := kilobytes(rest)
	if !ok || p.maps == 0 {
		p.bad = true
		return
	}
	*to = n
}

func (p *smapsParser) begin(line []byte) {
	m, ok := procfile.ParseMapping(line)
	if !ok {
		p.bad = true
		return
	}
	// Where the mapping has merged with the last one between two reads, the kernel
	// shows both as one, and the last a second time.
	if m.Start < p.end {
		p.maps--
	} else {
		p.finish()
	}
	p.end = max(p.end, m.End)
	p.maps++
	p.now = smapsRecord{perms: m.Perms, path: append(p.now.path[:0], m.Path...)}
}

func (p *smapsParser) finish() {
	if p.maps > 0 {
		p.bad = p.bad || p.now.seen != 2
		p.take(&p.now)
	}
}

// done takes the last record; false where the file was cut or is nonsense.
func (p *smapsParser) done() bool {
	p.finish()
	return !p.bad && p.maps > 0 && len(p.line) == 0
}

// smapsSum adds up smaps. Hugetlb pages are in neither Rss nor Pss.
//
// Of a mapping smaps has no Pss_Anon and Pss_File: of Pss as large a part is taken for
// anonymous as of Rss, and the rest is a file's where one is mapped.
type smapsSum struct {
	smapsParser
	rss, pss  rss.Bytes
	anon      rss.Bytes // of rss
	own, file rss.Bytes // of pss
}

func newSmapsSum() *smapsSum {
	s := new(smapsSum)
	s.take = s.count
	return s
}

func (s *smapsSum) count(r *smapsRecord) {
	if s.rss+r.rss < r.rss || s.pss+r.pss < r.pss {
		s.bad = true
		return
	}
	anon := min(r.anon, r.rss)
	own := r.pss.Scale(anon.Of(r.rss))
	s.rss, s.pss, s.anon, s.own = s.rss+r.rss, s.pss+r.pss, s.anon+anon, s.own+own
	if isFile(r.path) {
		s.file += r.pss - own
	}
}

// isFile says that a file is mapped, and no shared memory or device.
func isFile(path []byte) bool {
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

func sumSmaps(f smapsFile) (rss.PSS, error) {
	s := newSmapsSum()
	held, err := readPieces(f, s.add)
	if err != nil {
		return rss.PSS{}, err
	}
	if !s.done() {
		return rss.PSS{}, errMalformed
	}
	return rss.PSS{PSS: s.pss, RSS: s.rss, Held: held, Anon: s.own, File: s.file, Mapped: s.rss.Sub(s.anon), Split: true}, nil
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

type MappedFile struct {
	Path     string // as the process's mount namespace names it
	Kind     FileKind
	Shared   bool // MAP_SHARED
	Writable bool // one mapping at least is
	MappedSize
}

type MappedKind struct {
	Kind             FileKind
	Shared, Writable bool
}

type MappedFiles struct {
	// Largest are the 8 files with the largest RSS, libraries left out. Mapped
	// both shared and private, a file is two.
	Largest []MappedFile
	By      map[MappedKind]MappedSize // all of them, libraries too
	Cost    time.Duration             // processor time of the reading
}

func sumMapped(f smapsFile) (MappedFiles, error) {
	s := newMappedSum()
	if _, err := readPieces(f, s.add); err != nil {
		return MappedFiles{}, err
	}
	return s.result()
}

// result is what was added up, unless it was cut or is nonsense.
func (s *mappedSum) result() (MappedFiles, error) {
	if !s.done() {
		return MappedFiles{}, errMalformed
	}
	for _, f := range s.sorted()[:min(len(s.files), maxLargest)] {
		s.out.Largest = append(s.out.Largest, *f)
	}
	return s.out, nil
}

const (
	maxFiles   = 1024 // that are told apart
	maxLargest = 8
)

type mappedSum struct {
	smapsParser
	files map[fileKey]*MappedFile
	out   MappedFiles
}

type fileKey struct {
	path   string
	shared bool
}

func newMappedSum() *mappedSum {
	s := &mappedSum{files: map[fileKey]*MappedFile{}, out: MappedFiles{By: map[MappedKind]MappedSize{}}}
	s.take = s.count
	return s
}

func (s *mappedSum) count(r *smapsRecord) {
	if len(r.path) == 0 || r.path[0] != '/' {
		return // anonymous, [heap], anon_inode:…
	}
	path := strings.TrimSuffix(string(r.path), " (deleted)")
	kind := MappedKind{fileKind(path), r.perms[3] == 's', r.perms[1] == 'w'}
	if r.perms[2] == 'x' && kind.Kind == FileOther {
		kind.Kind = FileLibrary
	}
	size := MappedSize{1, r.size, r.rss, r.pss, r.anon}
	sum := s.out.By[kind]
	sum.add(size)
	s.out.By[kind] = sum
	if kind.Kind == FileLibrary {
		return
	}
	key := fileKey{path, kind.Shared}
	f := s.files[key]
	if f == nil {
		if len(s.files) == maxFiles {
			s.thin()
		}
		f = &MappedFile{Path: path, Kind: kind.Kind, Shared: kind.Shared}
		s.files[key] = f
	}
	f.Writable = f.Writable || kind.Writable
	f.add(size)
}

// thin forgets the smaller half of the files, of which some mappings may then be
// missing in Largest, never in By. Mappings of one file are usually side by side.
func (s *mappedSum) thin() {
	for _, f := range s.sorted()[maxFiles/2:] {
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
