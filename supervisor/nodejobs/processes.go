package nodejobs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// read returns the contents of a file, valid until the next call. What is longer
// than a node can have PIDs is cut.
func (n *Node) read(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if n.buf == nil {
		n.buf = make([]byte, 4<<10)
	}
	for have := 0; ; {
		got, err := unix.Read(fd, n.buf[have:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		}
		have += got
		// The kernel hands out what its page holds: less than half of one is the end.
		if got < 2<<10 && have < len(n.buf) {
			return n.buf[:have], nil
		}
		if have == len(n.buf) {
			if have >= 64<<20 {
				return n.buf, nil
			}
			n.buf = append(n.buf, make([]byte, have)...)
		}
	}
}

// processes counts the processes of a directory itself; each is told where do is
// given. A process that our PID namespace does not show has the number 0.
func (n *Node) processes(d *dir, do func(pid int)) int {
	text, err := n.read(d.path + "/cgroup.procs")
	if err != nil { // it ended, or is a threaded group of v2
		return 0
	}
	if do == nil {
		count := 0
		for len(text) > 0 {
			line, rest, _ := bytes.Cut(text, []byte("\n"))
			if text = rest; isPID(line) {
				count++
			}
		}
		return count
	}
	var pids []int
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSuffix(line, []byte("\n")); isPID(line) {
			pid, _ := strconv.Atoi(string(line))
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		do(pid)
	}
	return len(pids)
}

func isPID(line []byte) bool {
	for _, c := range line {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(line) > 0 && len(line) < 11
}

// resident reads the RSS of a process, the second number of statm, in pages
// (proc_pid_statm(5)); 0 for one that ended or is not shown.
func (n *Node) resident(pid int) rss.Bytes {
	if pid == 0 {
		return 0
	}
	text, err := n.read(filepath.Join(n.proc, strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 48)
	if err != nil {
		return 0
	}
	return rss.Bytes(pages) * rss.Bytes(os.Getpagesize())
}

// oomKills reads a counter "oom_kill N" of memory.events or memory.oom_control. ok is
// false where there is none: the directory is gone, or the kernel older than 4.13.
func (n *Node) oomKills(d *dir) (kills uint64, ok bool) {
	name := "/memory.events"
	if n.version == 1 {
		name = "/memory.oom_control"
	}
	text, err := n.read(d.path + name)
	if err != nil {
		return 0, false
	}
	return oomKill(text)
}

// readNodeKills reads how many processes the OOM killer has ended on the node, in whatever
// cgroup: "oom_kill N" of /proc/vmstat (Linux 4.13).
func (n *Node) readNodeKills() (kills uint64, ok bool) {
	text, err := n.read(filepath.Join(n.proc, "vmstat"))
	if err != nil {
		return 0, false
	}
	return oomKill(text)
}

// Killed says that the OOM killer has ended a process of the node since the last look, or
// had when that came, whosever it was. A step takes its count with it when it ends, in
// tens of milliseconds where it was small: whoever wants to know of it looks again as
// soon as this is so. It takes 40 µs; before Linux 4.13 it is never so.
func (n *Node) Killed() bool {
	kills, ok := n.readNodeKills()
	if ok && n.notices != nil {
		n.notices.mu.Lock()
		n.notices.counted(kills)
		n.notices.mu.Unlock()
	}
	return ok && n.looks > 0 && (kills != n.kills || n.changed && n.looks > 1)
}

// oomKill finds the line "oom_kill N".
func oomKill(text []byte) (kills uint64, ok bool) {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		if value, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			kills, err := strconv.ParseUint(string(value), 10, 64)
			return kills, err == nil
		}
	}
	return 0, false
}
