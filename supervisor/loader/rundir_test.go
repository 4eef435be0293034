package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader/hook"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestOwner(t *testing.T) {
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	if _, _, err := Owner(dir); err == nil {
		t.Error("a directory of no run has an owner")
	}
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
	write := func(i identity) {
		t.Helper()
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600))
	}
	write(me)
	if id, lives, err := Owner(dir); id != me.Owner || !lives || err != nil {
		t.Errorf("ours: %v, %v, %v", id, lives, err)
	}
	ended := me
	ended.Owner = rss.ProcID{PID: me.Owner.PID, Start: me.Owner.Start - 1}
	write(ended)
	if id, lives, err := Owner(dir); id != ended.Owner || lives || err != nil {
		t.Errorf("of a process that has ended: %v, %v, %v", id, lives, err)
	}
	for _, change := range []func(*identity){
		func(i *identity) { i.BootID = "another" },
		func(i *identity) { i.PIDNS = "pid:[1]" },
	} {
		other := me
		change(&other)
		write(other)
		if _, lives, err := Owner(dir); lives || err == nil || !strings.Contains(err.Error(), "another boot or PID namespace") {
			t.Errorf("of elsewhere: %v, %v", lives, err)
		}
	}
	write(me)
	wardentest.NoError(t, os.Chmod(dir, 0o755))
	if _, _, err := Owner(dir); err == nil {
		t.Error("a directory that others may enter")
	}
	if _, _, err := Owner(filepath.Join(dir, "none")); err == nil {
		t.Error("no directory")
	}
}

// TestNotMeant: a run directory that is not for this process, or no longer for any, is
// ignored without a message or a trace.
func TestNotMeant(t *testing.T) {
	if _, err := os.Stat(python); err != nil {
		t.Skipf("no Python: %v", err)
	}
	script := filepath.Join(t.TempDir(), "load.py")
	layTorch(t, filepath.Dir(script))
	wardentest.NoError(t, os.WriteFile(script, []byte("import torch.utils.data.dataloader as d; print(d.mark)\n"), 0o600))
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
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
			return errors.Join(os.Remove(dir+"/identity"), syscall.Mkfifo(dir+"/identity", 0o600))
		}},
		"identity is a link": {do: func(dir string) error {
			return errors.Join(os.Rename(dir+"/identity", dir+"/other"), os.Symlink("other", dir+"/identity"))
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
			p := prepare(t, atHome(t, env))
			hooked := p.Env
			if s.do == nil {
				s.do = func(string) error { return nil }
			}
			if s.dir != "" || name == "an empty name" {
				hooked = setEnv(hooked, EnvDir, strings.ReplaceAll(s.dir, "@", p.Dir))
			}
			wardentest.NoError(t, s.do(p.Dir))
			before := listing(p.Dir)
			run := func(env []string) string {
				args := append(slices.Clone(s.wrap), python, script)
				if _, err := exec.LookPath(args[0]); err != nil {
					t.Skip(err)
				}
				// Every user must be able to read it.
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

func TestPrepareRefusesUnsafePlaces(t *testing.T) {
	own := fmt.Sprintf("rsswarden-%d", os.Geteuid())
	for name, spoil := range map[string]func(run string) error{
		"writable by all": func(run string) error { return os.Chmod(run, 0o777) },
		"link": func(run string) error {
			if err := os.Mkdir(run+"/other", 0o700); err != nil {
				return err
			}
			return os.Symlink(run+"/other", filepath.Join(run, own))
		},
		"file":        func(run string) error { return os.WriteFile(filepath.Join(run, own), nil, 0o700) },
		"open to all": func(run string) error { return os.MkdirAll(filepath.Join(run, own), 0o755) },
		"of another": func(run string) error {
			return errors.Join(os.Mkdir(filepath.Join(run, own), 0o700), os.Chown(filepath.Join(run, own), 12345, 12345))
		},
		"not there": func(run string) error { return os.RemoveAll(run) },
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && name == "of another" {
				t.Skip("only root can give a directory away")
			}
			_, run, _ := testEnv(t)
			wardentest.NoError(t, spoil(run))
			me, err := identify(os.Getpid())
			wardentest.NoError(t, err)
			if dir, _, err := makeRunDir([]string{run}, "x", me); err == nil {
				t.Errorf("made %s", dir)
			}
			// The next place is taken.
			next := t.TempDir()
			dir, _, err := makeRunDir([]string{run, next}, "x", me)
			if err != nil || !strings.HasPrefix(dir, next) {
				t.Errorf("made %s, %v", dir, err)
			}
		})
	}
}

func TestSweep(t *testing.T) {
	env, run, _ := testEnv(t)
	p, err := Prepare(Options{Env: env, Name: "live"})
	wardentest.NoError(t, err)
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
	all := filepath.Dir(p.Dir)
	for name, i := range map[string]identity{
		"reused PID":   {Owner: rss.ProcID{PID: os.Getpid(), Start: me.Owner.Start + 1}, BootID: me.BootID, PIDNS: me.PIDNS},
		"no such PID":  {Owner: rss.ProcID{PID: 1 << 30, Start: 1}, BootID: me.BootID, PIDNS: me.PIDNS},
		"earlier boot": {Owner: me.Owner, BootID: "another", PIDNS: me.PIDNS},
		"elsewhere":    {Owner: rss.ProcID{PID: 1 << 30, Start: 1}, BootID: me.BootID, PIDNS: "pid:[1]"},
	} {
		dir := filepath.Join(all, name)
		wardentest.NoError(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600)))
	}
	wardentest.NoError(t, os.Mkdir(filepath.Join(all, "unfinished"), 0o700))
	q, err := Prepare(Options{Env: env, Name: "new"})
	if err != nil || q.Swept != 3 {
		t.Errorf("%+v, %v", q, err)
	}
	left, err := readDirNames(all, 100)
	if err != nil || !slices.Equal(left, []string{"elsewhere", "live", "new", "unfinished"}) {
		t.Errorf("left %q, %v in %s", left, err, run)
	}
}

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{
		"17_3.batch.0": "17_3.batch.0", "../../etc": "_.._etc", "a b/c\n": "a_b_c_", "": "", "...": "", strings.Repeat("x", 300): strings.Repeat("x", 128),
	} {
		if got := cleanName(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(identity{Owner: rss.ProcID{PID: 1, Start: 2}, BootID: "b", PIDNS: "n"}.format())
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := parseIdentity(data)
		if err != nil {
			return
		}
		if again, err := parseIdentity(i.format()); err != nil || again != i {
			t.Errorf("%+v, %v from %+v", again, err, i)
		}
	})
}

// TestPlantedTemporary: whatever a training script puts where the watcher writes, the
// watcher neither waits for it nor writes through it.
func TestPlantedTemporary(t *testing.T) {
	for what, plant := range map[string]func(path, victim string) error{
		"a pipe":      func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func(path, victim string) error { return os.Symlink(victim, path) },
		"a hard link": func(path, victim string) error { return os.Link(victim, path) },
		"a directory": func(path, _ string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(path+"/x", nil, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "ctl.1.2"), filepath.Join(dir, "victim")
			wardentest.NoError(t, errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), plant(path+".tmp", victim)))
			wrote := make(chan error, 1)
			go func() { wrote <- replaceFile(path, []byte("new")) }()
			select {
			case err := <-wrote:
				b, read := os.ReadFile(path)
				if what == "a directory" {
					if err == nil || !errors.Is(read, fs.ErrNotExist) {
						t.Errorf("%v, %q", err, b)
					}
				} else if err != nil || string(b) != "new" {
					t.Errorf("%v, %q", err, b)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the watcher waits")
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
				t.Errorf("the file behind it: %q, %v", b, err)
			}
		})
	}
}

// env returns an environment whose run directories and hook lie in temporary
// directories, and those two.
func testEnv(t testing.TB) (env []string, run, home string) {
	run, home = t.TempDir(), t.TempDir()
	return []string{"A=1", EnvRuntime + "=" + run, "HOME=" + home}, run, home
}

func TestPrepare(t *testing.T) {
	env, run, home := testEnv(t)
	p, err := Prepare(Options{Env: env, Name: "17.batch.0"})
	wardentest.NoError(t, err)
	all := filepath.Join(run, fmt.Sprintf("rsswarden-%d", os.Geteuid()))
	if want := filepath.Join(all, "17.batch.0"); p.Dir != want {
		t.Errorf("run directory %s, want %s", p.Dir, want)
	}
	for _, dir := range []string{all, p.Dir} {
		if err := nodedir.CheckOwn(dir); err != nil {
			t.Error(err)
		}
	}
	if want := filepath.Join(home, ".cache/rsswarden", "hook-"+hook.Hash()); p.Hook != want {
		t.Errorf("hook in %s, want %s", p.Hook, want)
	}
	want := append(slices.Clone(env), "RSSWARDEN_DIR="+p.Dir, "PYTHONPATH="+p.Hook)
	if !slices.Equal(p.Env, want) {
		t.Errorf("environment %q, want %q", p.Env, want)
	}

	// The same task again, while the first lives: a directory of its own, the same hook.
	q, err := Prepare(Options{Env: env, Name: "17.batch.0"})
	if err != nil || q.Dir != p.Dir+"-1" || q.Hook != p.Hook {
		t.Errorf("%+v, %v", q, err)
	}
	for _, dir := range []string{p.Dir, q.Dir, q.Dir} {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(run); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPreparePythonPath(t *testing.T) {
	for old, tail := range map[string]string{
		"": "", "PYTHONPATH=": "", "PYTHONPATH=/a:/b": ":/a:/b", "PYTHONPATH=/a:": ":/a:",
	} {
		env, _, _ := testEnv(t)
		if old != "" {
			env = append([]string{old}, env...)
		}
		p := prepare(t, env)
		if got := getEnv(p.Env, "PYTHONPATH"); got != p.Hook+tail {
			t.Errorf("%q: PYTHONPATH=%s", old, got)
		}
	}
}
