package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// ofSite is a program that looks for the site's file in etc/rsswarden.toml of the working
// directory. It lies in a directory of its own.
func ofSite(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-ldflags", "-X main.siteFile=etc/rsswarden.toml", "-o", filepath.Join(dir, "rsswarden"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "rsswarden")
}

// TestSiteScripts runs the command line with a site's file. It belongs to root, so only
// root can make one.
func TestSiteScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file that a site could have made")
	}
	dir := filepath.Dir(ofSite(t))
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
