package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// binary is the program under test, built once; faulty is the same with the
// faults of package supervisor/fault built in.
var binary, faulty string

func TestMain(m *testing.M) {
	rsstest.DefaultSignals()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rsswarden-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	defer slurmtest.Shutdown()
	if err := os.Chmod(dir, 0o755); err != nil { // jobs run as a plain user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Records of the runs go where they are removed.
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	binary, faulty = filepath.Join(dir, "rsswarden"), filepath.Join(dir, "rsswarden-faulty")
	// Root's verdicts on a torch are for all users of this machine: none of a test are.
	const flags = "-ldflags=-X github.com/rsswarden/rsswarden/supervisor/loader.SiteVerdicts="
	for _, build := range [][]string{
		{"build", flags, "-o", binary, "."},
		{"build", flags, "-tags", "rsswarden_faults", "-o", faulty, "."},
		{"build", "-o", filepath.Join(dir, "rsswardend"), "../rsswardend"}, // which carries alerts
	} {
		if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go %v: %v\n%s", build, err, out)
			return 1
		}
	}
	return m.Run()
}

// output runs a command and returns what it wrote.
func output(args []string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}
