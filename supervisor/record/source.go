package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/socket"
)

// mostSize bounds the file of a record that is read: none is ever larger than [fullSize].
const mostSize = fullSize

// source is the record in a directory. Its path is looked up once: what was checked is
// what is read, whoever owns it and wherever its names lead meanwhile.
type source struct {
	name string
	dir  *os.File // by O_PATH
	data *os.File
	size int64 // of data
	uid  int   // whose data is
}

func openSource(path string) (*source, error) {
	dir, err := openPath(path)
	if err != nil {
		return nil, reason(err)
	}
	s := &source{name: path, dir: dir}
	if s.data, err = nodedir.OpenRegular(dir, dataFile); err != nil {
		s.close()
		return nil, reason(err)
	}
	info, err := s.data.Stat()
	if err != nil {
		s.close()
		return nil, err
	}
	s.size, s.uid = info.Size(), int(info.Sys().(*syscall.Stat_t).Uid)
	if s.size > mostSize {
		s.close()
		return nil, fmt.Errorf("%w: it has %v, and none is larger than %v", ErrForeign, rss.Bytes(s.size), rss.Bytes(mostSize))
	}
	return s, nil
}

func (s *source) close() {
	s.dir.Close()
	if s.data != nil {
		s.data.Close()
	}
}

// reason leaves out the name of a file from an error that is printed with its name, and says
// that what is no regular file is no record.
func reason(err error) error {
	var p *fs.PathError
	switch {
	case errors.Is(err, nodedir.ErrNotRegular):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case errors.As(err, &p):
		return p.Err
	}
	return err
}

// forRoot says that this process has rights that the owner of a file may lack.
func forRoot() bool { return os.Geteuid() == 0 && !nodedir.InUserNamespace() }

// openPath opens, with O_PATH, what a path leads to. As root it follows no link of another
// user, who could have it lead anywhere; others gain nothing by that, who have no rights
// of root's to lend.
func openPath(path string) (*os.File, error) {
	if forRoot() {
		return nodedir.Open(path)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// strangersPatience bounds what another user's watcher may take to answer root.
const strangersPatience = time.Second

// dial connects to the watcher of the record. Root believes only that of the user whose
// file it is.
func (s *source) dial() (*os.File, error) {
	c, err := dialLive(s.dir)
	if err != nil || !forRoot() {
		return c, err
	}
	_, uid, err := socket.Peer(c)
	if err == nil && uid != 0 && uid != s.uid {
		err = ErrForeign
	}
	if err == nil && uid != 0 {
		err = c.SetDeadline(time.Now().Add(strangersPatience))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// own notes whose record it is, and bounds what there is to do for another user's.
func (s *source) own(r *Run) {
	if r.owner = s.uid; r.owner != os.Geteuid() {
		r.bound()
	}
}

// keep has root read a copy in memory. The child that reads it needs no right to the file
// then, and its owner can neither change nor cut it off meanwhile.
func (s *source) keep() error {
	if !forRoot() {
		return nil
	}
	fd, err := unix.MemfdCreate("rsswarden-record", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("cannot make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), s.data.Name())
	if s.size, err = io.Copy(f, io.LimitReader(s.data, mostSize)); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.data.Close()
	s.data = f
	return nil
}

// startWithoutPrivileges starts a command that no set-user-ID program gives rights to
// (prctl(2), PR_SET_NO_NEW_PRIVS). That is a thread's own, and a thread ends with the
// goroutine that is locked to it.
func startWithoutPrivileges(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// nobodyID is the user and the group who own nothing.
const nobodyID = 65534

// What a child may use of the machine: a record of 64 MiB takes it 0.2 s and 20 MiB. Its
// address space is not bounded, of which Go reserves far more than it uses.
const (
	childData = 192 << 20 // private memory; the record is mapped shared
	childCPU  = 1         // seconds
)

// Confine takes from this process what reading one record does not need. LMDB trusts the
// file, which may be made to have it run any code: as root that is another user's code,
// so it goes on as nobody, and no process of another user can trace it or take its
// descriptors (commit_creds in kernel/cred.c makes a process that changes its user
// undumpable, ptrace(2) has what that means). It has none but standard output and error,
// the record and those of the runtime.
func Confine() error {
	for what, most := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64, unix.RLIMIT_DATA: childData, unix.RLIMIT_CPU: childCPU,
	} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("cannot limit what it uses: %w", err)
		}
	}
	if forRoot() {
		// By package syscall: for all threads.
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobodyID), syscall.Setuid(nobodyID)); err != nil {
			return fmt.Errorf("cannot give up the rights of root: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot close this process to others: %w", err)
	}
	return nil
}

// CloseOnExec has no program that this process starts inherit a descriptor, but for
// the standard ones and those that it is given: who started this process may have left
// some open.
func CloseOnExec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	for _, e := range entries {
		var fd int
		if _, bad := fmt.Sscan(e.Name(), &fd); bad == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
}
