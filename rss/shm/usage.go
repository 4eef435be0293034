package shm

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

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
	for {
		if err = unix.Fstatfs(fd, &fs); err == nil {
			return space(&fs, uint64(st.Dev), above), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return s, err
		}
	}
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
