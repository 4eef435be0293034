package record

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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

// DataFile is the file of a full record that LMDB keeps its data in.
const DataFile = "data.mdb"

// Found is what one run has left behind, by the names of files alone.
type Found struct {
	ID      string
	Job     string // the Slurm job, empty outside Slurm
	Record  string // directory of the full record, empty where it is not there
	Journal string // file of the journal, empty where it is not there
}

// Size is how many bytes the full record takes on its disk, 0 where it is not there, and
// whether it is this user's.
func (f Found) Size() (n int64, mine bool) {
	if f.Record == "" {
		return 0, true
	}
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(f.Record, DataFile), &st) != nil {
		return 0, true
	}
	return st.Blocks * 512, int(st.Uid) == os.Geteuid()
}

// Find lists the runs that have left something in directories: those of records
// and of journals, or any directory that holds either. The newest is first.
func Find(dirs ...string) []Found {
	runs := map[string]*Found{}
	at := func(id string) *Found {
		f := runs[id]
		if f == nil {
			f = &Found{ID: id, Job: jobOfID(id)}
			runs[id] = f
		}
		return f
	}
	for _, dir := range dirs {
		entries, err := ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if id, ok := strings.CutSuffix(e.Name(), journalSuffix); ok && IsID(id) {
				f := at(id)
				f.Journal = cmp.Or(f.Journal, path)
			} else if _, err := os.Lstat(filepath.Join(path, DataFile)); IsID(e.Name()) && err == nil {
				f := at(e.Name())
				f.Record = cmp.Or(f.Record, path)
			}
		}
	}
	list := make([]Found, 0, len(runs))
	for _, f := range runs {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b Found) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// mostEntries bounds what is read of a directory, which may be another user's.
const mostEntries = 1 << 17

// ReadDir lists a directory, and opens nothing else. As root it follows no link of
// another user.
func ReadDir(path string) ([]os.DirEntry, error) {
	at, err := nodedir.OpenPath(path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := unix.Openat(int(at.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	list, err := dir.ReadDir(mostEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

const (
	// mostLevels is how deep below a directory runs are looked for: a home, a project, a job.
	mostLevels = 6
	// mostDirs bounds the directories that are read.
	mostDirs = 100_000
)

// Below finds the directories in and below some in which runs have left something. unread are
// those that may not be read, more says that there are more directories than are looked
// through. Of hidden ones it looks into those in which runs leave something.
func Below(dirs ...string) (places, unread []string, more bool) {
	read := 0
	for level := 0; len(dirs) > 0 && level <= mostLevels; level++ {
		var next []string
		for _, dir := range dirs {
			if read++; read > mostDirs {
				return places, unread, true
			}
			entries, err := ReadDir(dir)
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, nodedir.ErrLink) {
				unread = append(unread, dir)
			}
			holds := false
			for _, e := range entries {
				name := e.Name()
				id, journal := strings.CutSuffix(name, journalSuffix)
				switch {
				case IsID(id) && (journal || e.IsDir()), journal && strings.HasPrefix(name, indexPrefix):
					holds = true
				case e.IsDir() && (name[0] != '.' || name == journalDir || name == ".local"):
					next = append(next, filepath.Join(dir, name))
				}
			}
			if holds {
				places = append(places, dir)
			}
		}
		slices.Sort(next)
		dirs = next
	}
	return places, unread, false
}

// openFile opens a regular file to read it. As root it follows no link of another user.
func openFile(path string) (*os.File, error) {
	at, err := nodedir.OpenPath(path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return nodedir.Reopen(at)
}

// ErrNone says that a path leads to a directory that is no record.
var ErrNone = errors.New("it holds no record")

// At says what lies at a path: a record, a journal, or why neither does.
func At(path string) (Found, error) {
	at, err := nodedir.OpenPath(path)
	if err != nil {
		return Found{}, err
	}
	defer at.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return Found{}, err
	}
	path = filepath.Clean(path)
	id := filepath.Base(path)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if id == DataFile {
			return At(filepath.Dir(path))
		}
		id = strings.TrimSuffix(id, journalSuffix)
		return Found{ID: id, Job: jobOfID(id), Journal: path}, nil
	case unix.S_IFDIR:
		var data unix.Stat_t
		switch err := unix.Fstatat(int(at.Fd()), DataFile, &data, unix.AT_SYMLINK_NOFOLLOW); {
		case errors.Is(err, unix.ENOENT):
			return Found{}, ErrNone
		case err != nil:
			return Found{}, err
		}
		return Found{ID: id, Job: jobOfID(id), Record: path}, nil
	}
	return Found{}, fmt.Errorf("%w: it is %s", ErrForeign, nodedir.Kind(st.Mode))
}

// NewID names a run. The name begins with the time, so that names sort by it,
// and can be a file's on any file system.
func NewID(at time.Time, job *Job, node string, holder int) string {
	what := "run"
	if job != nil {
		what = job.ID
		if job.Step != "" {
			what += fmt.Sprintf(".%s.%d", job.Step, job.Task)
		}
	}
	return fmt.Sprintf("%s-%s-%s-%d", at.UTC().Format(idTime), cleanID(what), cleanID(node), holder)
}

// cleanID replaces what a part of a name may not have.
func cleanID(s string) string {
	return strings.Map(func(r rune) rune {
		if inID(r) {
			return r
		}
		return '_'
	}, s)
}

const idTime = "20060102T150405Z"

// inID says whether a part of a name may have a character.
func inID(r rune) bool {
	return isDigit(r) || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '_' || r == '.' || r == '+'
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// IsID says whether a file's name is that of a run. It is no regexp: that would
// be compiled at the start of every process of ours.
func IsID(name string) bool {
	parts := strings.Split(name, "-")
	if len(parts) != 4 || len(parts[0]) != len(idTime) || parts[1] == "" || parts[3] == "" {
		return false
	}
	for i, c := range []byte(parts[0]) {
		if like := idTime[i]; c != like && !(isDigit(rune(c)) && isDigit(rune(like))) {
			return false
		}
	}
	all := func(s string, is func(rune) bool) bool {
		return strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
	return all(parts[1], inID) && all(parts[2], inID) && all(parts[3], isDigit)
}

// jobOfID returns the Slurm job of a run's name, empty where it has none.
func jobOfID(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	what, _, _ := strings.Cut(rest, "-")
	job, _, _ := strings.Cut(what, ".")
	if job == "run" {
		return ""
	}
	return job
}

// Reason leaves out the name of a file from an error that is printed with its name, and says
// that what is no regular file is no record.
func Reason(err error) error {
	if errors.Is(err, nodedir.ErrNotRegular) {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return nodedir.WithoutPath(err)
}
