package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
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
	switch {
	case behind:
		m, behind = l.catchUp(m)
	case l.lag.halfway || l.turns(m):
		m = l.bounded(m)
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
	b, err := l.read(statFile)
	if err != nil {
		return Memory{}, err
	}
	s, err := parseStat(b, l.Version)
	if err != nil {
		return Memory{}, fmt.Errorf("cannot parse %s: %w", l.File(statFile), err)
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

// lag is what tells whether memory.stat is behind the charge.
//
// The charge counts at once; memory.stat is summed up from counters of every
// CPU, and its reader has them summed only where enough has changed below. From
// Linux 6.15 on a level that is summed while a process below it grows may take
// itself for unchanged, whatever changes there: page cache or anonymous memory
// of hundreds of MiB is then missing in it until the kernel sums up everything,
// every 2 seconds (memcg_rstat_updated: what is flushable has flushable
// ancestors, which is not so once an ancestor was flushed on its own).
type lag struct {
	// other is what is charged and in no line that we read, huge pages say.
	other   int64
	since   time.Time // the charge and memory.stat do not match since then
	last    Stat      // of the last reading
	charged rss.Bytes // the charge then
	frozen  bool      // last was read twice
	hits    uint64
	halfway bool // the levels below knew of more
}

// lagAtMost is longer than memory.stat can be behind: the kernel sums up every
// 2 seconds.
const lagAtMost = 3 * time.Second

// slack is what the charge and memory.stat may differ by: on each CPU 64 pages
// that are charged ahead, and 128 that are not summed up; and folios in flight.
func slack() int64 { return int64(8*rss.MiB + rss.Bytes(runtime.NumCPU())*192*4096) }

// behind reports whether memory.stat is not of now: what it counts and what is
// charged do not match, or it does not change while the limit is hit.
func (l *Level) behind(m Memory) bool {
	if l.flat { // has nothing below that could hide
		return false
	}
	if d := l.unexplained(m) - l.lag.other; d > slack() || -d > slack() {
		return true
	}
	if m.Stat != l.lag.last {
		return false
	}
	return l.lag.frozen && l.hits() > l.lag.hits
}

// turns reports whether anonymous memory changed and page cache did too since the last
// reading, as where the one makes room for the other at the limit: each may be half of
// what it is, in a sum that matches the charge.
func (l *Level) turns(m Memory) bool {
	if l.flat || l.lag.charged == 0 {
		return false
	}
	grown := int64(m.Anon) - int64(l.lag.last.Anon)
	rest := int64(m.Charged) - int64(l.lag.charged) - grown
	return max(grown, -grown) > int64(rss.MiB) && max(rest, -rest) > max(grown, -grown)/2
}

// hits is how often the charge met the limit, 0 where it cannot be read.
func (l *Level) hits() uint64 {
	if l.Version == 1 {
		n, err := l.number("memory.failcnt")
		if err != nil {
			return 0
		}
		return uint64(n)
	}
	e, err := l.Events()
	if err != nil {
		return 0
	}
	return e.Hit
}

// unexplained is what is charged and not in memory.stat, 0 where the kernel does
// not tell what it uses itself.
func (l *Level) unexplained(m Memory) int64 {
	kernel := m.Kernel
	if l.Version == 1 {
		kernel, _ = l.optional("memory.kmem.usage_in_bytes")
	}
	if kernel == 0 || kernel == Unlimited {
		return 0
	}
	return int64(m.Charged) - int64(m.Anon+m.Cache.Sub(m.SwapCached)+kernel+m.Sock)
}

// remember keeps what the next reading is compared with.
func (l *Level) remember(m Memory, behind bool) {
	if l.lag.frozen = m.Stat == l.lag.last; l.lag.frozen {
		l.lag.hits = l.hits()
	}
	l.lag.last, l.lag.charged = m.Stat, m.Charged
	switch {
	case !behind:
		l.lag.since = time.Time{}
	case l.lag.since.IsZero():
		l.lag.since = time.Now()
	case time.Since(l.lag.since) > lagAtMost:
		l.lag.other, l.lag.since = l.unexplained(m), time.Time{}
	}
}

// catchUp reads once more what is behind: reading memory.stat of a level above has the
// kernel sum up all below it. Where that does not help, or no level above
// can be seen, the levels below say what is true of this one at the least. What
// remains unknown counts as what cannot be reclaimed.
func (l *Level) catchUp(m Memory) (Memory, bool) {
	stale := m.Stat
	for dir := filepath.Dir(l.Dir); ; dir = filepath.Dir(dir) {
		if _, err := procfile.Read(filepath.Join(dir, statFile), procfile.Small); err != nil {
			if errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
				break
			}
			continue // not ours to read: the one above it may be
		}
		again, err := l.readMemory()
		if err != nil {
			break
		}
		m = again
		if m.Stat != stale && !l.behind(m) {
			return m, false
		}
	}
	m = l.bounded(m)
	return m, m.Stat == stale || l.behind(m)
}

// bounded reads a level once more, and what it has at the least of either kind by those below.
func (l *Level) bounded(m Memory) Memory {
	reclaimable, unreclaimable := below(l.Dir, l.Version)
	if again, err := l.readMemory(); err == nil {
		m = again
	}
	was := int64(m.Reclaimable)
	m.Reclaimable = min(max(m.Reclaimable, reclaimable), m.Charged.Sub(unreclaimable))
	m.Unreclaimable = m.Charged - m.Reclaimable
	more := int64(m.Reclaimable) - was
	l.lag.halfway = max(more, -more) > slack()
	return m
}

// below returns what the levels below a directory have of either kind, the
// lowest read first: each is summed up for itself.
func below(dir string, version int) (reclaimable, unreclaimable rss.Bytes) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		l := Level{Version: version, Dir: filepath.Join(dir, e.Name())}
		can, cannot := below(l.Dir, version)
		m, err := l.readMemory()
		l.Close()
		if err == nil {
			can = min(max(m.Reclaimable, can), m.Charged)
			cannot = max(m.Charged-can, min(cannot, m.Charged))
		}
		reclaimable += can
		unreclaimable += cannot
	}
	return reclaimable, unreclaimable
}
