// Package nodedir makes and checks directories on node-local storage that only
// this user can enter. What lies in them is read and executed as the user's
// own, so nobody else may be able to put something there, and it is looked at
// often, so it may not lie on a file server.
package nodedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Make makes a directory that only this user can enter, or checks that it is
// one.
func Make(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return os.Chmod(dir, 0o700)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return CheckOwn(dir)
}

// CheckOwn says whether dir is a directory, no link, of this user, that nobody
// else can enter.
func CheckOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	case !ok || int(st.Uid) != os.Geteuid() || foreign(st.Uid):
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm() != 0o700:
		return fmt.Errorf("%s has mode %04o, not 0700", dir, info.Mode().Perm())
	}
	return nil
}

// Resolve returns the path of a directory without links in it. Root or this user owns
// each directory and each link on the way, and nobody else can rename or replace one: the
// returned path leads to the same directory until root or this user changes it. The path
// that was asked for may not, where one of its links is changed.
func Resolve(dir string) (string, error) { return MakeAll(dir, 0, 0) }

// MakeAll is [Resolve] for a directory that may be missing: at most so many levels of the
// path are made, with a mode of which the umask takes nothing from the owner.
func MakeAll(dir string, levels int, mode uint32) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	w := walk{fd: -1}
	defer func() { unix.Close(w.fd) }()
	if err := w.root(); err != nil {
		return "", err
	}
	rest := strings.Split(abs, "/")
	for links := 0; len(rest) > 0; {
		name, next := rest[0], filepath.Join(w.path, rest[0])
		if next == w.path { // "", "." and, in /, ".."
			rest = rest[1:]
			continue
		}
		fd, st, err := look(w.fd, name)
		if errors.Is(err, fs.ErrNotExist) && len(rest) <= levels {
			fd, st, err = makeIn(w.fd, name, mode)
		}
		if err != nil {
			return "", &fs.PathError{Op: "open", Path: next, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			rest = rest[1:]
			if err := w.enter(fd, next, &st); err != nil {
				return "", err
			}
			continue
		}
		to, err := readLink(fd)
		unix.Close(fd)
		if links++; links > mostLinks {
			err = unix.ELOOP
		}
		if err != nil {
			return "", &fs.PathError{Op: "readlink", Path: next, Err: err}
		}
		if !Trusted(st.Uid) && !w.systems(st.Uid, next) {
			return "", fmt.Errorf("the link %s belongs to another user", next)
		}
		if filepath.IsAbs(to) {
			if err := w.root(); err != nil {
				return "", err
			}
		}
		rest = append(strings.Split(to, "/"), rest[1:]...)
	}
	return w.path, nil
}

// walk is a way down from /, one component after the other, each opened relative to the
// one before. openat2(2) can refuse links, but not by their owner, and Linux has it only
// since 5.6.
type walk struct {
	fd     int    // the directory that was reached
	path   string // its path, without links
	shared bool   // others can make files in it, or in one above it
}

func (w *walk) root() error {
	fd, st, err := look(unix.AT_FDCWD, "/")
	if err != nil {
		return &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	w.shared = false
	return w.enter(fd, "/", &st)
}

// enter goes to a directory in which only root and this user can rename or replace what
// is theirs.
func (w *walk) enter(fd int, path string, st *unix.Stat_t) error {
	unix.Close(w.fd)
	w.fd, w.path = fd, path
	sticky, writable := st.Mode&unix.S_ISVTX != 0, st.Mode&0o022 != 0
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &fs.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	case !Trusted(st.Uid) && !(w.systems(st.Uid, path) || foreign(st.Uid) && sticky && !w.shared):
		return fmt.Errorf("%s belongs to another user", path)
	case writable && !sticky:
		return fmt.Errorf("%s can be written by others (mode %04o, not sticky)", path, st.Mode&0o777)
	}
	w.shared = w.shared || writable
	return nil
}

// systems says that what has the overflow ID of a user namespace is root's, as far as can
// be known: / and what lies in it, like /home, where only root makes anything. Further
// down it may be of any user, and only a directory like /var/tmp is taken for root's: it
// is sticky, and lies where others cannot make one.
func (w *walk) systems(uid uint32, path string) bool {
	return foreign(uid) && !w.shared && strings.Count(path, "/") == 1
}

// look opens a directory, a link, or another file, without following a link. O_DIRECTORY
// comes first: without it autofs(5) does not mount what is not mounted yet.
func look(dir int, name string) (fd int, st unix.Stat_t, err error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if fd, err = unix.Openat(dir, name, flags|unix.O_DIRECTORY, 0); errors.Is(err, unix.ENOTDIR) {
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// makeIn makes a directory, or opens what another process has made meanwhile.
func makeIn(dir int, name string, mode uint32) (fd int, st unix.Stat_t, err error) {
	made := unix.Mkdirat(dir, name, mode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, st, made
	}
	fd, st, err = look(dir, name)
	if err == nil && made == nil && st.Mode&0o700 != 0o700 {
		err = unix.Fchmodat(dir, name, st.Mode&0o7777|0o700, 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// readLink reads a link that was opened.
func readLink(fd int) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	return string(buf[:max(n, 0)]), err
}

// Trusted says whether uid is root or this user.
func Trusted(uid uint32) bool {
	return (uid == 0 || int(uid) == os.Geteuid()) && !foreign(uid)
}

// foreign says that uid stands for all users who have no ID in this user namespace
// (user_namespaces(7), "Unmapped user and group IDs"), this user perhaps among them.
func foreign(uid uint32) bool { return int64(uid) == overflow() }

// overflow is the ID of those users, -1 where each has one.
var overflow = sync.OnceValue(func() int64 {
	if !InUserNamespace() {
		return -1
	}
	data, err := procfile.Read("/proc/sys/kernel/overflowuid", procfile.Small)
	if n, bad := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32); err == nil && bad == nil {
		return int64(n)
	}
	return 65534
})

// InUserNamespace says that user IDs here are not the host's: root is not root there.
func InUserNamespace() bool {
	data, err := procfile.Read("/proc/self/uid_map", procfile.Small)
	return err == nil && strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295"
}

// remote lists file systems that other nodes share, by statfs(2)'s f_type: a
// file there may be seen late, and every look costs a message.
var remote = map[uint32]string{
	0x6969: "nfs", 0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb",
	0x19830326: "beegfs", 0x00c36400: "ceph", 0x5346414f: "afs", 0xaad7aaea: "panfs", 0x7461636f: "ocfs2",
	0x01161970: "gfs2", 0x20030528: "orangefs", 0x65735546: "fuse", 0x013111a8: "ibrix", 0x61756673: "aufs",
}

// CheckLocal says whether a directory lies on storage of this node.
func CheckLocal(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("cannot statfs %s: %w", dir, err)
	}
	if name, ok := remote[uint32(st.Type)]; ok {
		return fmt.Errorf("%s is not node-local: %s", dir, name)
	}
	return nil
}
