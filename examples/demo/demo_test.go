// Package demo_test runs the demo as make demo does, and once with a program in
// the place of rsswarden that only runs the command: there the demo must fail.
package demo_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMain is also the program in the place of rsswarden.
func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, "--"); i > 0 && len(os.Args) > i+1 && os.Getenv("DEMO_RSSWARDEN") != "" {
		path, err := exec.LookPath(os.Args[i+1])
		if err == nil {
			err = syscall.Exec(path, os.Args[i+1:], os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	os.Exit(m.Run())
}

// demo runs the demo with the program in the place of rsswarden, if any.
func demo(t *testing.T, program string) (status int, out string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the demo builds with go, which is not in PATH")
	}
	cmd := exec.Command("./demo.sh")
	cmd.Env = append(os.Environ(), "DEMO_RSSWARDEN="+program, "DEMO_EPOCHS=2", "TMPDIR="+t.TempDir())
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

func TestDemo(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, program string
		status        int
		says          []string
	}{
		{"rsswarden", "", 0, []string{"being killed", "recycled worker", "replaced by", "finished, kept under the limit", "Same data in the same order"}},
		{"bare", self, 1, []string{"being killed", "The demo FAILED: the wrapped run was to end with 0, its status is 137"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, out := demo(t, tt.program)
			if status != tt.status {
				t.Errorf("status %d, want %d\n%s", status, tt.status, out)
			}
			for _, say := range tt.says {
				if !strings.Contains(out, say) {
					t.Errorf("does not say %q:\n%s", say, out)
				}
			}
		})
	}
}
