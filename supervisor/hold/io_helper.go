package hold

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// UnansweredError: a process of [RunIOHelper] did not answer in time.
type UnansweredError struct {
	PID      int  // of the process, if SIGKILL did not end it; else 0
	Asked    bool // the file system; else the process did not get that far
	Patience time.Duration
}

func (e *UnansweredError) Error() string {
	text := fmt.Sprintf("no answer from its file system within %v", e.Patience)
	if !e.Asked {
		text = fmt.Sprintf("the process that asks its file system has not started within %v; is this node very busy?", e.Patience)
	}
	if e.PID != 0 {
		text += fmt.Sprintf(", process %d is left waiting for it", e.PID)
	}
	return text
}

// RunIOHelper runs a command of this program in a process of its own: argv[0] is the path to
// execute. The process gets ask by [Asked]; what it sends by [Answer] is returned.
//
// No signal ends a thread that waits for a silent file server, and a process ends with the
// last of its threads: one such call here, and our parent would wait for that server after
// the command has ended. A child need not be waited for. One that has not taken ask after
// start, or not answered after as much more as patience, is killed and left; it holds none of
// the user's descriptors. Without room for a process the error is an errno of clone(2).
func RunIOHelper(argv []string, ask []byte, start, patience time.Duration) ([]byte, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[0])
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(pair[1])
		return nil, err
	}
	c := ownChild(ioHelperName, argv, pair[1], null, nil)
	pid, noProcess, execErr := c.spawn()
	c.close()
	unix.Close(pair[1])
	unix.Close(null)
	if noProcess != 0 || execErr != 0 {
		return nil, max(noProcess, execErr)
	}
	begun, answer, err := converse(pair[0], ask, start, patience)
	if err == nil || err == errEnded {
		takeWithin(pid, patience) // at once: it closes its end last of all
		return answer, err
	}
	if !begun {
		patience = start
	}
	unix.Kill(pid, unix.SIGKILL)
	if takeWithin(pid, killWait) {
		pid = 0
	}
	return nil, &UnansweredError{pid, begun, patience}
}

// begins is what a process says once it has what it is asked.
const begins = "\n"

// killWait is for a killed process whose last thread waits for a processor on a busy node.
const killWait = 500 * time.Millisecond

func takeWithin(pid int, patience time.Duration) bool {
	for end := time.Now().Add(patience); ; unix.Nanosleep(&unix.Timespec{Nsec: 1e5}, nil) {
		if _, _, ok := takeEnd(pid); ok {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

var errEnded = errors.New("the process that asked its file system has failed")

// converse hands over ask and reads the answer to its end. begun says that the process had it.
func converse(fd int, ask []byte, start, patience time.Duration) (begun bool, answer []byte, err error) {
	end := time.Now().Add(start)
	for len(ask) > 0 {
		if !waitFor(fd, unix.POLLOUT, end) {
			return false, nil, os.ErrDeadlineExceeded
		}
		n, err := unix.SendmsgN(fd, ask, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EAGAIN && err != unix.EINTR {
			return false, nil, errEnded
		}
		ask = ask[max(n, 0):]
	}
	unix.Shutdown(fd, unix.SHUT_WR)
	var buf [4096]byte
	for {
		if !waitFor(fd, unix.POLLIN, end) {
			return begun, nil, os.ErrDeadlineExceeded
		}
		n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err == nil && n > 0 && !begun:
			begun, end = true, time.Now().Add(patience)
			answer = append(answer, buf[len(begins):n]...)
		case err == nil && n > 0:
			answer = append(answer, buf[:n]...)
		case len(answer) == 0:
			return begun, nil, errEnded
		default:
			return begun, answer, nil
		}
	}
}

var errNoIOHelper = errors.New("not started by a run")

// Asked is what the process of [RunIOHelper] is to do. It closes standard error, whose reader
// must not wait for a file server.
func Asked() ([]byte, error) {
	if os.Args[0] != ioHelperName {
		return nil, errNoIOHelper
	}
	setName(ioHelperName)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Dup3(null, 2, 0); err != nil {
		return nil, os.NewSyscallError("dup3", err)
	}
	ask, err := io.ReadAll(asideLink{})
	if err == nil {
		_, err = asideLink{}.Write([]byte(begins))
	}
	return ask, err
}

func Answer(answer []byte) error {
	_, err := asideLink{}.Write(answer)
	return err
}

// asideLink is descriptor 0. It is never closed: the end of the process does that.
type asideLink struct{}

func (asideLink) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(0, p)
		if err == unix.EINTR {
			continue
		}
		if n == 0 && err == nil {
			return 0, io.EOF
		}
		return max(n, 0), err
	}
}

func (asideLink) Write(p []byte) (n int, err error) {
	for n < len(p) {
		some, err := unix.SendmsgN(0, p[n:], nil, nil, unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EINTR {
			return n, err
		}
		n += max(some, 0)
	}
	return n, nil
}
