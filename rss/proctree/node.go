package proctree

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// MemInfo is what limits need of /proc/meminfo, in bytes.
type MemInfo struct {
	Total, Available, SwapTotal, SwapFree rss.Bytes
	// Committed is Committed_AS, what may become used by what was asked for so far;
	// CommitLimit is how much that may be where vm.overcommit_memory is 2.
	Committed, CommitLimit rss.Bytes
}

// Size is all memory and swap, Used what of it is used: memory that is not
// available, and swap that is not free.
func (m MemInfo) Size() rss.Bytes { return m.Total + m.SwapTotal }

// Used is described at Size.
func (m MemInfo) Used() rss.Bytes { return m.Total.Sub(m.Available) + m.SwapTotal.Sub(m.SwapFree) }

// Node reads files of the node again and again through kept descriptors. It belongs
// to one goroutine.
type Node struct{ meminfo, loadavg, threadsMax, pidMax keptFile }

// NewNode returns a reader of the node in the procfs mounted at proc.
// It opens nothing yet.
func NewNode(proc string) *Node {
	file := func(name string, size int) keptFile {
		return keptFile{name: filepath.Join(proc, name), buf: make([]byte, size)}
	}
	return &Node{file("meminfo", 4<<10), file("loadavg", 128), file("sys/kernel/threads-max", 128), file("sys/kernel/pid_max", 128)}
}

// Close gives the descriptors back; they are opened again when needed.
func (n *Node) Close() {
	for _, k := range []*keptFile{&n.meminfo, &n.loadavg, &n.threadsMax, &n.pidMax} {
		k.close()
	}
}

// Read reads /proc/meminfo. MemAvailable exists since Linux 3.14; without it
// Read fails.
func (n *Node) Read() (MemInfo, error) {
	b, err := n.meminfo.read()
	if err != nil {
		return MemInfo{}, err
	}
	m, err := parseMemInfo(b)
	if err != nil {
		return m, fmt.Errorf("cannot parse %s: %w", n.meminfo.name, err)
	}
	return m, nil
}

// keptFile is a file of the node that is read again and again through one descriptor.
type keptFile struct {
	name string
	fd   int // plus 1, 0 for not opened
	buf  []byte
}

// read returns what is in it, valid until the next call.
func (k *keptFile) read() (b []byte, err error) {
	if k.fd == 0 {
		fd, err := unix.Open(k.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", k.name, err)
		}
		k.fd = fd + 1
	}
	for {
		// Not raw, as pread is: lxcfs is a program that answers, or does not.
		n, err := unix.Pread(k.fd-1, k.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			k.close()
			return nil, fmt.Errorf("cannot read %s: %w", k.name, err)
		}
		return k.buf[:n], nil
	}
}

func (k *keptFile) close() {
	if k.fd > 0 {
		unix.Close(k.fd - 1)
		k.fd = 0
	}
}

func ReadMemInfo(proc string) (MemInfo, error) {
	n := NewNode(proc)
	defer n.Close()
	return n.Read()
}

// parseMemInfo reads /proc/meminfo (proc_meminfo(5)), "Name: value kB" lines.
func parseMemInfo(b []byte) (MemInfo, error) {
	var m MemInfo
	there, ok := readSizes(b, []sizeField{
		{"MemTotal", &m.Total}, {"MemAvailable", &m.Available}, {"SwapTotal", &m.SwapTotal}, {"SwapFree", &m.SwapFree},
		{"Committed_AS", &m.Committed}, {"CommitLimit", &m.CommitLimit},
	})
	const totalAndAvailable = 1<<0 | 1<<1
	if !ok || there&totalAndAvailable != totalAndAvailable {
		return m, errMalformed
	}
	return m, nil
}

// NodeKills reads how many processes the OOM killer has ended on the node since it was
// booted, in whatever cgroup: oom_kill of /proc/vmstat (Linux 4.13).
func NodeKills(proc string) (kills uint64, ok bool) {
	b, err := procfile.Read(filepath.Join(proc, "vmstat"), procfile.Small)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(b) {
		if value, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			kills, err = strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return kills, err == nil
		}
	}
	return 0, false
}
