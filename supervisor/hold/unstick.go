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
	suspected       bool // the last look saw them parted
}

// check acts when two looks in a row saw them parted. Between reading the one
// state and the other, let alone the signal, somebody may continue both and ^Z
// stop them again; our SIGCONT would take that ^Z back.
func (u *unsticker) check() error {
	parted, err := u.parted()
	if err != nil || !parted || !u.suspected {
		u.suspected = parted
		return err
	}
	u.suspected = false
	if err := unix.Kill(u.holder, unix.SIGCONT); err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot continue the holder: %w", err)
	}
	return nil
}

// parted: the holder is stopped and the command is not.
func (u *unsticker) parted() (bool, error) {
	h, err := u.read(u.holder)
	if err != nil {
		if gone(err) {
			return false, nil
		}
		return false, err
	}
	if h.state != 'T' {
		return false, nil
	}
	c, err := u.read(u.command)
	if err != nil && !gone(err) {
		return false, err
	}
	return err != nil || c.state != 'T' || u.start != 0 && c.start != u.start, nil
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
