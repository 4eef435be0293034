package proctree

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

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
