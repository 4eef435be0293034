package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the command line as a user does: testdata/script holds one
// file a feature. A job of Slurm that the tests themselves may run in is
// hidden from them.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			if cond != "yama" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
			return err == nil && b[0] != '0', nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+":"+env.Getenv("PATH"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("TMPDIR", env.WorkDir)
			return nil
		},
	})
}
