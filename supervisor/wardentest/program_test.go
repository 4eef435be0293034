package wardentest_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestPrograms builds them all: in WARDENTEST_PROGRAMS, where .ci/test has it so.
func TestPrograms(t *testing.T) {
	dir := cmp.Or(os.Getenv(wardentest.Programs), t.TempDir())
	if err := wardentest.BuildAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{wardentest.Rsswarden, wardentest.Faults, wardentest.Site, wardentest.Daemon} {
		if out, err := exec.Command(filepath.Join(dir, name), "--version").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
