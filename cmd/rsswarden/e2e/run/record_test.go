package run

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRootReadsOthers: root reads another user's record as it reads its own, also where
// that user does not let others in.
func TestRootReadsOthers(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to read what is another's")
	const other = 12345
	dir, err := os.MkdirTemp("/tmp", "rsswarden-owner-")
	wardentest.NoError(t, err)
	defer os.RemoveAll(dir)
	path, err := nodeOf(1, 1, 1, time.Minute).Save(dir)
	wardentest.NoError(t, err)
	report := func() string {
		out, errs, err := wardentest.Output(binary, "report", "--no-slurm", path)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		return out + errs
	}
	ours := report()
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(name, other, other)
		}
		return err
	})
	wardentest.NoError(t, err)
	if theirs := report(); theirs != ours {
		t.Errorf("of another user:\n%s\nof root:\n%s", theirs, ours)
	}
}
