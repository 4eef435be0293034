package trim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

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
