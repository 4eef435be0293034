package cgroup

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/rsswarden/rsswarden/rss"
)

// Memory is what a level and all levels below it are charged, read at one
// moment: the usage file and memory.stat, total_* lines on v1.
type Memory struct {
	Charged       rss.Bytes // the usage file
	WorkingSet    rss.Bytes // Charged less InactiveFile
	Unreclaimable rss.Bytes // Charged less Reclaimable
	// Reclaimable is file cache, dirty or not, that is not locked, and on v2
	// reclaimable slab.
	Reclaimable rss.Bytes

	Stat
}

// Stat is memory.stat, in bytes. A line that the kernel does not have gives 0.
type Stat struct {
	// Anon is v1's total_rss, which includes swap cache, or v2's anon, which
	// does not.
	Anon rss.Bytes
	// AnonTHP is the part of Anon that is in transparent huge pages, v2 only.
	AnonTHP rss.Bytes
	// Shmem is tmpfs and shared memory: on v1 part of total_cache though on no
	// file list, and in no process's RSS unless mapped.
	Shmem rss.Bytes

	ActiveFile, InactiveFile rss.Bytes // page cache on the file lists
	// Cache is all page cache, with Shmem and SwapCached; Unevictable is what of all memory is
	// locked or can go nowhere.
	Cache, Unevictable   rss.Bytes
	FileMapped           rss.Bytes // page cache that is mapped
	FileDirty, Writeback rss.Bytes
	SlabReclaimable      rss.Bytes // v2 only
	Kernel               rss.Bytes // v2 only, Linux 5.18: all kernel memory
	Sock                 rss.Bytes // v2 only: buffers of sockets, which Kernel leaves out
	SwapCached           rss.Bytes
	PgMajFault           uint64 // major faults since the cgroup was made

	// LeastMax and LeastSwap are hierarchical_memory_limit and
	// hierarchical_memsw_limit, v1 only: the least limit from here up to the
	// root, levels that cannot be seen included; [Unlimited] where there is
	// none. 0 on v2.
	LeastMax, LeastSwap rss.Bytes
}

// Memory reads the charge and its parts. memory.stat makes the kernel flush
// its counters: on a large node it costs far more than Usage. Where what it says
// is not of now, that of the levels above and below is read too.
func (l *Level) Memory() (Memory, error) {
	m, err := l.read()
	if err != nil {
		return m, err
	}
	behind := l.behind(m)
	if behind {
		m, behind = l.catchUp(m)
	}
	l.remember(m, behind)
	return m, nil
}

// read is one reading of the usage and of memory.stat.
func (l *Level) read() (Memory, error) {
	charged, err := l.Usage()
	if err != nil {
		return Memory{}, err
	}
	b, err := l.stat.read(l.Dir, "memory.stat")
	if err != nil {
		return Memory{}, err
	}
	s, err := parseStat(b, l.Version)
	if err != nil {
		return Memory{}, fmt.Errorf("cannot parse %s: %w", l.StatFile(), err)
	}
	// At the limit reclaim may have freed 64 MiB of page cache between the two
	// readings, which would count as what cannot be reclaimed.
	if after, err := l.Usage(); err == nil {
		charged = min(charged, after)
	}
	return sum(charged, s), nil
}

func sum(charged rss.Bytes, s Stat) Memory {
	// The counters are read one after the other and lag behind each other:
	// nothing reclaimable exceeds what is charged.
	// Pages that reclaim looks at just now are on no list. At the limit that are
	// many: 32 folios of up to 2 MiB each, for each thread that has to wait for it.
	file := max(s.ActiveFile+s.InactiveFile, s.Cache.Sub(s.Shmem+s.SwapCached+s.Unevictable))
	reclaimable := min(file+s.SlabReclaimable, charged)
	return Memory{
		Charged:       charged,
		WorkingSet:    charged.Sub(s.InactiveFile),
		Unreclaimable: charged - reclaimable,
		Reclaimable:   reclaimable,
		Stat:          s,
	}
}

// parseStat reads memory.stat: "name value" lines
// (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
func parseStat(b []byte, version int) (Stat, error) {
	var s Stat
	found := false
	for len(b) > 0 {
		var line []byte
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			line, b = b, nil
		}
		space := bytes.IndexByte(line, ' ')
		if space < 0 {
			if len(line) == 0 {
				continue
			}
			return s, errMalformed
		}
		to := s.field(line[:space], version)
		if to == nil {
			continue
		}
		n, err := strconv.ParseUint(string(line[space+1:]), 10, 64)
		if err != nil {
			return s, errMalformed
		}
		if n >= noLimit {
			n = uint64(Unlimited)
		}
		*to = n
		found = true
	}
	if !found {
		return s, errMalformed
	}
	return s, nil
}

// field returns where the value of a line goes, nil where it is not wanted.
func (s *Stat) field(name []byte, version int) *uint64 {
	var b *rss.Bytes
	if version == 1 {
		switch string(name) {
		case "total_rss":
			b = &s.Anon
		case "total_shmem": // Linux 4.9
			b = &s.Shmem
		case "total_cache":
			b = &s.Cache
		case "total_unevictable":
			b = &s.Unevictable
		case "total_active_file":
			b = &s.ActiveFile
		case "total_inactive_file":
			b = &s.InactiveFile
		case "total_mapped_file":
			b = &s.FileMapped
		case "total_dirty": // Linux 4.2
			b = &s.FileDirty
		case "total_writeback":
			b = &s.Writeback
		case "total_swapcached": // Linux 5.19
			b = &s.SwapCached
		case "hierarchical_memory_limit":
			b = &s.LeastMax
		case "hierarchical_memsw_limit":
			b = &s.LeastSwap
		case "total_pgmajfault":
			return &s.PgMajFault
		}
		return (*uint64)(b)
	}
	switch string(name) {
	case "anon":
		b = &s.Anon
	case "anon_thp": // Linux 5.10
		b = &s.AnonTHP
	case "shmem":
		b = &s.Shmem
	case "file":
		b = &s.Cache
	case "unevictable":
		b = &s.Unevictable
	case "active_file":
		b = &s.ActiveFile
	case "inactive_file":
		b = &s.InactiveFile
	case "file_mapped":
		b = &s.FileMapped
	case "file_dirty":
		b = &s.FileDirty
	case "file_writeback":
		b = &s.Writeback
	case "slab_reclaimable":
		b = &s.SlabReclaimable
	case "kernel":
		b = &s.Kernel
	case "sock":
		b = &s.Sock
	case "swapcached": // Linux 5.14
		b = &s.SwapCached
	case "pgmajfault":
		return &s.PgMajFault
	}
	return (*uint64)(b)
}

// noLimit is where a v1 limit means none: the kernel's greatest is the
// greatest signed number rounded down to pages, 2^63 - 4096 or - 65536.
const noLimit = 1 << 62

// parseLimit reads a file of one number in bytes, or "max".
func parseLimit(b []byte) (rss.Bytes, error) {
	b = bytes.TrimSpace(b)
	if string(b) == "max" {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return Unlimited, errMalformed
	}
	if n >= noLimit {
		return Unlimited, nil
	}
	return rss.Bytes(n), nil
}
