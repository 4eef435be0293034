package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// MaxSize bounds a file, in bytes.
const MaxSize = 64 << 10

// errTooLong keeps out of memory what is no configuration: a device, a log.
var errTooLong = fmt.Errorf("longer than %d KiB", MaxSize>>10)

// Read returns the text of a file that a user named. As [ReadTrusted] it waits for as long
// as the file's server does not answer.
func Read(path string) ([]byte, error) {
	return read(path, func(*os.File) error { return nil })
}

// ReadTrusted is [Read] for a regular file that belongs to root and that only root can
// write. The error for another one is an [*UntrustedError].
func ReadTrusted(path string) ([]byte, error) { return read(path, trust) }

func trust(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner := -1
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(sys.Uid)
	}
	if why := distrust(owner, info.Mode()); why != "" {
		return &UntrustedError{why}
	}
	return nil
}

// UntrustedError says why a file is not obeyed.
type UntrustedError struct {
	Why string
}

func (e *UntrustedError) Error() string { return e.Why }

func distrust(owner int, mode fs.FileMode) string {
	switch {
	case !mode.IsRegular():
		return "it is not a regular file"
	case owner != 0:
		return fmt.Sprintf("it belongs to user %d, not to root", owner)
	case mode.Perm()&0o022 != 0:
		return fmt.Sprintf("its mode %04o lets others than root write it", mode.Perm())
	}
	return ""
}

// read returns what a file holds. Its errors do not repeat the path.
func read(path string, check func(*os.File) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	defer f.Close()
	if err := check(f); err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	if len(text) > MaxSize {
		return nil, errTooLong
	}
	return text, nil
}
