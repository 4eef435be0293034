package loader

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestNotMeant: a run directory that is not for this process, or not for anybody
// any more, is passed over without a word and without a trace.
func TestNotMeant(t *testing.T) {
	if _, err := os.Stat(python); err != nil {
		t.Skipf("no Python: %v", err)
	}
	script := filepath.Join(t.TempDir(), "load.py")
	layTorch(t, filepath.Dir(script))
	if err := os.WriteFile(script, []byte("import torch.utils.data.dataloader as d; print(d.mark)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	me, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	identify := func(change func(*identity)) func(string) error {
		return func(dir string) error {
			i := me
			change(&i)
			return os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600)
		}
	}
	type spoil struct {
		do   func(dir string) error
		wrap []string // started by this
		dir  string   // RSSWARDEN_DIR, @ stands for what it was
		root bool
	}
	for name, s := range map[string]spoil{
		"foreign boot":          {do: identify(func(i *identity) { i.BootID = "00000000-0000-0000-0000-000000000000" })},
		"foreign PID namespace": {do: identify(func(i *identity) { i.PIDNS = "pid:[1]" })},
		"other version":         {do: func(dir string) error { return os.WriteFile(dir+"/identity", []byte("version 2\n"), 0o600) }},
		"empty identity":        {do: func(dir string) error { return os.WriteFile(dir+"/identity", nil, 0o600) }},
		"huge identity":         {do: func(dir string) error { return os.WriteFile(dir+"/identity", make([]byte, 1<<20), 0o600) }},
		"binary identity":       {do: func(dir string) error { return os.WriteFile(dir+"/identity", []byte("\xff\xfe \x00\n"), 0o600) }},
		"no identity":           {do: func(dir string) error { return os.Remove(dir + "/identity") }},
		"identity is a pipe": {do: func(dir string) error {
			return errJoin(os.Remove(dir+"/identity"), syscall.Mkfifo(dir+"/identity", 0o600))
		}},
		"identity is a link": {do: func(dir string) error {
			return errJoin(os.Rename(dir+"/identity", dir+"/other"), os.Symlink("other", dir+"/identity"))
		}},
		"open to all":     {do: func(dir string) error { return os.Chmod(dir, 0o755) }},
		"the run is over": {do: Remove},
		"a relative name": {dir: "."},
		"a link":          {dir: "@-link", do: func(dir string) error { return os.Symlink(dir, dir+"-link") }},
		"a file":          {dir: "@/identity"},
		"an empty name":   {dir: ""},
		"not UTF-8":       {dir: "/\xff\xfe"},
		"another user's":  {do: func(dir string) error { return os.Chown(dir, 12345, 12345) }, root: true},
		"in a container":  {wrap: []string{"unshare", "--pid", "--fork", "--mount-proc"}, root: true},
		"as another user": {wrap: []string{"setpriv", "--reuid", "12345", "--clear-groups"}, root: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.root && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			env := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
			p, err := Prepare(Options{Env: atHome(t, env)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { Remove(p.Dir) })
			hooked := p.Env
			if s.do == nil {
				s.do = func(string) error { return nil }
			}
			if s.dir != "" || name == "an empty name" {
				hooked = setEnv(hooked, EnvDir, strings.ReplaceAll(s.dir, "@", p.Dir))
			}
			if err := s.do(p.Dir); err != nil {
				t.Fatal(err)
			}
			before := listing(p.Dir)
			run := func(env []string) string {
				args := append(slices.Clone(s.wrap), python, script)
				if _, err := exec.LookPath(args[0]); err != nil {
					t.Skip(err)
				}
				// Who may be anybody must be able to read it.
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Dir, cmd.Env = p.Dir[:strings.LastIndex(p.Dir, "/rsswarden-")], env
				out, err := cmd.CombinedOutput()
				return fmt.Sprintf("%s%v", out, err)
			}
			bare, got := run(env), run(hooked)
			if strings.Contains(bare, "unshare") {
				t.Skip(bare)
			}
			if got != bare {
				t.Errorf("got %q, bare %q", got, bare)
			}
			if after := listing(p.Dir); !slices.Equal(before, after) {
				t.Errorf("before %q, after %q", before, after)
			}
		})
	}
}

func listing(dir string) (names []string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		names = append(names, path)
		return nil
	})
	return names
}

// TestHookRefused: a hook that anybody else may have written, or that is not
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
		"hook open to all":        {func(h, _ string) error { return os.Chmod(h, 0o777) }, "written by others", false},
		"package open to a group": {func(h, _ string) error { return os.Chmod(h+"/_rsswarden", 0o720) }, "written by others", false},
		"file open to all":        {func(h, _ string) error { return os.Chmod(h+"/_rsswarden/patch.py", 0o602) }, "written by others", false},
		"a link to it": {func(h, p string) error {
			return errJoin(os.Rename(h, p+"/planted"), os.Symlink("planted", h))
		}, "neither file nor directory", false},
		"a link in it": {func(h, p string) error {
			return errJoin(os.Rename(h+"/sitecustomize.py", p+"/planted.py"), os.Symlink("../planted.py", h+"/sitecustomize.py"))
		}, "neither file nor directory", false},
		"a pipe in it": {func(h, _ string) error {
			return errJoin(os.Remove(h+"/sitecustomize.py"), syscall.Mkfifo(h+"/sitecustomize.py", 0o600))
		}, "neither file nor directory", false},
		"changed": {func(h, _ string) error {
			return os.WriteFile(h+"/_rsswarden/guard.py", []byte("print('evil')\n"), 0o600)
		}, "has been changed", false},
		"cut short":        {func(h, _ string) error { return os.Truncate(h+"/_rsswarden/guard.py", 10) }, "has been changed", false},
		"a file is gone":   {func(h, _ string) error { return os.Remove(h + "/_rsswarden/guard.py") }, "is not whole", false},
		"a package beside": {func(h, _ string) error { return os.Mkdir(h+"/sitecustomize", 0o700) }, "does not belong there", false},
		"a library beside": {func(h, _ string) error { return os.WriteFile(h+"/sitecustomize.so", nil, 0o600) }, "does not belong there", false},
		"compiled files": {func(h, _ string) error {
			return errJoin(os.Remove(h+"/__pycache__"), os.Mkdir(h+"/__pycache__", 0o700))
		}, "does not belong there", false},
		"a compiled file": {func(h, _ string) error {
			return errJoin(os.Remove(h+"/sitecustomize.pyc"), os.WriteFile(h+"/sitecustomize.pyc", nil, 0o600))
		}, "does not belong there", false},
		"a file in its place": {func(h, p string) error {
			return errJoin(os.Rename(h, p+"/other"), os.WriteFile(h, nil, 0o600))
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
			if err := s.do(good.Hook, filepath.Dir(good.Hook)); err != nil {
				t.Fatal(err)
			}
			p, err := Prepare(Options{Env: env})
			if err != nil {
				t.Fatal(err)
			}
			defer Remove(p.Dir)
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
// it is a directory that anybody may make.
func TestColon(t *testing.T) {
	env := atHome(t, cleanEnv())
	home := filepath.Join(getEnv(env, "HOME"), "a:b")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	env = setEnv(env, "HOME", home)
	p, err := Prepare(Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer Remove(p.Dir)
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
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	old := func(hex string) string { return hookPrefix + strings.Repeat(hex, 16) }
	for name, days := range map[string]int{
		old("a"): 91, old("b"): 89, old("c") + ".7.tmp": 2, old("d") + ".8.tmp": 0, old("e") + "0": 400, "other": 400, "hook-": 400,
	} {
		dir := filepath.Join(parent, name)
		if err := errJoin(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/f", nil, 0o600), age(dir, days)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(parent, old("f"))); err != nil {
		t.Fatal(err)
	}
	dir, err := layHookIn(parent)
	if err != nil {
		t.Fatal(err)
	}
	left, err := readDirNames(parent, 100)
	want := []string{"hook-", old("b"), old("d") + ".8.tmp", old("e") + "0", old("f"), filepath.Base(dir), "other"}
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, want %q, %v", left, want, err)
	}

	// Each start of a run notes that it is in use, once a day.
	for days, noted := range map[int]bool{0: false, 100: true} {
		if err := age(dir, days); err != nil {
			t.Fatal(err)
		}
		before, err1 := os.Stat(dir)
		_, err2 := layHookIn(parent)
		after, err3 := os.Stat(dir)
		if err := errJoin(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
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
