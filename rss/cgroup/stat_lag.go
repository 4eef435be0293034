package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

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
	other  int64
	since  time.Time // the charge and memory.stat do not match since then
	last   Stat
	frozen bool // last was read twice
	hits   uint64
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
	l.lag.last = m.Stat
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
		if _, err := procfile.Read(filepath.Join(dir, "memory.stat"), procfile.Small); err != nil {
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
	reclaimable, unreclaimable := below(l.Dir, l.Version)
	if again, err := l.readMemory(); err == nil {
		m = again
	}
	m.Reclaimable = min(max(m.Reclaimable, reclaimable), m.Charged.Sub(unreclaimable))
	m.Unreclaimable = m.Charged - m.Reclaimable
	return m, m.Stat == stale || l.behind(m)
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
