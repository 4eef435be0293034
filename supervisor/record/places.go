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

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// Places are where a run may leave its record and its journal, best first.
type Places struct {
	Records  []string // directories that hold records
	Journals []string // … and journals
	// Chosen says that a user has named the place of the record: all of its path
	// may be made.
	Chosen bool
}

// journalDir is the directory of journals below the one a job was submitted from.
const journalDir = ".rsswarden"

// DefaultPlaces follow from the environment. Under Slurm the record goes where run
// directories are, below RSSWARDEN_RUNTIME, else TMPDIR or /tmp, and the journal into
// .rsswarden of the directory the job was submitted from; elsewhere both go below
// XDG_STATE_HOME (XDG Base Directory Specification). What is not fit is passed over.
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
		bases = []string{dir}
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

// Existing is a directory, or the nearest above it that is there.
func Existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// CheckDir says whether records can be kept in dir, which may not exist yet:
// LMDB does not work on network file systems.
func CheckDir(dir string) error {
	at := Existing(dir)
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
	at, err := OpenPlace(dir, math.MaxInt, 0o700)
	if err != nil {
		return fmt.Errorf("cannot keep records in %s: %w", dir, err)
	}
	at.Close()
	return nil
}

// HomeLevels is how many directories are made at most: .local, state, rsswarden
// and one below. A home that is not there is not made.
const HomeLevels = 4

// OpenPlace opens a directory, and makes up to so many levels of it. It follows no link of
// another user, who may be first below /tmp; the directory and its parent are ours or root's.
func OpenPlace(path string, levels int, mode fs.FileMode) (*os.File, error) {
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

// ErrNoPlace: the environment of a service or a container may name no home.
var ErrNoPlace = errors.New("no place for it is known: HOME and XDG_STATE_HOME name none; set one of them to a directory of yours")
