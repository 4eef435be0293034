package proctree

import (
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
	s, err := parsed(f, pid, "stat", parseStat)
	var u status
	if err == nil {
		u, err = parsed(f, pid, "status", parseStatus)
	}
	if err != nil {
		return Cost{}, fmt.Errorf("cannot read the cost of process %d: %w", pid, err)
	}
	c.CPU, c.RSS, c.Anon, c.Threads = s.cpu, u.rss, u.anon, u.threads
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
			w, _ := field(namedLine(b, "voluntary_ctxt_switches"))
			n, _ := number(w) // 0 where it is not there
			c.Wakeups += n
		}
	}
	return c, nil
}
