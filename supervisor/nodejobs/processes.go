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

// processes counts the processes of a directory itself, and calls do, if given, for
// each. A process that our PID namespace does not show has the number 0.
func (n *Node) processes(d *dir, do func(pid int)) int {
	text, err := n.read(d.path + "/cgroup.procs")
	if err != nil { // it ended, or is a threaded group of v2
		return 0
	}
	count := 0
	var pids []int // do may read another file into the same buffer
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSuffix(line, []byte("\n")); !isPID(line) {
			continue
		}
		if count++; do != nil {
			pid, _ := strconv.Atoi(string(line))
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		do(pid)
	}
	return count
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

// readNodeKills reads how many processes the OOM killer has ended on the node, in whatever
// cgroup: "oom_kill N" of /proc/vmstat (Linux 4.13).
func (n *Node) readNodeKills() (kills uint64, ok bool) {
	return n.killsIn(filepath.Join(n.proc, "vmstat"))
}

func (n *Node) killsIn(name string) (kills uint64, ok bool) {
	text, err := n.read(name)
	if err != nil {
		return 0, false
	}
	return oomKill(text)
}
