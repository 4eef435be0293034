package trim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Least is the least resident memory for which a mapping is worth a stop.
const Least = 4 * rss.MiB

// MaxMappings is how many mappings of a process are looked at: as many as the
// kernel allows one by default (vm.max_map_count).
const MaxMappings = 1 << 16

// Mapping is a mapping that may be trimmed, as /proc/PID/smaps showed it: of a
// regular file, shared, readable and nothing else, not locked.
type Mapping struct {
	Lo, Hi uint64 // addresses, multiples of the page size
	Offset uint64 // of Lo in the file
	Dev    uint64 // unix.Mkdev of what smaps shows, on btrfs not st_dev
	Inode  uint64
	// Path is for people: " (deleted)" may follow it, and a file named with the
	// four characters `\012` reads as one with a newline, as in the kernel's text.
	Path     string
	Resident rss.Bytes // Rss, or what PAGEMAP_SCAN counts
	Pieces   []Piece   // by address
}

// foreign begins the names of what is no file of a file system, although the
// kernel shows a path, and of file systems that are the kernel's own.
// /dev/shm is among them: its owner gives that back.
var foreign = [][]byte{
	[]byte("/dev/"), []byte("/memfd:"), []byte("/SYSV"), []byte("/anon_hugepage"), []byte("/dmabuf:"),
	[]byte("/[aio]"), []byte("/drm mm object"), []byte("/proc/"), []byte("/sys/"),
}

// harmful are the VmFlags (proc_pid_smaps(5)) of what cannot or must not be
// dropped: locked, device memory, hugetlb, and what userfaultfd(2) watches,
// where madvise would wait for the watcher.
var harmful = [...]string{"lo", "io", "pf", "ht", "um", "uw", "ui"}

var (
	errMalformed = errors.New("malformed")
	errCrowded   = errors.New("too many mappings")
)

var pageBytes = uint64(os.Getpagesize())

// readSmaps reads /proc/PID/smaps and returns the mappings that may be trimmed,
// by address, however little of them is resident. Those that may not, although
// their first line looks like it, go to no. Where something makes no sense, the
// error says how often, and what is returned are the other records.
func readSmaps(r io.Reader, no func(Mapping)) ([]Mapping, error) {
	// Shorter than any record, so that the kernel gives mmap_lock back after each.
	const read = 512
	s := smaps{no: no}
	err := eachLine(r, read, s.take)
	s.finish()
	if err == nil && s.bad > 0 {
		err = fmt.Errorf("%w in %d places of %d records", errMalformed, s.bad, s.records)
	}
	return s.found, err
}

// eachLine has take called for each line, without its newline. Lines end with
// one, and hold at most a name of which each byte was escaped.
func eachLine(r io.Reader, read int, take func([]byte) error) error {
	const most = 4*unix.PathMax + 128
	buf := make([]byte, read)
	var line []byte
	for {
		n, err := r.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			part, rest, whole := bytes.Cut(b, []byte("\n"))
			if line, b = append(line, part...), rest; len(line) > most {
				return fmt.Errorf("a line of more than %d bytes: %w", most, errMalformed)
			}
			if whole {
				if err := take(line); err != nil {
					return err
				}
				line = line[:0]
			}
		}
		switch {
		case err == io.EOF && len(line) > 0:
			return fmt.Errorf("the last line is cut: %w", errMalformed)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// smaps takes the lines of one file.
type smaps struct {
	found        []Mapping
	no           func(Mapping)
	records, bad int
	end          uint64 // of the last record

	// m is the record that is being read, as long as it may be trimmed.
	m                 Mapping
	open              bool
	hasRSS            bool
	hasFlags, harmful bool
}

func (s *smaps) take(line []byte) error {
	// Addresses are printed in small letters, and every field begins with a capital.
	if len(line) > 0 && (line[0] >= '0' && line[0] <= '9' || line[0] >= 'a' && line[0] <= 'f') {
		s.finish()
		if s.records++; s.records > MaxMappings {
			return errCrowded
		}
		s.begin(line)
		return nil
	}
	key, value, ok := bytes.Cut(line, []byte(":"))
	switch {
	case !ok || s.records == 0:
		s.spoil()
	case !s.open:
	case string(key) == "Rss":
		s.hasRSS = s.size(&s.m.Resident, value)
	case string(key) == "Anonymous":
		// Pages of its own, which would be lost. A mapping that is shared has none.
		var own rss.Bytes
		s.harmful = !s.size(&own, value) || own > 0 || s.harmful
	case string(key) == "VmFlags":
		s.hasFlags = true
		s.flags(value)
	}
	return nil
}

func (s *smaps) begin(line []byte) {
	h, ok := parseHeader(line)
	// A mapping that has merged with the last one between two reads is shown
	// whole, and its beginning a second time. Nothing else goes back.
	if !ok || h.End <= s.end {
		s.spoil()
		return
	}
	for n := len(s.found); n > 0 && s.found[n-1].Hi > h.Start; n-- {
		s.found = s.found[:n-1]
	}
	s.end = h.End
	if h.trimmable() {
		s.m, s.open = h.mapping(), true
	}
}

func ofFile(path []byte) bool {
	if len(path) < 2 || path[0] != '/' {
		return false
	}
	for _, p := range foreign {
		if bytes.HasPrefix(path, p) {
			return false
		}
	}
	return true
}

// size reads "   123 kB".
func (s *smaps) size(to *rss.Bytes, value []byte) bool {
	number, ok := bytes.CutSuffix(bytes.TrimLeft(value, " "), []byte(" kB"))
	n, err := strconv.ParseUint(string(number), 10, 64)
	if !ok || err != nil || n > (s.m.Hi-s.m.Lo)/uint64(rss.KiB) {
		s.spoil()
		return false
	}
	*to = rss.Bytes(n) * rss.KiB
	return true
}

// flags asks for "ms", may share, which mmap(2) with MAP_SHARED always leaves:
// it takes "sh" away again where the file is not open for writing, together
// with the right to ever write (do_mmap of mm/mmap.c).
func (s *smaps) flags(value []byte) {
	shared := false
	for w := range bytes.FieldsSeq(value) {
		shared = shared || string(w) == "ms"
		for _, f := range harmful {
			s.harmful = s.harmful || string(w) == f
		}
	}
	s.harmful = s.harmful || !shared
}

// spoil counts the record that is being read as malformed.
func (s *smaps) spoil() {
	s.bad++
	s.open = false
}

// finish ends the record that is being read. One without VmFlags, which Linux
// 3.8 introduced, is whole, and cannot be judged.
func (s *smaps) finish() {
	switch {
	case !s.open:
	case !s.hasRSS:
		s.bad++
	case s.hasFlags && !s.harmful:
		s.found = append(s.found, s.m)
	default:
		s.no(s.m)
	}
	s.open, s.hasRSS, s.hasFlags, s.harmful = false, false, false, false
}

// mappedNow returns the mappings of a process that [Planner.Plan] would look at, by
// /proc/PID/maps: without sizes, flags or a word on whether the process may be
// touched, and so without a walk through its page tables. It may hang, for as
// long as something else holds the mmap_lock of the process.
func mappedNow(proc string, id rss.ProcID) ([]Mapping, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(id.PID), "maps"))
	if err != nil {
		return nil, fmt.Errorf("cannot open maps of process %d: %w", id.PID, err)
	}
	defer f.Close()
	var found []Mapping
	err = eachMapping(f, func(h header, ok bool) error {
		if ok && h.trimmable() {
			found = append(found, h.mapping())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read maps of process %d: %w", id.PID, err)
	}
	return found, sameProcess(proc, id)
}

func eachMapping(maps io.Reader, take func(h header, ok bool) error) error {
	n := 0
	return eachLine(maps, 4<<10, func(line []byte) error {
		if n++; n > MaxMappings {
			return errCrowded
		}
		return take(parseHeader(line))
	})
}

// header is the first line of a record of smaps, a line of maps.
type header struct{ procfile.Mapping }

func parseHeader(line []byte) (header, bool) {
	m, ok := procfile.ParseMapping(line)
	return header{m}, ok && m.Start < m.End && (m.Start|m.End|m.Offset)%pageBytes == 0
}

func (h *header) readOnlyShared() bool { return string(h.Perms[:]) == "r--s" }

// trimmable says that a mapping may be trimmed as far as its first line tells.
func (h *header) trimmable() bool { return h.readOnlyShared() && h.Inode != 0 && ofFile(h.Path) }

// mapping is what that line says.
func (h *header) mapping() Mapping {
	path := string(bytes.ReplaceAll(h.Path, []byte(`\012`), []byte("\n")))
	return Mapping{Lo: h.Start, Hi: h.End, Offset: h.Offset, Dev: h.Dev, Inode: h.Inode, Path: path}
}
