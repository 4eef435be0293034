package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestSiteScripts runs the command line with a site's file: the program under
// test is linked so that it looks for etc/rsswarden.toml in the working
// directory. A site's file belongs to root, so only root can make one.
func TestSiteScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file that a site could have made")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-ldflags", "-X main.siteFile=etc/rsswarden.toml", "-o", filepath.Join(dir, "rsswarden"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/site",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", dir+":"+env.Getenv("PATH"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("TMPDIR", env.WorkDir)
			return nil
		},
	})
}
