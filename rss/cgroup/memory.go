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
	Cache, Unevictable rss.Bytes
	SlabReclaimable    rss.Bytes // v2 only
	Kernel             rss.Bytes // v2 only, Linux 5.18: all kernel memory
	Sock               rss.Bytes // v2 only: buffers of sockets, which Kernel leaves out
	SwapCached         rss.Bytes
	PgMajFault         uint64 // major faults since the cgroup was made

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
	m, err := l.readMemory()
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

// readMemory is one reading of the usage and of memory.stat.
func (l *Level) readMemory() (Memory, error) {
	charged, err := l.Usage()
	if err != nil {
		return Memory{}, err
	}
	b, err := l.read("memory.stat")
	if err != nil {
		return Memory{}, err
	}
	s, err := parseStat(b, l.Version)
	if err != nil {
		return Memory{}, fmt.Errorf("cannot parse %s: %w", l.File("memory.stat"), err)
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
	for line := range bytes.Lines(b) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		name, value, ok := bytes.Cut(line, []byte(" "))
		if !ok && len(line) > 0 {
			return s, errMalformed
		}
		for i := range statFields {
			f := &statFields[i]
			if f.names[version] != string(name) || len(name) == 0 {
				continue
			}
			n, err := strconv.ParseUint(string(value), 10, 64)
			if err != nil {
				return s, errMalformed
			}
			if n >= noLimit {
				n = uint64(Unlimited)
			}
			*f.to(&s), found = rss.Bytes(n), true
		}
	}
	if !found {
		return s, errMalformed
	}
	return s, nil
}

// statFields are the lines of memory.stat that are read, v1 then v2.
var statFields = [...]struct {
	names [3]string
	to    func(*Stat) *rss.Bytes
}{
	{[3]string{1: "total_rss", 2: "anon"}, func(s *Stat) *rss.Bytes { return &s.Anon }},
	{[3]string{2: "anon_thp"}, func(s *Stat) *rss.Bytes { return &s.AnonTHP }},              // Linux 5.10
	{[3]string{1: "total_shmem", 2: "shmem"}, func(s *Stat) *rss.Bytes { return &s.Shmem }}, // v1: Linux 4.9
	{[3]string{1: "total_cache", 2: "file"}, func(s *Stat) *rss.Bytes { return &s.Cache }},
	{[3]string{1: "total_unevictable", 2: "unevictable"}, func(s *Stat) *rss.Bytes { return &s.Unevictable }},
	{[3]string{1: "total_active_file", 2: "active_file"}, func(s *Stat) *rss.Bytes { return &s.ActiveFile }},
	{[3]string{1: "total_inactive_file", 2: "inactive_file"}, func(s *Stat) *rss.Bytes { return &s.InactiveFile }},
	{[3]string{2: "slab_reclaimable"}, func(s *Stat) *rss.Bytes { return &s.SlabReclaimable }},
	{[3]string{2: "kernel"}, func(s *Stat) *rss.Bytes { return &s.Kernel }},
	{[3]string{2: "sock"}, func(s *Stat) *rss.Bytes { return &s.Sock }},
	{[3]string{1: "total_swapcached", 2: "swapcached"}, func(s *Stat) *rss.Bytes { return &s.SwapCached }}, // v1: Linux 5.19, v2: 5.14
	{[3]string{1: "total_pgmajfault", 2: "pgmajfault"}, func(s *Stat) *rss.Bytes { return (*rss.Bytes)(&s.PgMajFault) }},
	{[3]string{1: "hierarchical_memory_limit"}, func(s *Stat) *rss.Bytes { return &s.LeastMax }},
	{[3]string{1: "hierarchical_memsw_limit"}, func(s *Stat) *rss.Bytes { return &s.LeastSwap }},
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
