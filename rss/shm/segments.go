package shm

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
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

// Held is what some processes hold in shared memory, each segment once however
// many do, the largest first. What is under way in a socket is held by nobody.
type Held struct {
	Segments []Segment
	// More says that the reading stopped at what it may read at most: there may
	// be others.
	More bool
	// Vanished and Denied are processes, ended or not ours, whose part is not in
	// it.
	Vanished, Denied int
	Cost             time.Duration // processor time of the reading
}

// Sum adds up the segments on one file system, or on all with dev 0. It is an
// upper bound where one is [Segment].Bound.
func (h *Held) Sum(dev uint64) map[Kind]Total {
	sum := map[Kind]Total{}
	for i := range h.Segments {
		if s := &h.Segments[i]; dev == 0 || s.Dev == dev {
			t := sum[s.Kind]
			sum[s.Kind] = Total{t.Files + 1, t.Size + s.Size}
		}
	}
	return sum
}

// Segments finds what processes hold, by the links of /proc/PID/fd
// (proc_pid_fd(5)) and the lines of /proc/PID/maps (proc_pid_maps(5)). At most
// most descriptors and mappings are read in all, some 1 us each; 0 means 400,000.
// A Python worker with torch has some 1,500 mappings. Of what is mapped and not open, the size is told
// exactly by /proc/PID/map_files, which takes CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN, else only bounded.
//
// The error says that there is no procfs. A process that cannot be read is
// counted, and is none.
func Segments(proc string, pids []int, most int) (Held, error) {
	if most <= 0 {
		most = 400_000
	}
	if _, err := os.Stat(proc); err != nil {
		return Held{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	r := reading{left: most, found: map[key]*Segment{}, buf: bufio.NewReaderSize(nil, 16<<10)}
	var h Held
	failed := make([]error, len(pids))
	// Descriptors of all come first: they are few, and tell sizes exactly.
	for _, part := range []func(string, int) error{r.descriptors, r.maps} {
		for i, pid := range pids {
			if failed[i] == nil {
				failed[i] = part(filepath.Join(proc, strconv.Itoa(pid)), pid)
			}
		}
	}
	for _, err := range failed {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
			h.Vanished++
		case err != nil:
			h.Denied++
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
	h.More = r.left < 0
	h.Cost = threadTime() - began
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
		if m, ok := parseMapping(bytes.TrimSuffix(line, []byte("\n"))); ok && err == nil {
			r.mapping(dir, pid, m)
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

func (r *reading) mapping(dir string, pid int, m mapping) {
	if s := r.found[key{m.dev, m.inode}]; s != nil && !s.Bound {
		r.hold(*s, pid)
		return
	}
	if s, ok := stated(filepath.Join(dir, "map_files", m.addresses), m.name, m.kind); ok && s.Inode == m.inode {
		r.hold(s, pid)
		return
	}
	r.hold(Segment{Dev: m.dev, Inode: m.inode, Name: m.name, Kind: m.kind, Deleted: m.deleted, Size: m.reach, Bound: true}, pid)
}

// threadTime is the processor's time that the calling thread has taken.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // not since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}
