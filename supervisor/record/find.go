package record

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

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
