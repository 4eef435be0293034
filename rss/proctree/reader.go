// Package proctree reads a tree of processes from /proc: who belongs to it,
// and what each uses.
//
// A process is (PID, start time), never a PID. The tree is the command and all
// its descendants by parent; a descendant that loses its parent stays in the
// tree until it ends, and so do the children it makes from then on. What is
// born and orphaned between two readings is never seen as a descendant: it
// belongs to the tree where an [Adopter] took it, and is missed elsewhere, where
// only a cgroup's cgroup.procs shows it.
//
// RSS and its parts come from /proc/PID/status, whose counters may lag behind
// by some pages for each thread or CPU (up to 64 pages a thread before Linux
// 6.2); smaps_rollup is exact and expensive. A process that vanishes while it is
// read is normal. One that cannot be read, or reads as nonsense, is counted in
// [rss.Gaps] where it belongs to the tree: sums are then too small.
//
// A [Reader] belongs to one goroutine. PSS, PSSInPieces, Parts and MappedFiles
// alone may be called beside the other methods: smaps and smaps_rollup wait for
// the process's mmap_lock and can hang.
package proctree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Reader reads processes below one mount point of procfs. It remembers the
// population of the last [Reader.Tree] and keeps descriptors: of the mount
// point, of loadavg, and one for each process of the tree, of which there are
// 8,192 at most and a quarter of RLIMIT_NOFILE. Close gives them back.
type Reader struct {
	proc  string
	f     *files
	kept  kept
	forks forks

	roots  map[int]rss.ProcID // by PID
	first  rss.ProcID         // of the roots, as it was given
	known  map[int]*entry
	tick   uint64
	listed uint64 // tick of the last listing of /proc
	lists  uint64 // listings so far
	pids   []int  // of the last listing
	tree   []*entry
	// adopters are whose children orphans of the tree become, by PID.
	adopters map[int]Adopter
	unseen   int // processes of the tree that the last listing could not show
}

// New returns a reader of the procfs mounted at proc, "/proc" outside tests.
// It opens nothing yet.
func New(proc string) *Reader {
	return &Reader{proc: proc, f: newFiles(proc), known: map[int]*entry{}, adopters: map[int]Adopter{}}
}

// Close gives the reader's descriptors back. The reader opens them again if it
// is used again.
func (r *Reader) Close() {
	r.forgetAll()
	r.forks.close()
	r.f.close()
}

// StartTime returns the start time of a process in clock ticks since boot,
// field 22 of /proc/PID/stat.
func StartTime(proc string, pid int) (uint64, error) {
	// Neither newFiles nor package os, whose poller registers each file: the leader
	// calls this for every rank every few seconds.
	var buf [2 << 10]byte
	n, err := readOnce(proc+"/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return 0, fmt.Errorf("cannot read stat of process %d: %w", pid, err)
	}
	s, err := parseStat(buf[:n])
	if err != nil {
		return 0, fmt.Errorf("cannot parse stat of process %d: %w", pid, err)
	}
	return s.start, nil
}

// One reads one process, by /proc/PID/stat and status.
func (r *Reader) One(pid int) (rss.Proc, error) {
	var e entry
	p, err := r.read(pid, &e)
	if err != nil {
		return rss.Proc{}, fmt.Errorf("cannot read process %d: %w", pid, err)
	}
	return p, nil
}

// Group reads the processes with these PIDs, in the order given; those that
// have vanished or cannot be read are left out and counted. The error says that
// we had no descriptor or memory left to read one: see [Reader.Trees].
func (r *Reader) Group(pids []int) ([]rss.Proc, rss.Gaps, error) {
	var gaps rss.Gaps
	procs := make([]rss.Proc, 0, len(pids))
	for _, pid := range pids {
		e := r.known[pid]
		if e == nil {
			e = new(entry)
		}
		p, err := r.read(pid, e)
		if shortage(err) {
			return nil, gaps, fmt.Errorf("cannot read process %d: %w", pid, err)
		}
		if err != nil {
			count(&gaps, err)
			continue
		}
		if e.member == nil {
			e.start, e.parent = p.ID.Start, p.Parent
		}
		procs = append(procs, p)
	}
	return procs, gaps, nil
}

// SumRSS returns the sum of RSS over the population of the last Tree, by
// /proc/PID/statm alone: nothing is discovered, and what has ended since
// counts 0. The fast tick's measure.
func (r *Reader) SumRSS() (rss.Bytes, error) {
	var sum rss.Bytes
	var failed error
	for _, e := range r.tree {
		if e.proc.RSS == 0 {
			continue
		}
		var n rss.Bytes
		b, err := r.readStatm(e)
		if err == nil {
			n, err = parseResident(b)
		}
		if err == nil {
			sum += n
		} else if !Vanished(err) && failed == nil {
			failed = fmt.Errorf("cannot read statm of process %d: %w", e.pid, err)
		}
	}
	return sum, failed
}

// read reads stat and status of one process. The name is kept in e, so that it
// is allocated once in a process's life.
func (r *Reader) read(pid int, e *entry) (rss.Proc, error) {
	b, err := r.f.read(pid, "stat")
	if err != nil {
		return rss.Proc{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return rss.Proc{}, err
	}
	if e.comm != string(s.comm) {
		e.comm = string(s.comm)
	}
	p := rss.Proc{
		ID:      rss.ProcID{PID: pid, Start: s.start},
		Parent:  s.parent,
		Reaped:  s.reaped,
		Comm:    e.comm,
		State:   s.state,
		Role:    role(e.comm),
		Threads: s.threads,
	}
	if b, err = r.f.read(pid, "status"); err != nil {
		return rss.Proc{}, err
	}
	u, err := parseStatus(b)
	if err != nil {
		return rss.Proc{}, err
	}
	if s.state == 'Z' && s.threads > 1 {
		if u, err = r.liveThread(pid, u); err != nil {
			return rss.Proc{}, err
		}
	}
	p.RSS, p.Anon, p.File, p.Shmem, p.Virtual = u.rss, u.anon, u.file, u.shmem, u.virtual
	p.Locked, p.Pinned, p.Peak = u.locked, u.pinned, u.peak
	return p, nil
}

// liveThread returns what another thread of the process shows where its main
// thread has ended before the others: the memory is still there, and
// /proc/PID/status of the main thread no longer tells. Its error is a [shortage].
func (r *Reader) liveThread(pid int, u status) (status, error) {
	t := newFiles(fmt.Sprintf("%s/%d/task", r.proc, pid))
	defer t.close()
	tids, err := t.pids(nil)
	if shortage(err) {
		return u, err
	}
	for _, tid := range tids {
		if tid == pid {
			continue
		}
		b, err := t.read(tid, "status")
		if shortage(err) {
			return u, err
		}
		if err != nil {
			continue
		}
		if v, err := parseStatus(b); err == nil && v.rss > 0 {
			return v, nil
		}
	}
	return u, nil
}

func count(g *rss.Gaps, err error) {
	switch {
	case Vanished(err):
		g.Vanished++
	case Denied(err):
		g.Denied++
	default:
		g.Malformed++
	}
}

// kept counts the descriptors that stay open between two readings. A pread of
// a kept statm costs a fifth of open, read and close, and fails with ESRCH once
// its process has been reaped, even if its PID is used again. Where no more may be
// kept, files are opened and closed.
type kept struct {
	open, most int
	asked      bool
}

// maxKept is the most descriptors that are kept, and never more than a quarter of
// RLIMIT_NOFILE: the limit is the watcher's own, the node's file table is shared.
const maxKept = 8192

func (k *kept) room() bool {
	if !k.asked {
		k.asked = true
		var r syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
			k.most = int(min(r.Cur/4, maxKept))
		}
	}
	return k.open < k.most
}

// pread reads a small file from its beginning through a kept descriptor. The
// call is raw: neither statm nor loadavg can wait for anything, and the runtime
// need not prepare for it.
func pread(fd int, buf []byte) ([]byte, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
		switch errno {
		case 0:
			return buf[:n], nil
		case syscall.EINTR:
		default:
			return nil, errno
		}
	}
}

// onProcfs says that a file is the kernel's own, not one of a copy or of lxcfs:
// only there does a kept descriptor tell that a process has ended, and is what
// is read of this moment.
func onProcfs(fd int) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(fd, &s) == nil && s.Type == unix.PROC_SUPER_MAGIC
}

// forks tells whether a process or thread was started since it was asked last,
// by the last PID in /proc/loadavg (proc_loadavg(5)): the PID namespace's own,
// and moved by every fork in it.
type forks struct {
	fd   int // of loadavg plus 1, 0 for not opened, -1 where it cannot serve
	last uint64
}

// happened is true where it cannot be told.
func (k *forks) happened(f *files) bool {
	if k.fd == 0 {
		k.fd = -1
		fd, err := f.openPath("loadavg")
		if shortage(err) {
			k.fd = 0
		}
		if err == nil {
			if onProcfs(fd) {
				k.fd = fd + 1
			} else {
				syscall.Close(fd)
			}
		}
	}
	if k.fd < 0 {
		return true
	}
	b, err := pread(k.fd-1, f.buf)
	if err != nil {
		return true
	}
	last, ok := parseLastPID(b)
	same := ok && last == k.last
	k.last = last
	return !same
}

func (k *forks) close() {
	if k.fd > 0 {
		syscall.Close(k.fd - 1)
	}
	*k = forks{}
}

// parseLastPID reads the fifth field of /proc/loadavg, after three averages and
// "running/all". 0 is no PID: the kernel does not know it.
func parseLastPID(b []byte) (uint64, bool) {
	var w []byte
	for range 5 {
		w, b = field(b)
	}
	n, ok := number(w)
	return n, ok && n > 0
}

// Vanished says that err means the process has ended: ENOENT when a file of it
// is opened, ESRCH when one is read that was opened before.
func Vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// Denied says that err means the process is there and may not be read, for
// instance under hidepid (proc(5)).
func Denied(err error) bool { return errors.Is(err, fs.ErrPermission) }

// shortage says that err tells nothing of the process: we have no descriptor, or
// no memory, left to read it.
func shortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// files reads small files below one directory into one buffer, without
// allocating.
type files struct {
	root  string
	dir   *os.File
	path  []byte
	buf   []byte
	real  bool // root is the kernel's procfs
	hides bool // … and processes of others are not to be seen in it
}

func newFiles(root string) *files {
	return &files{root: root, path: make([]byte, 0, 64), buf: make([]byte, 8<<10)}
}

func (f *files) open() error {
	if f.dir != nil {
		return nil
	}
	d, err := os.Open(f.root)
	if err != nil {
		return err
	}
	f.dir, f.real = d, onProcfs(int(d.Fd()))
	f.hides = f.real && hidesOthers(f.root)
	return nil
}

func (f *files) close() {
	if f.dir != nil {
		f.dir.Close()
		f.dir = nil
	}
}

// longest is where a file is cut. The Groups line of status, before the
// numbers wanted, may hold 65536 groups.
const longest = 1 << 20

// read returns the contents of PID/name, valid until the next call.
func (f *files) read(pid int, name string) ([]byte, error) {
	fd, err := f.openFile(pid, name)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	n := 0
	for n < longest {
		if n == len(f.buf) {
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
		m, err := syscall.Read(fd, f.buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		n += max(m, 0)
		// Each of these files is one record (single_open in fs/proc): a read
		// that leaves room in the buffer has met the end.
		if m <= 0 || n < len(f.buf) {
			break
		}
	}
	return f.buf[:n], nil
}

func (f *files) openFile(pid int, name string) (int, error) {
	f.path = strconv.AppendInt(f.path[:0], int64(pid), 10)
	f.path = append(f.path, '/')
	return f.openRest(name)
}

// openPath opens a file of the root itself.
func (f *files) openPath(name string) (int, error) {
	f.path = f.path[:0]
	return f.openRest(name)
}

func (f *files) openRest(name string) (int, error) {
	if err := f.open(); err != nil {
		return -1, err
	}
	f.path = append(f.path, name...)
	f.path = append(f.path, 0)
	return openat(int(f.dir.Fd()), f.path)
}

// openat opens the file with the NUL-terminated path for reading.
func openat(dir int, path []byte) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&path[0])),
			unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

func (f *files) pids(dst []int) ([]int, error) {
	if err := f.open(); err != nil {
		return dst, err
	}
	fd := int(f.dir.Fd())
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return dst, err
	}
	err := inPieces(func(b []byte) (int, error) { return unix.Getdents(fd, b) }, f.buf, func(b []byte) error {
		dst = appendPIDs(dst, b)
		return nil
	})
	return dst, err
}

// appendPIDs parses struct linux_dirent64 records (getdents64(2)): inode 8
// bytes, offset 8, record length 2, type 1, then the NUL-terminated name.
func appendPIDs(dst []int, b []byte) []int {
	const head = 19
	for len(b) > head {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= head || size > len(b) {
			return dst
		}
		pid, digits := 0, 0
		for _, c := range b[head:size] {
			if c < '0' || c > '9' || digits > 9 {
				if c != 0 {
					digits = 0
				}
				break
			}
			pid = pid*10 + int(c-'0')
			digits++
		}
		if digits > 0 && pid > 0 {
			dst = append(dst, pid)
		}
		b = b[size:]
	}
	return dst
}

// readOnce reads a file that the kernel gives out whole, up to the size of the
// buffer.
func readOnce(path string, buf []byte) (int, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	for {
		n, err := syscall.Read(fd, buf)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
