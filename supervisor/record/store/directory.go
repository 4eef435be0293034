package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

const (
	// fullSize bounds a full record. tmpfsSize does where files are memory that
	// counts for the job.
	fullSize  = 64 << 20
	tmpfsSize = 8 << 20
	// spare is what must be free beside the record: it is not to be what fills a disk.
	spare = 64 << 20
	// keepRecords and keepBytes bound the records of one directory. The oldest go.
	keepRecords = 64
	keepBytes   = 2 << 30
)

// makeDir makes the directory of the record id in the first place that is
// fit, and returns it, and how large the record may become.
func makeDir(p record.Places, id string, attempt int) (dir *os.File, size int64, err error) {
	var errs []error
	for _, place := range p.Records {
		dir, size, err := makeDirIn(place, p.Chosen, id, attempt)
		if err == nil {
			return dir, size, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, record.ErrNoPlace)
	}
	return nil, 0, fmt.Errorf("cannot make record: %w", errors.Join(errs...))
}

func makeDirIn(place string, chosen bool, id string, attempt int) (dir *os.File, size int64, err error) {
	if err := record.CheckDir(place); err != nil {
		return nil, 0, err
	}
	levels := record.HomeLevels
	if chosen {
		levels = math.MaxInt
	}
	at, err := record.OpenPlace(place, levels, 0o700)
	if err != nil {
		return nil, 0, err
	}
	defer at.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(at.Fd()), &st); err != nil {
		return nil, 0, fmt.Errorf("cannot statfs %s: %w", place, err)
	}
	size = fullSize
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		size = tmpfsSize
	}
	if attempt > 1 {
		if dir, err := openOwn(at, id); err == nil {
			return dir, size, nil // an earlier watcher of this run has made it
		}
	}
	if free := st.Bavail * uint64(st.Bsize); st.Type != unix.RAMFS_MAGIC && free < uint64(size)+spare {
		return nil, 0, fmt.Errorf("%s has only %d MiB free", place, free>>20)
	}
	if !chosen { // what a user keeps is the user's to remove
		prune(nodedir.FDPath(at), keepRecords-1, keepBytes-size)
	}
	// Another user may have made it where a user has chosen a place that all can
	// write to, with links in it.
	if err := unix.Mkdirat(int(at.Fd()), id, 0o700); err != nil {
		return nil, 0, &fs.PathError{Op: "mkdir", Path: filepath.Join(place, id), Err: err}
	}
	if err := unix.Fchmodat(int(at.Fd()), id, 0o700, 0); err != nil { // whatever the umask is
		return nil, 0, &fs.PathError{Op: "chmod", Path: filepath.Join(place, id), Err: err}
	}
	dir, err = openOwn(at, id)
	return dir, size, err
}

// openOwn opens a directory that only this user can enter.
func openOwn(at *os.File, name string) (*os.File, error) {
	path := filepath.Join(at.Name(), name)
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0) {
		err = fmt.Errorf("it belongs to another user, or is open to others (mode %04o)", st.Mode&0o7777)
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot use %s: %w", path, err)
	}
	return dir, nil
}

// pruneAge is how long a record must not have been written before it is removed: the
// watcher of a run may be about to be started again.
const pruneAge = 10 * time.Minute

// prune removes the oldest records of a place beyond a number and a size. One
// that is being written is left alone.
func prune(place string, records int, bytes int64) {
	entries, err := os.ReadDir(place)
	if err != nil {
		return
	}
	slices.Reverse(entries) // names begin with the time: newest first
	for _, e := range entries {
		if !e.IsDir() || !record.IsID(e.Name()) {
			continue
		}
		dir, err := os.Open(filepath.Join(place, e.Name()))
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), record.DataFile, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			records--
			bytes -= st.Blocks * 512
			if (records < 0 || bytes < 0) && time.Since(time.Unix(st.Mtim.Unix())) > pruneAge && !held(dir) && !answers(dir) {
				_ = os.RemoveAll(filepath.Join(place, e.Name()))
			}
		}
		dir.Close()
	}
}
