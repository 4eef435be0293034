package nodedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrOthers is the error for a file in whose place another user may have put something.
var ErrOthers = errors.New("it belongs to another user")

// WithoutPath is an error without the name of the file, for a message that has the name.
func WithoutPath(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// ErrSpecial is the error for a pipe, a socket or a device where a file is expected.
var ErrSpecial = errors.New("it is a pipe, a socket or a device")

// Replace has the file at path hold what write writes, all of it or nothing. It is written
// beside path and renamed: what lies at path, a pipe or a hard link, is not written to. Of
// links only those of root and this user are followed. /dev/stdout and the like are
// written to as they are.
func Replace(path string, write func(io.Writer) error) error {
	if isDevice(path) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	path, there, err := target(path)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0)
	if there != nil {
		var st unix.Stat_t
		err := unix.Fstat(int(there.Fd()), &st)
		there.Close()
		switch {
		case err != nil:
			return err
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			return unix.EISDIR
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			return ErrSpecial
		case int(st.Uid) == os.Geteuid():
			mode = fs.FileMode(st.Mode & 0o777)
		}
	}
	part := filepath.Join(filepath.Dir(path), fmt.Sprintf(".rsswarden-%d-%x", os.Getpid(), rand.Uint64()))
	return WriteRenamed(unix.AT_FDCWD, part, path, 0o666, func(f *os.File) error {
		if err := write(f); err != nil || mode == 0 {
			return err
		}
		return f.Chmod(mode)
	})
}

// WriteRenamed has the file at path hold what write writes, all of it or nothing: readers
// see the old content or the new. It is written to part, on the same file system, and
// renamed. Others may be able to write there too: part is made, never opened, and what lies
// there is removed, a pipe or a link. Names that are not absolute are below the directory
// at, a descriptor or AT_FDCWD. perm is less the umask. Nothing is synced: what is written
// so need not survive a loss of power.
func WriteRenamed(at int, part, path string, perm uint32, write func(*os.File) error) error {
	if errors.Is(unix.Unlinkat(at, part, 0), unix.EISDIR) {
		_ = unix.Unlinkat(at, part, unix.AT_REMOVEDIR)
	}
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(at, part, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, perm)
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: part, Err: err}
	}
	f := os.NewFile(uintptr(fd), part)
	if err = errors.Join(write(f), f.Close()); err == nil {
		if err = unix.Renameat(at, part, at, path); err != nil {
			err = &os.LinkError{Op: "rename", Old: part, New: path, Err: err}
		}
	}
	if err != nil {
		_ = unix.Unlinkat(at, part, 0) // half a file at best
	}
	return err
}

// OpenAppend opens a file to append to it, and makes it where it is missing. It may be a
// pipe of this user's, and then the call waits for a reader. Links are followed as by
// [Replace].
func OpenAppend(path string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND
	if isDevice(path) {
		return os.OpenFile(path, flags, 0)
	}
	for range 100 {
		at, there, err := target(path)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if there == nil {
			f, err := os.OpenFile(at, flags|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, fs.ErrExist) {
				continue // made meanwhile
			}
			return f, err
		}
		// What was looked at is opened, whatever path leads to by now.
		f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(there.Fd())), flags, 0)
		there.Close()
		if err != nil {
			var sys *fs.PathError
			if errors.As(err, &sys) {
				sys.Path = path
			}
			return nil, err
		}
		return f, nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: ErrOthers}
}

// isDevice says that path names a descriptor or a device, whose directory only root can
// write to.
func isDevice(path string) bool {
	return slices.Contains([]string{"/dev", "/dev/fd", "/dev/pts", "/proc/self/fd"}, filepath.Dir(filepath.Clean(path)))
}

// target opens what lies at path, by O_PATH, and returns the path behind the links; nil
// where there is nothing. The last link must be root's or this user's, and lead through
// what only they can change. What is there must be theirs too where all users can make
// files, and wherever it is no regular file.
func target(path string) (string, *os.File, error) {
	for range mostLinks {
		fd, st, err := look(unix.AT_FDCWD, path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		f := os.NewFile(uintptr(fd), path)
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFLNK {
			if !Trusted(st.Uid) && (kind != unix.S_IFREG || isShared(filepath.Dir(path))) {
				f.Close()
				return "", nil, ErrOthers
			}
			return path, f, nil
		}
		to, err := readLink(fd)
		f.Close()
		if err != nil {
			return "", nil, err
		}
		if !Trusted(st.Uid) {
			return "", nil, ErrOthers
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		dir, err := Resolve(filepath.Dir(to))
		if err != nil {
			return "", nil, fmt.Errorf("it is a link: %w", err)
		}
		path = filepath.Join(dir, filepath.Base(to))
	}
	return "", nil, unix.ELOOP
}

// isShared says whether all users can make files in a directory.
func isShared(dir string) bool {
	info, err := os.Stat(dir)
	return err != nil || info.Mode().Perm()&0o002 != 0
}
