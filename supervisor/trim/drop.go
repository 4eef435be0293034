package trim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Dropped is what a file had in the page cache before and after [Drop].
type Dropped struct {
	Before, After rss.Bytes
	Measured      bool // false where the kernel does not say: before 6.5, or not to us
}

var errOther = errors.New("another file is there now")

// Drop has the kernel forget what the page cache has of a file that a process
// maps, by the path, device and inode of its [Mapping]. Pages that are mapped
// stay, so trim all processes that map it first; dirty ones stay too. A cgroup's charge
// falls by what leaves. It may hang, as all that opens files.
func Drop(proc string, pid int, path string, dev, inode uint64) (Dropped, error) {
	f, err := openMapped(proc, pid, path, dev, inode)
	if err != nil {
		return Dropped{}, fmt.Errorf("cannot drop %s: %w", path, err)
	}
	defer f.Close()
	var d Dropped
	var before, after bool
	d.Before, before = cached(f)
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return Dropped{}, fmt.Errorf("cannot drop %s: %w", path, err)
	}
	d.After, after = cached(f)
	d.Measured = before && after
	return d, nil
}

// openMapped opens the file that a process maps, and no other. The kernel shows
// paths from our root, which is the process's where a container pivoted to its
// own, and is not after a chroot(2): both are tried.
func openMapped(proc string, pid int, path string, dev, inode uint64) (*os.File, error) {
	var first error
	for _, root := range []string{filepath.Join(proc, strconv.Itoa(pid), "root"), ""} {
		f, err := openSame(root+path, dev, inode)
		if err == nil {
			return f, nil
		}
		if first == nil || errors.Is(first, unix.ENOENT) {
			first = err
		}
	}
	return nil, first
}

func openSame(name string, dev, inode uint64) (*os.File, error) {
	// Whatever has taken the name meanwhile: a FIFO must not hold us up, and a
	// terminal must not become ours.
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errOther
	}
	if err == nil {
		err = mapsAs(fd, dev, inode)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mapsAs checks that a mapping of the file shows that device and inode. They
// are read where those were read, because stat(2) has other numbers for the same
// file on btrfs and overlayfs.
func mapsAs(fd int, dev, inode uint64) error {
	b, err := unix.Mmap(fd, 0, int(pageBytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(b)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	same := false
	err = eachMapping(maps, func(h header, ok bool) error {
		if ok && h.Start <= at && at < h.End {
			same = h.Dev == dev && h.Inode == inode
		}
		return nil
	})
	if err == nil && !same {
		err = errOther
	}
	return err
}

// cached is how much of a file is in the page cache. The kernel tells
// the file's owner and users that may write it (cachestat(2)).
func cached(f *os.File) (rss.Bytes, bool) {
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
		return 0, false
	}
	return rss.Bytes(st.Cache * pageBytes), true
}
