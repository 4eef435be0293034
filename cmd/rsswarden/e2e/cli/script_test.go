package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestScripts runs the command line as a user does: testdata/script holds one
// file a feature. A job of Slurm that the tests themselves may run in is
// hidden from them.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *golden.Update,
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
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
	})
}

// TestSiteScripts runs the command line with a site's file. It belongs to root, so only
// root can make one.
func TestSiteScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file that a site could have made")
	}
	dir := t.TempDir()
	wardentest.NoError(t, os.Link(ofSite, filepath.Join(dir, "rsswarden")))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/site",
		RequireExplicitExec: true,
		UpdateScripts:       *golden.Update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", dir+":"+env.Getenv("PATH"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("TMPDIR", env.WorkDir)
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
	})
}
