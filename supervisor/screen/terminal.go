package screen

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is a terminal whose modes can be changed and are given back.
type terminal struct {
	in, out *os.File
	before  *term.State // the modes as they were found
	inside  bool        // ours are set now
}

func openTerminal(in, out *os.File) (*terminal, error) {
	state, err := term.GetState(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot read the modes of the terminal: %w", err)
	}
	return &terminal{in: in, out: out, before: state}, nil
}

// enter takes the terminal over: keys come at once, unseen, and the other screen
// is shown. The modes are set first: in the background that stops us until we are
// in front.
func (t *terminal) enter() error {
	t.inside = true
	if _, err := term.MakeRaw(int(t.in.Fd())); err != nil {
		return fmt.Errorf("cannot set the modes of the terminal: %w", err)
	}
	return t.write([]byte(enterScreen))
}

// leave gives the terminal back as it was. What fails on the way does not keep it
// from the rest.
func (t *terminal) leave() {
	if !t.inside {
		return
	}
	t.inside = false
	_ = t.write([]byte(leaveScreen)) // the terminal may be gone
	t.restoreModes()
}

func (t *terminal) restoreModes() { _ = term.Restore(int(t.in.Fd()), t.before) }

func (t *terminal) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := t.out.Write(b); err != nil {
		return fmt.Errorf("cannot write to the terminal: %w", err)
	}
	return nil
}

func (t *terminal) size() Size { return SizeOf(t.out) }

// SizeOf returns columns and lines of a terminal, 80 and 24 where it does not know.
func SizeOf(f *os.File) Size {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return Size{80, 24}
	}
	return Size{min(w, 1000), min(h, 500)}
}

// patience is how long the rest of an escape sequence may take, in milliseconds:
// what comes later was a key by itself.
const patience = 50

// keys sends what is typed until stop can be read from or the terminal is gone,
// which the last value tells.
func (t *terminal) keys(stop *os.File, send func(any)) {
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(stop.Fd()), Events: unix.POLLIN}}
	var rest []byte
	buf := make([]byte, 256)
	for {
		wait := -1
		if len(rest) > 0 {
			wait = patience
		}
		n, err := unix.Poll(fds, wait)
		var keys []Key
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			send(gone{})
			return
		case fds[1].Revents != 0:
			return
		case n == 0:
			keys, rest = decode(rest, true)
		default:
			got, err := unix.Read(int(fds[0].Fd), buf)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if err != nil || got <= 0 {
				send(gone{})
				return
			}
			keys, rest = decode(append(rest, buf[:got]...), false)
		}
		for _, k := range keys {
			send(k)
		}
	}
}

// gone says that nobody can type any more.
type gone struct{}
