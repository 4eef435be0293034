package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// This file writes what the journal takes in.

func (j *journaler) begin() { go j.write() }

func (j *journaler) tell() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *journaler) close(end <-chan time.Time) {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.tell()
	select {
	case <-j.done:
	case <-end:
	}
}

func (j *journaler) write() {
	defer close(j.done)
	f, path, err := openJournal(j.opt.Places.Journals, j.opt.Meta.ID)
	if err != nil {
		j.stop(err)
		return
	}
	defer f.Close()
	err = j.first(f, path)
	for err == nil {
		j.mu.Lock()
		lines, sync, closed := j.lines, j.sync, j.closed
		j.lines, j.sync = nil, false
		j.mu.Unlock()
		var b []byte
		for _, l := range lines {
			b = append(b, l...)
		}
		if len(b) > 0 {
			fault.Point("journal")
			_, err = f.Write(b)
		}
		if err == nil && sync {
			err = f.Sync()
		}
		if err != nil || closed {
			break
		}
		<-j.wake
	}
	if err != nil {
		j.stop(fmt.Errorf("cannot write journal %s, it ends here: %w", path, err))
	}
}

// first writes the first line. Where an earlier watcher has begun the journal,
// which a kill may have cut off within a line, it goes on after that.
func (j *journaler) first(f *os.File, path string) error {
	meta := j.opt.Meta
	meta.V, meta.Journal = Version, path
	line, err := makeRunLine(meta)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		line = nil
	}
	line = append(line, '\n')
	j.mu.Lock()
	j.size += int(info.Size()) + len(line)
	j.mu.Unlock()
	_, err = f.Write(line)
	return err
}

func (j *journaler) stop(err error) {
	j.mu.Lock()
	j.off, j.lines = true, nil
	j.mu.Unlock()
	j.opt.Fault("journal", err)
}

// openJournal makes the journal in the first place that takes it.
func openJournal(places []string, id string) (*os.File, string, error) {
	var errs []error
	for _, place := range places {
		path := filepath.Join(place, id+journalSuffix)
		mode := fs.FileMode(0o700)
		if filepath.Base(place) == journalDir {
			mode = 0o755 // beside the job's own files, for those who may read them
		}
		f, err := openAppend(path, mode)
		if err == nil {
			return f, path, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errNoPlace)
	}
	return nil, "", fmt.Errorf("cannot make journal: %w", errors.Join(errs...))
}

// openAppend opens a file of this user's to append to it. It and its directory are made
// where they are missing, the directory with a mode.
func openAppend(path string, mode fs.FileMode) (*os.File, error) {
	dir, err := makeAll(filepath.Dir(path), homeLevels, mode)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := filepath.Base(path)
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CREAT|unix.O_EXCL, 0o644)
	if errors.Is(err, unix.EEXIST) {
		var at int
		if at, err = unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(at)
		var st unix.Stat_t
		switch err := unix.Fstat(at, &st); {
		case err != nil:
			return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			return nil, fmt.Errorf("%s is %s", path, nodedir.Kind(st.Mode))
		case !nodedir.Trusted(st.Uid) || st.Nlink > 1:
			return nil, fmt.Errorf("%s belongs to another user, or is a hard link", path)
		}
		fd, err = unix.Open("/proc/self/fd/"+strconv.Itoa(at), flags, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
