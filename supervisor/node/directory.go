package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// directory is the one in which watchers meet; its name is its path.
type directory struct{ *os.File }

func openDirectory(path string) (directory, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return directory{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return directory{os.NewFile(uintptr(fd), path)}, nil
}

func (d directory) fd() int { return int(d.Fd()) }

func (d directory) path(name string) string { return filepath.Join(d.Name(), name) }

// mostBytes bounds what is read of a file here.
const mostBytes = 64 << 10

var errMalformed = syscall.EBADMSG

// write renames a file with v into place.
func (d directory) write(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path(name), err)
	}
	err = nodedir.WriteRenamed(d.fd(), name+".tmp", name, 0o600, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path(name), err)
	}
	return nil
}

func (d directory) read(name string, v any) error {
	f, err := nodedir.OpenRegular(d.File, name)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", d.path(name), nodedir.WithoutPath(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = errMalformed
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", d.path(name), err)
	}
	return nil
}

func (d directory) remove(name string) error { return unix.Unlinkat(d.fd(), name, 0) }

// most is how many files a directory is read for.
const most = 16 << 10

func (d directory) names() ([]string, error) {
	f, err := os.Open(nodedir.FDPath(d.File))
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", d.Name(), err)
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if err != nil && len(names) == 0 && !strings.Contains(err.Error(), "EOF") {
		return nil, fmt.Errorf("cannot list %s: %w", d.Name(), err)
	}
	return names, nil
}

func (d directory) has(name string) bool {
	var st unix.Stat_t
	return !errors.Is(unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT)
}
