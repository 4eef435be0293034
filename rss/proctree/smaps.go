package proctree

import (
	"bufio"
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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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

// parseParts reads /proc/PID/smaps_rollup: a line with addresses, then "Name: value kB" lines.
func parseParts(b []byte) (p rss.Parts, err error) {
	if len(b) == 0 {
		return p, errGone // it has no memory any more
	}
	there, ok := readSizes(b, []sizeField{
		{"Rss", &p.RSS}, {"Pss", &p.PSS}, {"Pss_Anon", &p.PSSAnon}, {"Pss_File", &p.PSSFile},
		{"Shared_Dirty", &p.SharedDirty}, {"Private_Dirty", &p.PrivateDirty}, {"Anonymous", &p.Anonymous},
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
// does, and waits for mmap_lock as that: call it on a side goroutine. The cost comes with an
// error, too. Memory is bounded, however many mappings there are.
func (r *Reader) MappedFiles(id rss.ProcID) (m rss.MappedFiles, cost time.Duration, err error) {
	cost, err = r.readSmaps(id, func(f smapsFile) error {
		s, err := sumMapped(f)
		m = s.result()
		return err
	})
	return m, cost, err
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

// readRecords hands each record of smaps to take, and tells the longest that a read held
// mmap_lock.
func readRecords(f smapsFile, take func(*smapsRecord)) (held time.Duration, err error) {
	p := smapsParser{take: take}
	buf := make([]byte, piece)
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
		p.add(buf[:n])
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
	p.finish()
	if p.bad || p.maps == 0 || len(p.line) > 0 {
		return 0, errMalformed // cut, or nonsense
	}
	return held, nil
}

// smapsRecord is what smaps says of one mapping.
type smapsRecord struct {
	perms          [4]byte   // "rw-p"
	path           []byte    // empty for anonymous memory; valid until the next record
	rss, pss, anon rss.Bytes // anon is of rss
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
	for part := range bytes.Lines(b) {
		text, ended := bytes.CutSuffix(part, []byte("\n"))
		p.line = append(p.line, text[:min(len(text), maxPathLine-len(p.line))]...)
		if ended {
			p.parse(p.line)
			p.line = p.line[:0]
		}
	}
}

func (p *smapsParser) parse(line []byte) {
	word, rest := field(line)
	var to *rss.Bytes
	switch string(word) {
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
	var ok bool
	*to, ok = kilobytes(rest)
	p.bad = p.bad || !ok || p.maps == 0
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

// sumSmaps adds up smaps. Hugetlb pages are in neither Rss nor Pss. Of a mapping smaps has no
// Pss_Anon and Pss_File: of Pss as large a part is taken for anonymous as of Rss, and the rest
// is a file's where one is mapped.
func sumSmaps(f smapsFile) (rss.PSS, error) {
	p := rss.PSS{Split: true}
	held, err := readRecords(f, func(r *smapsRecord) {
		anon := min(r.anon, r.rss)
		own := r.pss.Scale(anon.Of(r.rss))
		p.RSS, p.PSS, p.Anon, p.Mapped = p.RSS+r.rss, p.PSS+r.pss, p.Anon+own, p.Mapped+r.rss-anon
		if isFile(r.path) {
			p.File += r.pss - own
		}
	})
	if err != nil {
		return rss.PSS{}, err
	}
	p.Held = held
	return p, nil
}

// isFile says that a file is mapped, and no shared memory or device.
func isFile(path []byte) bool {
	for _, no := range []string{"/dev/", "/memfd:", "/SYSV"} {
		if bytes.HasPrefix(path, []byte(no)) {
			return false
		}
	}
	return bytes.HasPrefix(path, []byte("/"))
}

const (
	maxFiles   = 1024 // that are told apart
	maxLargest = 8
)

// mappedSum adds up the mappings of files: of each file and way, and of each kind and way,
// which are those without a path.
type mappedSum struct{ files, kinds map[rss.MappedFile]rss.Bytes }

func sumMapped(f smapsFile) (*mappedSum, error) {
	s := &mappedSum{files: map[rss.MappedFile]rss.Bytes{}, kinds: map[rss.MappedFile]rss.Bytes{}}
	_, err := readRecords(f, s.count)
	return s, err
}

func (s *mappedSum) count(r *smapsRecord) {
	if len(r.path) == 0 || r.path[0] != '/' {
		return // anonymous, [heap], anon_inode:…
	}
	path := strings.TrimSuffix(string(r.path), " (deleted)")
	kind := rss.MappedFile{Kind: fileKind(path), Shared: r.perms[3] == 's'}
	if r.perms[2] == 'x' && kind.Kind == rss.FileOther {
		kind.Kind = rss.FileLibrary
	}
	s.kinds[kind] += r.rss
	if kind.Kind == rss.FileLibrary {
		return
	}
	kind.Path = path
	if _, known := s.files[kind]; !known && len(s.files) == maxFiles {
		// The smaller half is forgotten, of which some mappings may then be missing in Largest,
		// never in Sums. Mappings of one file are usually side by side.
		for _, f := range sorted(s.files)[maxFiles/2:] {
			f.RSS = 0
			delete(s.files, f)
		}
	}
	s.files[kind] += r.rss
}

func (s *mappedSum) result() rss.MappedFiles {
	files := sorted(s.files)
	return rss.MappedFiles{Largest: files[:min(len(files), maxLargest)], Sums: sorted(s.kinds)}
}

// sorted returns what was added up, the largest first.
func sorted(sums map[rss.MappedFile]rss.Bytes) []rss.MappedFile {
	all := make([]rss.MappedFile, 0, len(sums))
	for f, size := range sums {
		f.RSS = size
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b rss.MappedFile) int {
		return cmp.Or(cmp.Compare(b.RSS, a.RSS), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// fileKind knows a file by its path, " (deleted)" taken off.
func fileKind(path string) string {
	switch {
	case strings.Contains(path, "/dev/shm/"), strings.HasPrefix(path, "/memfd:"), strings.HasPrefix(path, "/SYSV"), path == "/dev/zero":
		return rss.FileShm
	case strings.HasPrefix(path, "/dev/"):
		return rss.FileDevice
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	switch filepath.Ext(base) {
	case ".arrow", ".feather", ".ipc", ".parquet":
		return rss.FileArrow
	case ".so":
		return rss.FileLibrary
	}
	if strings.Contains(base, ".so.") {
		return rss.FileLibrary
	}
	return rss.FileOther
}

// Spans is what a process has mapped of files, in bytes, whether or not it was read yet: of
// each mapping as much as the file has there, for an LMDB may be mapped far beyond its end.
// What is in /dev/shm, a tmpfs or of a device is left out: its pages do not count as a file's.
type Spans struct {
	Data rss.Bytes     // of files of which no part may be executed, such as an LMDB
	Code rss.Bytes     // of programs and libraries
	Cost time.Duration // processor time of the reading
}

// askSize is from which length on a mapping's file is asked for its size.
const askSize = rss.MiB

// Spans reads /proc/PID/maps (proc_pid_maps(5)) and the sizes of the files: it waits for
// mmap_lock, and for a file system of a network. Call it on a side goroutine. An error comes
// with the Cost.
func (r *Reader) Spans(id rss.ProcID) (s Spans, err error) {
	s.Cost, err = r.sure(id, "maps", func() error {
		dir := filepath.Join(r.proc, strconv.Itoa(id.PID))
		f, err := os.Open(filepath.Join(dir, "maps"))
		if err != nil {
			return err
		}
		defer f.Close()
		type file struct {
			size rss.Bytes
			code bool
		}
		files := map[string]*file{}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 64<<10)
		for lines.Scan() {
			m, ok := procfile.ParseMapping(lines.Bytes())
			if !ok || !onDisk(&m) {
				continue
			}
			of := files[string(m.Path)]
			if of == nil {
				if len(files) == maxFiles {
					continue
				}
				of = &file{}
				files[string(m.Path)] = of
			}
			of.code = of.code || m.Perms[2] == 'x'
			length := rss.Bytes(m.End - m.Start)
			if length >= askSize {
				length = within(&m, filepath.Join(dir, "root"))
			}
			of.size += length
		}
		for _, of := range files {
			if of.code {
				s.Code += of.size
			} else {
				s.Data += of.size
			}
		}
		return lines.Err()
	})
	return s, err
}

// onDisk says that a mapping is of a file on a disk, as its path tells.
func onDisk(m *procfile.Mapping) bool {
	for _, foreign := range []string{"/dev/", "/memfd:", "/SYSV"} {
		if bytes.HasPrefix(m.Path, []byte(foreign)) {
			return false
		}
	}
	return m.Inode != 0 && bytes.HasPrefix(m.Path, []byte("/"))
}

// within is the part of the mapping that lies within the file as it is now, below root; all of
// it where the file cannot be asked.
func within(m *procfile.Mapping, root string) rss.Bytes {
	name, length := filepath.Join(root, string(m.Path)), rss.Bytes(m.End-m.Start)
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil || st.Ino != m.Inode {
		return length
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(name, &fs); err == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC) {
		return 0
	}
	return min(length, rss.Bytes(max(st.Size, 0)).Sub(rss.Bytes(m.Offset)))
}
