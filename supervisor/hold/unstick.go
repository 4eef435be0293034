package hold

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// unsticker watches over the two states that must not part: a holder stopped,
// its command not.
type unsticker struct {
	proc            string
	holder, command int
	start           uint64
}

func (u *unsticker) check() error {
	h, err := u.read(u.holder)
	if err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	if h.state != 'T' {
		return nil
	}
	c, err := u.read(u.command)
	if err != nil && !gone(err) {
		return err
	}
	if err == nil && c.state == 'T' && (u.start == 0 || c.start == u.start) {
		return nil
	}
	if err := unix.Kill(u.holder, unix.SIGCONT); err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot continue the holder: %w", err)
	}
	return nil
}

func (u *unsticker) read(pid int) (stat, error) {
	var buf [1024]byte
	b, err := readSmall(filepath.Join(u.proc, strconv.Itoa(pid), "stat"), buf[:])
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
