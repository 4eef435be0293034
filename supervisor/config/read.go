package config

import (
	"errors"
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
// as the file's server does not answer. Errors do not repeat the path.
func Read(path string) ([]byte, error) { return read(path, false) }

// ReadTrusted is [Read] for a regular file that belongs to root and that only root can
// write.
func ReadTrusted(path string) ([]byte, error) { return read(path, true) }

// distrust says why a file is not obeyed, nil where it is.
func distrust(owner uint32, mode fs.FileMode) error {
	switch {
	case !mode.IsRegular():
		return errors.New("it is not a regular file")
	case owner != 0:
		return fmt.Errorf("it belongs to user %d, not to root", owner)
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("its mode %04o lets others than root write it", mode.Perm())
	}
	return nil
}

func read(path string, trusted bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	defer f.Close()
	if trusted {
		info, err := f.Stat()
		if err == nil {
			err = distrust(info.Sys().(*syscall.Stat_t).Uid, info.Mode())
		}
		if err != nil {
			return nil, nodedir.WithoutPath(err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(text) > MaxSize {
		err = errTooLong
	}
	if err != nil {
		return nil, nodedir.WithoutPath(err)
	}
	return text, nil
}
