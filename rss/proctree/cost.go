package proctree

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Cost is what one process costs the node, from its start until now.
type Cost struct {
	RSS, Anon   rss.Bytes     // VmRSS and RssAnon of /proc/PID/status
	PSS         rss.Bytes     // Pss of /proc/PID/smaps_rollup, 0 where it cannot be read
	Threads     int           // Threads of /proc/PID/status
	Descriptors int           // entries of /proc/PID/fd, 0 where they cannot be listed
	CPU         time.Duration // utime + stime of /proc/PID/stat, in ticks of 10 ms
	// Wakeups is voluntary_ctxt_switches of /proc/PID/task/TID/status over the
	// threads that live.
	Wakeups uint64
}

// CostOf reads the cost of a process. It reads smaps_rollup under that
// process's mmap_lock, so it is for small ones: ourselves.
func CostOf(proc string, pid int) (Cost, error) {
	var c Cost
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "stat")
	if err == nil {
		c.CPU, err = parseCPU(b)
	}
	if err == nil {
		b, err = f.read(pid, "status")
	}
	var s status
	if err == nil {
		s, err = parseStatus(b)
	}
	if err != nil {
		return Cost{}, fmt.Errorf("cannot read the cost of process %d: %w", pid, err)
	}
	c.RSS, c.Anon, c.Threads = s.rss, s.anon, s.threads
	if pss, err := New(proc).PSS(rss.ProcID{PID: pid}); err == nil {
		c.PSS = pss.PSS
	}
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if names, err := os.ReadDir(filepath.Join(dir, "fd")); err == nil {
		c.Descriptors = len(names)
	}
	t := newFiles(filepath.Join(dir, "task"))
	defer t.close()
	tids, err := t.pids(nil)
	if err != nil {
		return Cost{}, fmt.Errorf("cannot read the cost of process %d: %w", pid, err)
	}
	for _, tid := range tids {
		if b, err := t.read(tid, "status"); err == nil {
			c.Wakeups += parseWakeups(b)
		}
	}
	return c, nil
}

// parseCPU reads fields 14 and 15 of /proc/PID/stat, in ticks of USER_HZ, which
// is 100 on every architecture that Go knows.
func parseCPU(b []byte) (time.Duration, error) {
	const tick = time.Second / 100
	const utime = 14
	rest := b[bytes.LastIndexByte(b, ')')+1:]
	var w []byte
	for range utime - 3 {
		_, rest = field(rest)
	}
	w, rest = field(rest)
	user, ok := number(w)
	w, _ = field(rest)
	system, ok2 := number(w)
	if !ok || !ok2 {
		return 0, errMalformed
	}
	return time.Duration(user+system) * tick, nil
}

// parseWakeups reads voluntary_ctxt_switches, 0 where it is not there.
func parseWakeups(b []byte) uint64 {
	const name = "voluntary_ctxt_switches:"
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			w, _ := field(rest)
			n, _ := number(w)
			return n
		}
	}
	return 0
}
