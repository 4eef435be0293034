package proctree

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

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
