// Package shm reads what is in shared memory: how full the /dev/shm of a
// process is, and who holds what in it.
//
// A page of tmpfs is in no process's RSS unless it is mapped, and stays when all
// have ended as long as the file has a name. PyTorch sends batches through such
// files: by its file_descriptor strategy they have no name (torch_* opened and
// removed at once, held by descriptors and mappings alone), by file_system they
// have one, and torch_shm_manager removes it.
//
// Everything here goes through /proc/PID/root, so that it is the /dev/shm which
// that process sees, and needs the access that ptrace(2) calls PTRACE_MODE_READ:
// the same user, and no more rights than we. A PID may have gone to another
// process meanwhile: who needs to be sure compares its start time after.
//
// A tmpfs answers at once, but /dev/shm may be anything, a hung FUSE file system
// too, and maps waits for the process's mmap_lock: call all of this on a side
// goroutine, with a deadline of the caller's.
package shm

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Segment is one file in shared memory that processes hold.
type Segment struct {
	Dev, Inode uint64 // st_dev is Space.Dev for all of one /dev/shm
	Name       string // below /dev/shm, or memfd_create's name
	Kind       Kind
	// Deleted says that it has no name any more: it is gone with its last holder.
	Deleted bool
	// Size is what it takes: 512 times st_blocks of stat(2). Pages in swap count.
	Size rss.Bytes
	// Bound says that the file could not be asked, since only mappings hold it:
	// Size is how far they reach into it, and it takes no more than that as long
	// as all of it is mapped.
	Bound bool
	// Holders are the PIDs that have it open or mapped, those that were asked
	// for, sorted.
	Holders []int
}

// Held is what some processes hold in shared memory: each segment once, however many
// processes hold it, the largest first. A descriptor in transit in a socket does not count.
type Held struct {
	Segments []Segment
	Cost     time.Duration // processor time of the reading
}

// Sum adds up the segments on one file system. It is an
// upper bound where one is [Segment].Bound.
func (h *Held) Sum(dev uint64) map[Kind]rss.Bytes {
	sum := map[Kind]rss.Bytes{}
	for i := range h.Segments {
		if s := &h.Segments[i]; s.Dev == dev {
			sum[s.Kind] += s.Size
		}
	}
	return sum
}

// mostRead is how many descriptors and mappings are read in all.
var mostRead = 400_000

// Segments finds what processes hold, by the links of /proc/PID/fd
// (proc_pid_fd(5)) and the lines of /proc/PID/maps (proc_pid_maps(5)). They
// are some 1 us each, and bounded.
// A Python worker with torch has some 1,500 mappings. /proc/PID/map_files has the size of
// what is mapped and not open, with CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; without it the
// size is only bounded.
//
// The error says that there is no procfs. What a process holds that cannot be read is
// not in it.
func Segments(proc string, pids []int) (Held, error) {
	if _, err := os.Stat(proc); err != nil {
		return Held{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := procfile.ThreadTime()
	r := reading{left: mostRead, found: map[key]*Segment{}, buf: bufio.NewReaderSize(nil, 16<<10)}
	var h Held
	failed := make([]bool, len(pids))
	// Descriptors of all come first: they are few, and tell sizes exactly.
	for _, part := range []func(string, int) error{r.descriptors, r.maps} {
		for i, pid := range pids {
			failed[i] = failed[i] || part(filepath.Join(proc, strconv.Itoa(pid)), pid) != nil
		}
	}
	for _, s := range r.found {
		slices.Sort(s.Holders)
		s.Holders = slices.Compact(s.Holders)
		h.Segments = append(h.Segments, *s)
	}
	slices.SortFunc(h.Segments, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Inode, b.Inode))
	})
	h.Cost = procfile.ThreadTime() - began
	return h, nil
}

type key struct{ dev, inode uint64 }

type reading struct {
	left  int // how many more may be read; below 0 once there were more
	found map[key]*Segment
	buf   *bufio.Reader
}

// next takes one of what may be read.
func (r *reading) next() bool {
	if r.left >= 0 {
		r.left--
	}
	return r.left >= 0
}

// hold enters a segment, or another holder of it. What stat says replaces what
// mappings bound.
func (r *reading) hold(s Segment, pid int) {
	k := key{s.Dev, s.Inode}
	old := r.found[k]
	switch {
	case old == nil:
		old = &s
		r.found[k] = old
	case old.Bound && !s.Bound:
		s.Holders = old.Holders
		*old = s
	case old.Bound:
		old.Size = max(old.Size, s.Size)
	}
	if n := len(old.Holders); n == 0 || old.Holders[n-1] != pid {
		old.Holders = append(old.Holders, pid)
	}
}

// stated is the segment that a link leads to; false where it is another file by
// now, or cannot be asked.
func stated(link, name string, k Kind) (Segment, bool) {
	var st unix.Stat_t
	if unix.Stat(link, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Segment{}, false
	}
	return Segment{
		Dev: uint64(st.Dev), Inode: st.Ino, Name: name, Kind: k,
		Deleted: st.Nlink == 0, Size: rss.Bytes(st.Blocks) * 512,
	}, true
}

// descriptors reads /proc/PID/fd. Only what lies in shared memory by its name is
// asked for its size: another file's stat may hang with its file system.
func (r *reading) descriptors(dir string, pid int) error {
	d, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return err
	}
	defer d.Close()
	buf := make([]byte, 512)
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if !r.next() {
				return nil
			}
			link := filepath.Join(dir, "fd", name)
			n, err := unix.Readlink(link, buf)
			if err != nil {
				continue // it was closed
			}
			if name, k, ok := nameOf(string(buf[:n])); ok {
				if s, ok := stated(link, name, k); ok {
					r.hold(s, pid)
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maps reads /proc/PID/maps.
func (r *reading) maps(dir string, pid int) error {
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return err
	}
	defer f.Close()
	r.buf.Reset(f)
	for {
		line, err := r.buf.ReadSlice('\n')
		if len(line) > 0 && !r.next() {
			return nil
		}
		if addresses, s, ok := parseMapping(bytes.TrimSuffix(line, []byte("\n"))); ok && err == nil {
			r.mapping(dir, pid, addresses, s)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // no path is as long
			_, err = r.buf.ReadSlice('\n')
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reading) mapping(dir string, pid int, addresses string, s Segment) {
	if known := r.found[key{s.Dev, s.Inode}]; known != nil && !known.Bound {
		s = *known
	} else if told, ok := stated(filepath.Join(dir, "map_files", addresses), s.Name, s.Kind); ok && told.Inode == s.Inode {
		s = told
	}
	r.hold(s, pid)
}

// Kind is what made a file, as its name tells.
type Kind string

// The kinds. Memfd is outside of /dev/shm, on a tmpfs of the kernel's own that
// has no size: memfd_create(2).
const (
	Torch     Kind = "torch"     // torch_*: tensors of PyTorch
	Python    Kind = "python"    // psm_*: multiprocessing.shared_memory; pym-*: multiprocessing.Array and Value
	Semaphore Kind = "semaphore" // sem.*, mp-*: sem_open(3), one page each
	NCCL      Kind = "nccl"      // nccl-*: between the ranks of a node
	Memfd     Kind = "memfd"
	Other     Kind = "other"
)

// kind knows a file by the last part of its name.
func kind(base string) Kind {
	for _, k := range [...]struct {
		prefix string
		kind   Kind
	}{
		{"torch_", Torch}, {"psm_", Python}, {"pym-", Python},
		{"sem.", Semaphore}, {"mp-", Semaphore}, {"nccl-", NCCL},
	} {
		if strings.HasPrefix(base, k.prefix) {
			return k.kind
		}
	}
	return Other
}

const (
	deleted = " (deleted)"
	memfd   = "/memfd:"
	below   = "/dev/shm/"
)

// nameOf takes a link of /proc/PID/fd, or a path of maps, apart (proc_pid_fd(5)):
// ok where it is in shared memory. Where the process has another root than we,
// a path may begin with the way there.
func nameOf(link string) (name string, k Kind, ok bool) {
	name = strings.TrimSuffix(link, deleted)
	if rest, ok := strings.CutPrefix(name, memfd); ok {
		return rest, Memfd, true
	}
	i := strings.Index(name, below)
	if i < 0 || !strings.HasPrefix(name, "/") {
		return "", "", false
	}
	name = name[i+len(below):]
	return name, kind(name[strings.LastIndexByte(name, '/')+1:]), true
}

// parseMapping reads a line of /proc/PID/maps, as the segment that it bounds; ok where that
// lies in shared memory. The addresses are its name in map_files.
func parseMapping(line []byte) (addresses string, s Segment, ok bool) {
	// Nearly every line is another file's, or no file's.
	if !bytes.Contains(line, []byte(below)) && !bytes.Contains(line, []byte(memfd)) {
		return "", s, false
	}
	m, whole := procfile.ParseMapping(line)
	s = Segment{Dev: m.Dev, Inode: m.Inode, Size: rss.Bytes(m.Offset + (m.End - m.Start)), Bound: true}
	s.Deleted = bytes.HasSuffix(m.Path, []byte(deleted))
	s.Name, s.Kind, ok = nameOf(string(m.Path))
	addresses, _, _ = strings.Cut(string(line), " ")
	return addresses, s, ok && whole && uint64(s.Size) >= m.Offset
}

// Space is how full a file system is.
type Space struct {
	// Dev is st_dev: two processes that have the same one share their /dev/shm,
	// whatever they call it.
	Dev uint64
	// Size is what fits, in bytes; 0 for a tmpfs without a limit (size=0). A
	// cgroup's limit may end it sooner: the pages are charged.
	Size, Used rss.Bytes
	// Inodes is how many files fit, 0 for no limit. Either one used up gives
	// ENOSPC, and a page of a file that is written through a mapping SIGBUS.
	Inodes, InodesUsed uint64
	// Tmpfs says that it is in memory.
	Tmpfs bool
	// Mount says that /dev/shm is the root of a file system of its own, and not
	// a directory of the one that /dev is on: Size is then that one's.
	Mount bool
}

// Usage reads the file system of a process's /dev/shm by statfs(2). The error
// wraps ENOENT where the process has ended or has no /dev/shm, and EACCES where
// it may not be looked into. It takes some 10 us.
func Usage(proc string, pid int) (s Space, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot read /dev/shm of process %d: %w", pid, err)
		}
	}()
	fd, above, err := openShm(proc, pid)
	if err != nil {
		return s, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return s, err
	}
	for range 10 { // a filter may refuse with EINTR for good
		if err = unix.Fstatfs(fd, &fs); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return s, err
	}
	return space(&fs, uint64(st.Dev), above), nil
}

// space is what statfs says, in bytes.
func space(fs *unix.Statfs_t, dev, above uint64) Space {
	block := rss.Bytes(fs.Bsize)
	return Space{
		Dev:        dev,
		Size:       rss.Bytes(fs.Blocks) * block,
		Used:       rss.Bytes(fs.Blocks).Sub(rss.Bytes(fs.Bfree)) * block,
		Inodes:     fs.Files,
		InodesUsed: uint64(rss.Bytes(fs.Files).Sub(rss.Bytes(fs.Ffree))),
		Tmpfs:      fs.Type == unix.TMPFS_MAGIC,
		Mount:      dev != above,
	}
}

// openShm opens the /dev/shm of a process, for fstat, fstatfs and openat alone,
// and tells the st_dev of its /dev.
func openShm(proc string, pid int) (fd int, above uint64, err error) {
	root, err := unix.Open(filepath.Join(proc, strconv.Itoa(pid), "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	defer unix.Close(root)
	dev, err := openIn(root, "dev")
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	err = unix.Fstat(dev, &st)
	unix.Close(dev)
	if err != nil {
		return -1, 0, err
	}
	fd, err = openIn(root, "dev/shm")
	return fd, uint64(st.Dev), err
}

// openIn opens a directory below root. /dev/shm is a symbolic link on some
// systems, and must be followed as the process would: "/run/shm" is its own.
func openIn(root int, name string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	for {
		fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT})
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // something was renamed meanwhile
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // before Linux 5.6, or seccomp's doing
			return unix.Openat(root, name, flags|unix.O_NOFOLLOW, 0)
		default:
			return fd, err
		}
	}
}
