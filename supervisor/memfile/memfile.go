// Package memfile makes files that have no name and lie on no disk (memfd_create(2)):
// a program can read its stdin without a writer beside it, and no secret is left behind.
package memfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Of returns a file that holds b, to be read from its beginning. The name is for
// /proc/PID/fd alone.
func Of(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) {
		return nil, errors.New("the kernel has no memfd_create")
	} else if err != nil {
		return nil, err
	}
	return Fill(os.NewFile(uintptr(fd), name), b)
}

// Fill writes b into a file and goes back to its beginning; where that fails the file
// is closed.
func Fill(f *os.File, b []byte) (*os.File, error) {
	_, err := f.Write(b)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
