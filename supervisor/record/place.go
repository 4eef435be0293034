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
	"syscall"
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
	if err := makeAll(dir, math.MaxInt, 0o700); err != nil {
		return fmt.Errorf("cannot keep records in %s: %w", dir, err)
	}
	return nil
}

// makeRecordDir makes the directory of the record id in the first place that is
// fit, and returns how large the record may become.
func makeRecordDir(p Places, id string, attempt int) (dir string, size int64, err error) {
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
	return "", 0, fmt.Errorf("cannot make record: %w", errors.Join(errs...))
}

func makeRecordDirIn(place string, chosen bool, id string, attempt int) (dir string, size int64, err error) {
	if err := CheckDir(place); err != nil {
		return "", 0, err
	}
	levels := homeLevels
	if chosen {
		levels = math.MaxInt
	}
	if err := makeAll(place, levels, 0o700); err != nil {
		return "", 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(place, &st); err != nil {
		return "", 0, fmt.Errorf("cannot statfs %s: %w", place, err)
	}
	size = fullSize
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		size = tmpfsSize
	}
	dir = filepath.Join(place, id)
	if attempt > 1 && nodedir.CheckOwn(dir) == nil {
		return dir, size, nil // an earlier watcher of this run has made it
	}
	if free := st.Bavail * uint64(st.Bsize); st.Type != unix.RAMFS_MAGIC && free < uint64(size)+spare {
		return "", 0, fmt.Errorf("%s has only %d MiB free", place, free>>20)
	}
	if !chosen { // what a user keeps is the user's to remove
		prune(place, keepRecords-1, keepBytes-size)
	}
	// Somebody else may have made it where a user has chosen a place that all can
	// write to, with links in it.
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", 0, err
	}
	return dir, size, nil
}

// homeLevels is how many directories are made at most: .local, state, rsswarden
// and one below. A home that is not there is not made.
const homeLevels = 4

// makeAll makes a directory and so many levels of it as are missing. It and the
// one above must not be a stranger's: below /tmp anybody can be there first.
func makeAll(dir string, levels int, mode fs.FileMode) error {
	at := dir
	for range levels {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	if _, err := os.Stat(at); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} { // of a link both it and its end
			info, err := stat(d)
			if err != nil {
				return err
			}
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || !nodedir.Trusted(st.Uid) {
				return fmt.Errorf("%s belongs to somebody else", d)
			}
		}
	}
	return nil
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
		dir := filepath.Join(place, e.Name())
		info, err := os.Stat(filepath.Join(dir, dataFile))
		if err != nil || !isID(e.Name()) {
			continue
		}
		records--
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes -= st.Blocks * 512
		}
		if (records < 0 || bytes < 0) && time.Since(info.ModTime()) > pruneAge && !held(dir) && !answers(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}
