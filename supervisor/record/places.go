package record

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

const (
	// fullSize bounds a full record. tmpfsSize does where files are memory that
	// counts for the job.
	fullSize  = 64 << 20
	tmpfsSize = 8 << 20
	// spare is what must be free beside the record: it is not to be what fills a
	// disk.
	spare = 64 << 20
	// keepRecords and keepBytes bound the records of one directory. The oldest go.
	keepRecords = 64
	keepBytes   = 2 << 30
)

// Places are where a run may leave its record and its journal, best first.
type Places struct {
	Records  []string // directories that hold records
	Journals []string // … and journals
	// Chosen says that a user has named the place of the record: all of its path
	// may be made.
	Chosen bool
}

// errNoPlace says why there is none: the environment of a service or a container may
// name no home.
var errNoPlace = errors.New("no place for it is known: HOME and XDG_STATE_HOME name none; set one of them to a directory of yours")

// journalDir is the directory of journals below the one a job was submitted
// from.
const journalDir = ".rsswarden"

// DefaultPlaces follow from the environment. Under Slurm the record goes where
// run directories are, below RSSWARDEN_RUNTIME, else TMPDIR or /tmp, and the journal
// into .rsswarden of the directory the job was submitted from; elsewhere both go
// below XDG_STATE_HOME (XDG Base Directory Specification). What is not fit is
// passed over.
func DefaultPlaces(lookup func(string) (string, bool), uid int) Places {
	get := func(name string) string {
		if v, ok := lookup(name); ok && filepath.IsAbs(v) {
			return filepath.Clean(v)
		}
		return ""
	}
	var p Places
	state := get("XDG_STATE_HOME")
	if home := get("HOME"); state == "" && home != "" && home != "/" {
		state = filepath.Join(home, ".local", "state")
	}
	_, inSlurm := lookup("SLURM_JOB_ID")
	if state != "" && !inSlurm {
		p.Records = append(p.Records, filepath.Join(state, "rsswarden", "records"))
	}
	bases := []string{get("TMPDIR"), "/tmp"}
	if dir := get("RSSWARDEN_RUNTIME"); dir != "" {
		bases = []string{dir} // somebody has said where
	}
	for _, base := range bases {
		dir := filepath.Join(base, "rsswarden-"+strconv.Itoa(uid), "records")
		if base != "" && !slices.Contains(p.Records, dir) {
			p.Records = append(p.Records, dir)
		}
	}
	if inSlurm {
		if dir := get("SLURM_SUBMIT_DIR"); dir != "" {
			p.Journals = append(p.Journals, filepath.Join(dir, journalDir))
		}
	}
	if state != "" {
		p.Journals = append(p.Journals, filepath.Join(state, "rsswarden", "journals"))
	}
	return p
}

// CheckDir says whether records can be kept in dir, which may not exist yet:
// LMDB does not work on network file systems.
func CheckDir(dir string) error {
	at := dir
	for {
		if _, err := os.Stat(at); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		up := filepath.Dir(at)
		if up == at {
			break
		}
		at = up
	}
	info, err := os.Stat(at)
	if err != nil {
		return fmt.Errorf("cannot keep records in %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("cannot keep records in %s: %s is no directory", dir, at)
	}
	if err := nodedir.CheckLocal(at); err != nil {
		return fmt.Errorf("cannot keep records in %s: %w", dir, err)
	}
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("cannot keep records in %s: cannot write to %s: %w", dir, at, err)
	}
	return nil
}

// MakeDir makes a directory that a user has chosen for records, or says why they
// cannot be kept there.
func MakeDir(dir string) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	at, err := makeAll(dir, math.MaxInt, 0o700)
	if err != nil {
		return fmt.Errorf("cannot keep records in %s: %w", dir, err)
	}
	at.Close()
	return nil
}

// makeRecordDir makes the directory of the record id in the first place that is
// fit, and returns it, and how large the record may become.
func makeRecordDir(p Places, id string, attempt int) (dir *os.File, size int64, err error) {
	var errs []error
	for _, place := range p.Records {
		dir, size, err := makeRecordDirIn(place, p.Chosen, id, attempt)
		if err == nil {
			return dir, size, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errNoPlace)
	}
	return nil, 0, fmt.Errorf("cannot make record: %w", errors.Join(errs...))
}

func makeRecordDirIn(place string, chosen bool, id string, attempt int) (dir *os.File, size int64, err error) {
	if err := CheckDir(place); err != nil {
		return nil, 0, err
	}
	levels := homeLevels
	if chosen {
		levels = math.MaxInt
	}
	at, err := makeAll(place, levels, 0o700)
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

// homeLevels is how many directories are made at most: .local, state, rsswarden
// and one below. A home that is not there is not made.
const homeLevels = 4

// makeAll opens a directory, and makes so many levels of it as are missing. It goes
// through no link of another user, and the directory and the one above belong to root or
// this user: below /tmp another user can be there first.
func makeAll(path string, levels int, mode fs.FileMode) (*os.File, error) {
	dir, err := nodedir.OpenAll(path, levels, uint32(mode))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{".", ".."} {
		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && !nodedir.Trusted(st.Uid) {
			err = errors.New("belongs to another user")
		}
		if err != nil {
			dir.Close()
			return nil, fmt.Errorf("%s %w", filepath.Join(dir.Name(), name), err)
		}
	}
	return dir, nil
}

// pruneAge is how long nobody must have written to a record that is removed: the
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
		if !e.IsDir() || !isID(e.Name()) {
			continue
		}
		dir, err := os.Open(filepath.Join(place, e.Name()))
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), dataFile, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			records--
			bytes -= st.Blocks * 512
			if (records < 0 || bytes < 0) && time.Since(time.Unix(st.Mtim.Unix())) > pruneAge && !held(dir) && !answers(dir) {
				_ = os.RemoveAll(filepath.Join(place, e.Name()))
			}
		}
		dir.Close()
	}
}
