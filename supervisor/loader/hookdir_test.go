package loader

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestHookRefused: a hook that another user may have written, or that is not
// what it was, is not used, and Prepare tells why.
func TestHookRefused(t *testing.T) {
	for name, s := range map[string]struct {
		do   func(hook, parent string) error
		why  string
		root bool
	}{
		"a file of another user":  {func(h, _ string) error { return os.Chown(h+"/sitecustomize.py", 12345, 12345) }, "belongs to another user", true},
		"all of another user":     {func(h, _ string) error { return os.Chown(h, 12345, 12345) }, "belongs to another user", true},
		"above it another user":   {func(_, p string) error { return os.Chown(p, 12345, 12345) }, "belongs to another user", true},
		"parent open to a group":  {func(_, p string) error { return os.Chmod(p, 0o770) }, "written by others (mode 0770", false},
		"parent open to all":      {func(_, p string) error { return os.Chmod(p, 0o707) }, "written by others (mode 0707", false},
		"above it open to all":    {func(_, p string) error { return os.Chmod(p+"/../..", 0o777) }, "written by others", false},
		"hook open to all":        {func(h, _ string) error { return os.Chmod(h, 0o777) }, "written by others", false},
		"package open to a group": {func(h, _ string) error { return os.Chmod(h+"/_rsswarden", 0o720) }, "written by others", false},
		"file open to all":        {func(h, _ string) error { return os.Chmod(h+"/_rsswarden/patch.py", 0o602) }, "written by others", false},
		"a link to it": {func(h, p string) error {
			return errors.Join(os.Rename(h, p+"/planted"), os.Symlink("planted", h))
		}, "neither file nor directory", false},
		"a link in it": {func(h, p string) error {
			return errors.Join(os.Rename(h+"/sitecustomize.py", p+"/planted.py"), os.Symlink("../planted.py", h+"/sitecustomize.py"))
		}, "neither file nor directory", false},
		"a pipe in it": {func(h, _ string) error {
			return errors.Join(os.Remove(h+"/sitecustomize.py"), syscall.Mkfifo(h+"/sitecustomize.py", 0o600))
		}, "neither file nor directory", false},
		"changed": {func(h, _ string) error {
			return os.WriteFile(h+"/_rsswarden/guard.py", []byte("print('evil')\n"), 0o600)
		}, "has been changed", false},
		"cut short":        {func(h, _ string) error { return os.Truncate(h+"/_rsswarden/guard.py", 10) }, "has been changed", false},
		"a file is gone":   {func(h, _ string) error { return os.Remove(h + "/_rsswarden/guard.py") }, "is not whole", false},
		"a package beside": {func(h, _ string) error { return os.Mkdir(h+"/sitecustomize", 0o700) }, "does not belong there", false},
		"a library beside": {func(h, _ string) error { return os.WriteFile(h+"/sitecustomize.so", nil, 0o600) }, "does not belong there", false},
		"compiled files": {func(h, _ string) error {
			return errors.Join(os.Remove(h+"/__pycache__"), os.Mkdir(h+"/__pycache__", 0o700))
		}, "does not belong there", false},
		"a compiled file": {func(h, _ string) error {
			return errors.Join(os.Remove(h+"/sitecustomize.pyc"), os.WriteFile(h+"/sitecustomize.pyc", nil, 0o600))
		}, "does not belong there", false},
		"a file in its place": {func(h, p string) error {
			return errors.Join(os.Rename(h, p+"/other"), os.WriteFile(h, nil, 0o600))
		}, "does not belong there", false},
	} {
		t.Run(name, func(t *testing.T) {
			if s.root && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			env := atHome(t, cleanEnv())
			good, err := Prepare(Options{Env: env})
			if err != nil || good.Passed != nil {
				t.Fatal(err, good.Passed)
			}
			defer Remove(good.Dir)
			must(t, s.do(good.Hook, filepath.Dir(good.Hook)))
			p := prepare(t, env)
			if !strings.HasPrefix(p.Hook, p.Dir+"/") || checkHook(p.Hook) != nil {
				t.Errorf("hook in %s, run directory %s: %v", p.Hook, p.Dir, checkHook(p.Hook))
			}
			if p.Passed == nil || !strings.Contains(p.Passed.Error(), s.why) {
				t.Errorf("told %v, want %q", p.Passed, s.why)
			}
		})
	}
}

// TestColon: a colon would part the hook's name on PYTHONPATH, and what follows
// it is a directory that any user may make.
func TestColon(t *testing.T) {
	env := atHome(t, cleanEnv())
	home := filepath.Join(getEnv(env, "HOME"), "a:b")
	must(t, os.Mkdir(home, 0o700))
	env = setEnv(env, "HOME", home)
	p := prepare(t, env)
	if strings.Contains(p.Hook, ":") || p.Passed == nil {
		t.Errorf("hook in %s, told %v", p.Hook, p.Passed)
	}
	// And where the run directory has one too, there is no hook at all.
	env = setEnv(env, EnvRuntime, home)
	q, err := Prepare(Options{Env: env})
	if err == nil || !slices.Equal(q.Env, env) {
		t.Errorf("%+v, %v", q, err)
	}
	if left, _ := os.ReadDir(home); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSweepHooks(t *testing.T) {
	parent := t.TempDir()
	must(t, os.Chmod(parent, 0o700))
	old := func(hex string) string { return hookPrefix + strings.Repeat(hex, 16) }
	for name, days := range map[string]int{
		old("a"): 91, old("b"): 89, old("c") + ".7.tmp": 2, old("d") + ".8.tmp": 0, old("e") + "0": 400, "other": 400, "hook-": 400,
	} {
		dir := filepath.Join(parent, name)
		must(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/f", nil, 0o600), age(dir, days)))
	}
	must(t, os.Symlink("/etc", filepath.Join(parent, old("f"))))
	dir, err := layHookIn(parent)
	must(t, err)
	left, err := readDirNames(parent, 100)
	want := []string{"hook-", old("b"), old("d") + ".8.tmp", old("e") + "0", old("f"), filepath.Base(dir), "other"}
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, want %q, %v", left, want, err)
	}

	// Each start of a run notes that it is in use, once a day.
	for days, noted := range map[int]bool{0: false, 100: true} {
		must(t, age(dir, days))
		before, err1 := os.Stat(dir)
		_, err2 := layHookIn(parent)
		after, err3 := os.Stat(dir)
		must(t, errors.Join(err1, err2, err3))
		if got := !after.ModTime().Equal(before.ModTime()); got != noted {
			t.Errorf("after %d days: noted %v", days, got)
		}
	}
	// And that keeps it from the next version.
	sweepHooks(parent, "")
	if err := checkHook(dir); err != nil {
		t.Error(err)
	}
}

func age(dir string, days int) error {
	_, err := exec.Command("touch", "-d", fmt.Sprintf("%d days ago", days), dir).CombinedOutput()
	return err
}
