// Package nodedir makes and checks directories on node-local storage that only
// this user can enter. Their files are read and executed as the user's own, so
// no other user may write there; and they are read often, so they may not lie on
// a file server.
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
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Make makes a directory that only this user can enter, or checks that it is one.
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

// CheckOwn says whether dir is a directory, not a link, that belongs to this user and
// that no other user can enter.
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
// each directory and each link on the way, and no other user can rename or replace one: the
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
	if err := w.down(abs, levels, mode); err != nil {
		return "", err
	}
	return w.path, nil
}

// Open opens, with O_PATH, what a path leads to: the directories on the way may be of any
// user, but no link of another user is followed. Nothing happens to a device or a FIFO.
func Open(path string) (*os.File, error) { return OpenAll(path, 0, 0) }

// OpenAll is [Open] for a directory that may be missing, as in [MakeAll].
func OpenAll(path string, levels int, mode uint32) (*os.File, error) {
	w := walk{fd: -1, open: true}
	if err := w.down(path, levels, mode); err != nil {
		unix.Close(w.fd)
		return nil, err
	}
	return os.NewFile(uintptr(w.fd), w.path), nil
}

// OpenRegular opens a regular file in a directory to read it, and nothing else: a FIFO
// would be waited for, a link may lead anywhere, and opening a device can have effects.
func OpenRegular(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))
	defer f.Close()
	return Reopen(f)
}

// Reopen opens a regular file to read it that was opened with O_PATH.
func Reopen(path *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(path.Fd()), &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path.Name(), Err: err}
	}
	if kind := Kind(st.Mode); kind != "a file" {
		return nil, fmt.Errorf("%s %w: it is %s", path.Name(), ErrNotRegular, kind)
	}
	fd, err := unix.Open(FDPath(path), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), path.Name()), nil
}

// ErrNotRegular says that a file is a FIFO, a device, a link, a socket or a directory.
var ErrNotRegular = errors.New("is no regular file")

// Kind names the kind of a file, by its mode in stat(2).
func Kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// FDPath leads to what a descriptor stands for, wherever its name leads by now.
func FDPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// down goes along a path and makes what of its last levels is missing.
func (w *walk) down(path string, levels int, mode uint32) error {
	err := w.root()
	if err == nil && !filepath.IsAbs(path) { // only of w.open
		err = w.from(".")
		w.shared = true // for all that is known
	}
	if err != nil {
		return err
	}
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name, next := rest[0], filepath.Join(w.path, rest[0])
		if name == "" || name == "." || next == w.path && w.path == "/" {
			rest = rest[1:]
			continue
		}
		fd, st, err := look(w.fd, name)
		if errors.Is(err, fs.ErrNotExist) && len(rest) <= levels {
			fd, st, err = makeIn(w.fd, name, mode)
		}
		if err != nil {
			return &fs.PathError{Op: "open", Path: next, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			rest = rest[1:]
			if err := w.enter(fd, next, &st); err != nil {
				return err
			}
			continue
		}
		to, err := readLink(fd)
		unix.Close(fd)
		if links++; links > mostLinks {
			err = unix.ELOOP
		}
		if err != nil {
			return &fs.PathError{Op: "readlink", Path: next, Err: err}
		}
		if !Trusted(st.Uid) && !w.systems(st.Uid, next) {
			return fmt.Errorf("the link %s %w", next, ErrLink)
		}
		if filepath.IsAbs(to) {
			if err := w.root(); err != nil {
				return err
			}
		}
		rest = append(strings.Split(to, "/"), rest[1:]...)
	}
	return nil
}

// ErrLink says that a link on the way is neither root's nor this user's.
var ErrLink = errors.New("belongs to another user")

// walk is a way down from /, one component after the other, each opened relative to the
// one before. openat2(2) can refuse links, but not by their owner, and Linux has it only
// since 5.6.
type walk struct {
	fd     int    // the directory that was reached
	path   string // its path, without links
	shared bool   // others can make files in it, or in one above it
	open   bool   // directories of all users are gone through, and a file may be at the end
}

func (w *walk) root() error {
	w.shared = false
	return w.from("/")
}

func (w *walk) from(dir string) error {
	fd, st, err := look(unix.AT_FDCWD, dir)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return w.enter(fd, dir, &st)
}

// enter goes to a directory in which only root and this user can rename or replace what
// is theirs.
func (w *walk) enter(fd int, path string, st *unix.Stat_t) error {
	unix.Close(w.fd)
	w.fd, w.path = fd, path
	sticky, writable := st.Mode&unix.S_ISVTX != 0, st.Mode&0o022 != 0
	switch {
	case w.open:
		writable = writable || !Trusted(st.Uid)
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

// ForRoot says that this process has rights that the owner of a file may lack.
func ForRoot() bool { return os.Geteuid() == 0 && !InUserNamespace() }

// OpenPath opens, with O_PATH, what a path leads to. As root it follows no link of another
// user, which could lead anywhere.
func OpenPath(path string) (*os.File, error) {
	if ForRoot() {
		return Open(path)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// FileOf names the file of a kind that belongs to a process: KIND.PID.START. A
// process that has the PID later has another file.
func FileOf(kind string, id rss.ProcID) string {
	return fmt.Sprintf("%s.%d.%d", kind, id.PID, id.Start)
}

// ProcOf reads a name that [FileOf] wrote; false for any other.
func ProcOf(name, kind string) (rss.ProcID, bool) {
	rest, ok := strings.CutPrefix(name, kind+".")
	pid, start, found := strings.Cut(rest, ".")
	if !ok || !found {
		return rss.ProcID{}, false
	}
	p, err1 := strconv.ParseInt(pid, 10, 32)
	s, err2 := strconv.ParseUint(start, 10, 64)
	id := rss.ProcID{PID: int(p), Start: s}
	if err1 != nil || err2 != nil || id.PID <= 0 || FileOf(kind, id) != name {
		return rss.ProcID{}, false
	}
	return id, true
}

// own are the file systems that need no other machine.
var own = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "devtmpfs", "proc", "sysfs", "cgroup", "cgroup2"}

// mostLinks bounds the links on the way to a directory, as the kernel does.
const mostLinks = 40

// Unserved says that no file server, and no file system in user space, has a say on the
// way to a path: looking at it does not hang for want of one. mountinfo is what
// /proc/self/mountinfo holds. What it says no is not touched, and the root file system is
// not asked about, since this program and its libraries lie there.
func Unserved(mountinfo []byte, path string) bool {
	var others []string // where something else is mounted
	for line := range strings.Lines(string(mountinfo)) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+2 {
			return false
		}
		if f[4] != "/" && !slices.Contains(own, f[dash+1]) {
			others = append(others, unescape.Replace(f[4]))
		}
	}
	if len(mountinfo) == 0 || !filepath.IsAbs(path) {
		return false
	}
	at, rest := "/", strings.Split(filepath.Clean(path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, name) // ".." leads up from where a link has led
		if slices.Contains(others, next) {
			return false
		}
		to, err := os.Readlink(next)
		if err != nil {
			at = next // no link, or not there
			continue
		}
		if links++; links > mostLinks {
			return false
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return true
}

// unescape undoes what the kernel writes for what separates fields and lines.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

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
