package trim

import (
	"bytes"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostMaps bounds how much of /proc/PID/maps is read while a process stands
// still, where the kernel cannot be asked for one mapping: some 10,000 lines.
const mostMaps = 1 << 20

// procmapQuery is the argument of PROCMAP_QUERY (linux/fs.h, Linux 6.11).
type procmapQuery struct {
	size, queryFlags, queryAddr       uint64
	start, end, flags, page, offset   uint64
	inode                             uint64
	major, minor, nameSize, buildSize uint32
	name, buildID                     uint64
}

const (
	procmapQueryRequest = 0xc0686611
	vmaReadable         = 1
	vmaWritable         = 2
	vmaExecutable       = 4
	vmaShared           = 8
)

// verify says whether what p was planned on is mapped there still: None, or why
// not. Call it while the process stands still; the file is opened anew because
// an open one shows the address space that was there before an execve(2).
func (s *session) verify(p Piece) Refusal {
	fd, err := unix.Open("/proc/"+strconv.Itoa(s.id.PID)+"/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.EACCES || err == unix.EPERM {
		return Undumpable
	}
	if err != nil {
		return vanishedOr(err, Failed)
	}
	defer unix.Close(fd)
	if !s.listed {
		q := procmapQuery{size: uint64(unsafe.Sizeof(procmapQuery{})), queryAddr: p.Lo}
		switch _, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), procmapQueryRequest, uintptr(unsafe.Pointer(&q))); e {
		case 0:
			const kind = vmaReadable | vmaWritable | vmaExecutable | vmaShared
			return p.within(&place{
				lo: q.start, hi: q.end, offset: q.offset, inode: q.inode, dev: unix.Mkdev(q.major, q.minor),
				readOnlyShared: q.flags&kind == vmaReadable|vmaShared,
			})
		case unix.ENOENT:
			return Changed
		case unix.ENOTTY:
			s.listed = true
		case unix.ESRCH:
			return Vanished
		default:
			return Failed
		}
	}
	return s.search(fd, p)
}

// search reads the list of mappings up to the one that is meant.
func (s *session) search(fd int, p Piece) Refusal {
	kept := 0
	for total := 0; total < mostMaps; {
		n, err := unix.Read(fd, s.buf[kept:])
		if err != nil {
			return vanishedOr(err, Failed)
		}
		if n == 0 {
			return Changed
		}
		total += n
		rest := s.buf[:kept+n]
		for {
			line, after, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				break
			}
			rest = after
			var m place
			if !m.parse(line) {
				return Failed
			}
			if m.hi > p.Lo {
				return p.within(&m)
			}
		}
		kept = copy(s.buf[:], rest)
	}
	return Crowded
}

// place is a mapping as it is now.
type place struct {
	lo, hi, offset, dev, inode uint64
	readOnlyShared             bool
}

func (p *Piece) within(m *place) Refusal {
	if m.lo <= p.Lo && p.Hi <= m.hi && m.readOnlyShared && m.dev == p.Dev && m.inode == p.Inode &&
		m.inode != 0 && m.offset+(p.Lo-m.lo) == p.Offset {
		return None
	}
	return Changed
}

// parse reads a line of /proc/PID/maps (proc_pid_maps(5)), without the name.
func (m *place) parse(line []byte) bool {
	rest := line
	next := func(end byte, base int) (n uint64, ok bool) {
		i := bytes.IndexByte(rest, end)
		if i < 0 {
			i = len(rest)
		}
		n, ok = number(rest[:i], base)
		rest = rest[min(i+1, len(rest)):]
		return n, ok
	}
	var ok [6]bool
	var major, minor uint64
	m.lo, ok[0] = next('-', 16)
	m.hi, ok[1] = next(' ', 16)
	if len(rest) < 5 {
		return false
	}
	m.readOnlyShared = string(rest[:5]) == "r--s "
	rest = rest[5:]
	m.offset, ok[2] = next(' ', 16)
	major, ok[3] = next(':', 16)
	minor, ok[4] = next(' ', 16)
	m.inode, ok[5] = next(' ', 10)
	m.dev = unix.Mkdev(uint32(major), uint32(minor))
	return ok == [6]bool{true, true, true, true, true, true}
}
