package trim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

type Target struct {
	ID      rss.ProcID
	Refusal Refusal // why nothing, None otherwise
	Detail  string  // of Refusal, for people; may be empty
	// Mappings are those that may be trimmed, largest Resident first.
	Mappings []Mapping
}

// Planner plans for the same processes again and again. What may be trimmed of
// a process it asks once a minute, and where one is new: to print /proc/PID/smaps the kernel
// walks the page tables, 40 ms a GiB of single pages, under a lock that the
// process's own faults may wait for. What is resident is asked each time, by
// PAGEMAP_SCAN, in a twentieth of that. The zero value is ready. It is not safe
// for concurrent use.
type Planner struct {
	judged map[rss.ProcID]judgement
	noScan bool // the kernel has no PAGEMAP_SCAN: smaps tells what is resident
}

// judgement says of whole mappings whether they may be trimmed. It holds for
// judgedFor: one may be locked since, which the kernel refuses to drop.
type judgement struct {
	at  time.Time
	may map[Piece]bool
}

const judgedFor = time.Minute

// Plan looks at a process as [Check] does, and reads what of it could be trimmed.
func (p *Planner) Plan(o CheckOptions) Target {
	t := Target{ID: o.ID}
	if t.Refusal, t.Detail = Check(o); t.Refusal == None {
		var err error
		if t.Mappings, err = p.mappings(o.Proc, o.ID); err != nil {
			t.Refusal, t.Detail = refusalOf(err), err.Error()
		}
	}
	return t
}

func (p *Planner) mappings(proc string, id rss.ProcID) ([]Mapping, error) {
	found, err := p.judge(proc, id)
	if err != nil {
		return nil, err
	}
	kept := found[:0]
	for _, m := range found {
		if !p.noScan || m.Resident >= Least {
			if m.Pieces, err = p.pieces(proc, id, m); err != nil {
				return nil, err
			}
		}
		if !p.noScan {
			m.Resident = 0
			for _, piece := range m.Pieces {
				m.Resident += piece.Resident
			}
		}
		if m.Resident >= Least {
			kept = append(kept, m)
		}
	}
	slices.SortStableFunc(kept, func(a, b Mapping) int { return cmp.Compare(b.Resident, a.Resident) })
	if err := sameProcess(proc, id); err != nil {
		return nil, err
	}
	return kept, nil
}

// judge returns the mappings that may be trimmed, with what is resident only
// where it was read on the way.
func (p *Planner) judge(proc string, id rss.ProcID) ([]Mapping, error) {
	now := time.Now()
	if known := p.judged[id].may; known != nil && !p.noScan && now.Sub(p.judged[id].at) < judgedFor {
		found, err := mappedNow(proc, id)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(m Mapping) bool { return rss.Bytes(m.Hi-m.Lo) < Least })
		if !slices.ContainsFunc(found, func(m Mapping) bool { _, ok := known[m.whole(id)]; return !ok }) {
			return slices.DeleteFunc(found, func(m Mapping) bool { return !known[m.whole(id)] }), nil
		}
	}
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(id.PID), "smaps"))
	if err != nil {
		return nil, fmt.Errorf("cannot open smaps of process %d: %w", id.PID, err)
	}
	defer f.Close()
	known := map[Piece]bool{}
	found, err := readSmaps(f, func(m Mapping) { known[m.whole(id)] = false })
	if err != nil {
		return nil, fmt.Errorf("cannot read smaps of process %d: %w", id.PID, err)
	}
	for _, m := range found {
		known[m.whole(id)] = true
	}
	if p.judged == nil {
		p.judged = map[rss.ProcID]judgement{}
	}
	// What was kept of ended processes goes.
	maps.DeleteFunc(p.judged, func(_ rss.ProcID, j judgement) bool { return now.Sub(j.at) >= 2*judgedFor })
	p.judged[id] = judgement{now, known}
	return found, nil
}

// whole is the mapping as one piece.
func (m *Mapping) whole(id rss.ProcID) Piece {
	return Piece{ID: id, Lo: m.Lo, Hi: m.Hi, Offset: m.Offset, Dev: m.Dev, Inode: m.Inode}
}

// sameProcess says that the PID is still that process's.
func sameProcess(proc string, id rss.ProcID) error {
	start, err := proctree.StartTime(proc, id.PID)
	if err == nil && start != id.Start {
		err = fmt.Errorf("process %v has ended: %w", id, unix.ESRCH)
	}
	return err
}

// Pace says how much of a file may be dropped in one stop of a process. That
// depends on how the page cache holds it, by factors of ten: in single pages,
// some 17 ms a GiB, or in large folios, below 1. Where other things keep the
// processors busy, what surrounds the drop takes longer than the drop, so that
// few long stops are better for all than many short ones.
//
// The zero value knows nothing yet and allows [PieceSize].
type Pace struct {
	files map[file]*samples
}

type file struct{ dev, inode uint64 }

// samples are what the last drops of a file took, a byte.
type samples struct {
	seconds [4]float64 // 0 where there is none yet
	next    int
	most    rss.Bytes // the most that was dropped in one stop
}

// The part of a stop of 2 ms that the kernel may take for dropping pages, and
// the most bytes, whatever is expected of them.
const (
	dropTime = 1200 * time.Microsecond
	maxDrop  = rss.GiB
)

// maxFiles is of how many files samples are kept: a data set may have more.
const maxFiles = 4096

// Add takes in that so much resident memory was dropped in that time.
func (p *Pace) Add(s Piece, took time.Duration) {
	if s.Resident == 0 || took <= 0 {
		return
	}
	if p.files == nil || len(p.files) >= maxFiles {
		p.files = map[file]*samples{}
	}
	f := file{s.Dev, s.Inode}
	k := p.files[f]
	if k == nil {
		k = &samples{}
		p.files[f] = k
	}
	k.seconds[k.next%len(k.seconds)] = took.Seconds() / float64(s.Resident)
	k.next++
	k.most = max(k.most, s.Resident)
}

// room is how much resident memory of a file the next stop may drop. Who was not
// given a processor took longer than it takes, so the least sample counts.
func (p *Pace) room(f file) rss.Bytes {
	k := p.files[f]
	if k == nil {
		return PieceSize
	}
	least := k.seconds[0]
	for _, s := range k.seconds[:min(k.next, len(k.seconds))] {
		least = min(least, s)
	}
	room := rss.Bytes(dropTime.Seconds() / least)
	return min(max(room, PieceSize), 4*max(k.most, PieceSize), maxDrop)
}

// Take joins the first of the pieces with those that follow it in the same
// mapping, as many as there is room for. It returns how many those are.
func (p *Pace) Take(pieces []Piece) (Piece, int) {
	joined, n := pieces[0], 1
	room := p.room(file{joined.Dev, joined.Inode})
	for _, next := range pieces[1:] {
		sameMapping := next.ID == joined.ID && next.Dev == joined.Dev && next.Inode == joined.Inode &&
			next.Lo >= joined.Hi && next.Offset-joined.Offset == next.Lo-joined.Lo
		if !sameMapping || joined.Resident+next.Resident > room || rss.Bytes(next.Hi-joined.Lo) > Reach {
			break
		}
		joined.Hi = next.Hi
		joined.Resident += next.Resident
		n++
	}
	return joined, n
}

// PieceSize is the most resident memory of a piece. To drop it takes 1.1 ms
// where the page cache holds single pages.
const PieceSize = 64 * rss.MiB

// Reach is the most address space of a piece, whatever is resident in it: page
// tables that an earlier trim has emptied stay on kernels before 6.14, and are
// walked again. It bounds the time for which one look holds mmap_lock, too.
const Reach = 4 * rss.GiB

// longestRead is the most address space of which /proc/PID/pagemap is read, 8
// bytes a page.
const longestRead = 256 * rss.GiB

// pagemapScan is PAGEMAP_SCAN (linux/fs.h).
const pagemapScan = 0xc0606610

// pieces cuts a mapping of a process into pieces, by address, that begin and
// end with a resident page. Where the kernel has no PAGEMAP_SCAN (before 6.7)
// and the mapping is too long for reading /proc/PID/pagemap, they are of equal
// length instead and Resident is a guess. The error wraps fs.ErrNotExist or
// ESRCH where the process has ended.
func (p *Planner) pieces(proc string, id rss.ProcID, m Mapping) ([]Piece, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(id.PID), "pagemap"))
	if err != nil {
		return nil, fmt.Errorf("cannot open pagemap of process %d: %w", id.PID, err)
	}
	defer f.Close()
	// What is open now stays that process's.
	if err := sameProcess(proc, id); err != nil {
		return nil, err
	}
	c := cutter{id: id, m: m}
	if !p.noScan {
		err = scanPagemap(f, m.Lo, m.Hi, c.add)
		p.noScan = errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL)
	}
	switch {
	case !p.noScan:
	case rss.Bytes(m.Hi-m.Lo) > longestRead:
		return c.evenly(), nil
	default:
		err = readPagemap(f, m.Lo, m.Hi, c.add)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read pagemap of process %d: %w", id.PID, err)
	}
	return c.pieces, nil
}

// pageRegion and scanArg are struct page_region and struct pm_scan_arg of
// linux/fs.h.
type pageRegion struct{ start, end, categories uint64 }

type scanArg struct {
	size, flags                      uint64
	start, end, walkEnd              uint64
	vec, vecLen, maxPages            uint64
	inverted, mask, anyOf, returning uint64
}

const pageIsPresent = 1 << 3 // PAGE_IS_PRESENT

// scanPagemap has run called for each stretch of resident pages
// (Documentation/admin-guide/mm/pagemap.rst).
func scanPagemap(f *os.File, lo, hi uint64, run func(lo, hi uint64)) error {
	// As many as the kernel gathers before it gives mmap_lock back.
	regions := make([]pageRegion, 512)
	var pin runtime.Pinner
	pin.Pin(&regions[0])
	defer pin.Unpin()
	for lo < hi {
		arg := scanArg{
			start: lo, end: lo + min(hi-lo, uint64(Reach)),
			vec: uint64(uintptr(unsafe.Pointer(&regions[0]))), vecLen: uint64(len(regions)),
			mask: pageIsPresent, returning: pageIsPresent,
		}
		arg.size = uint64(unsafe.Sizeof(arg))
		n, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return e
		case int(n) > len(regions) || arg.walkEnd <= lo || arg.walkEnd > arg.end:
			return fmt.Errorf("PAGEMAP_SCAN of %x-%x: %d regions up to %x", arg.start, arg.end, n, arg.walkEnd)
		}
		for _, r := range regions[:n] {
			if r.start < lo || r.end > arg.walkEnd {
				return fmt.Errorf("PAGEMAP_SCAN of %x-%x: a region %x-%x", arg.start, arg.end, r.start, r.end)
			}
			run(r.start, r.end)
		}
		lo = arg.walkEnd
	}
	return nil
}

// readPagemap does the same by reading: 8 bytes a page, of which bit 63 says
// that it is resident (proc_pid_pagemap(5)).
func readPagemap(f io.ReaderAt, lo, hi uint64, run func(lo, hi uint64)) error {
	const entry, present = 8, 1 << 63
	buf := make([]byte, 128<<10)
	begin, in := uint64(0), false
	for lo < hi {
		b := buf[:min(uint64(len(buf)), (hi-lo)/pageBytes*entry)]
		n, err := f.ReadAt(b, int64(lo/pageBytes*entry))
		if n/entry == 0 {
			if err == nil || err == io.EOF {
				err = unix.ESRCH // the address space is gone
			}
			return err
		}
		for b = b[:n/entry*entry]; len(b) > 0; b, lo = b[entry:], lo+pageBytes {
			if now := binary.NativeEndian.Uint64(b)&present != 0; now != in {
				if in {
					run(begin, lo)
				}
				begin, in = lo, now
			}
		}
	}
	if in {
		run(begin, hi)
	}
	return nil
}

type cutter struct {
	id     rss.ProcID
	m      Mapping
	pieces []Piece
}

// add takes the next stretch. It goes into the last piece while that has room.
func (c *cutter) add(lo, hi uint64) {
	for lo < hi {
		n := len(c.pieces)
		if n == 0 || c.pieces[n-1].Resident >= PieceSize || lo-c.pieces[n-1].Lo >= uint64(Reach) {
			c.pieces = append(c.pieces, c.piece(lo, lo, 0))
			n++
		}
		p := &c.pieces[n-1]
		p.Hi = min(hi, lo+uint64(PieceSize-p.Resident), p.Lo+uint64(Reach))
		p.Resident += rss.Bytes(p.Hi - lo)
		lo = p.Hi
	}
}

func (c *cutter) piece(lo, hi uint64, resident rss.Bytes) Piece {
	return Piece{
		ID: c.id, Lo: lo, Hi: hi, Offset: c.m.Offset + (lo - c.m.Lo), Dev: c.m.Dev, Inode: c.m.Inode, Resident: resident,
	}
}

// evenly cuts by address where nothing more is known.
func (c *cutter) evenly() []Piece {
	length := c.m.Hi - c.m.Lo
	n := max(1, uint64((c.m.Resident+PieceSize-1)/PieceSize))
	step := min((length/n/pageBytes+1)*pageBytes, uint64(Reach))
	for lo := c.m.Lo; lo < c.m.Hi; lo += step {
		hi := min(lo+step, c.m.Hi)
		c.pieces = append(c.pieces, c.piece(lo, hi, c.m.Resident.Scale(float64(hi-lo)/float64(length))))
	}
	return c.pieces
}
