package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader/hook"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// env returns an environment whose run directories and hook lie in temporary
// directories, and those two.
func testEnv(t testing.TB) (env []string, run, home string) {
	run, home = t.TempDir(), t.TempDir()
	return []string{"A=1", EnvRuntime + "=" + run, "HOME=" + home}, run, home
}

func TestPrepare(t *testing.T) {
	env, run, home := testEnv(t)
	p, err := Prepare(Options{Env: env, Name: "17.batch.0"})
	if err != nil {
		t.Fatal(err)
	}
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
		p, err := Prepare(Options{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		defer Remove(p.Dir)
		if got := getEnv(p.Env, "PYTHONPATH"); got != p.Hook+tail {
			t.Errorf("%q: PYTHONPATH=%s", old, got)
		}
	}
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
			return errJoin(os.Mkdir(filepath.Join(run, own), 0o700), os.Chown(filepath.Join(run, own), 12345, 12345))
		},
		"not there": func(run string) error { return os.RemoveAll(run) },
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && name == "of another" {
				t.Skip("only root can give a directory away")
			}
			_, run, _ := testEnv(t)
			if err := spoil(run); err != nil {
				t.Fatal(err)
			}
			me, err := identify(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
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

func errJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestSweep(t *testing.T) {
	env, run, _ := testEnv(t)
	p, err := Prepare(Options{Env: env, Name: "live"})
	if err != nil {
		t.Fatal(err)
	}
	me, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all := filepath.Dir(p.Dir)
	for name, i := range map[string]identity{
		"reused PID":   {Owner: rss.ProcID{PID: os.Getpid(), Start: me.Owner.Start + 1}, BootID: me.BootID, PIDNS: me.PIDNS},
		"no such PID":  {Owner: rss.ProcID{PID: 1 << 30, Start: 1}, BootID: me.BootID, PIDNS: me.PIDNS},
		"earlier boot": {Owner: me.Owner, BootID: "another", PIDNS: me.PIDNS},
		"elsewhere":    {Owner: rss.ProcID{PID: 1 << 30, Start: 1}, BootID: me.BootID, PIDNS: "pid:[1]"},
	} {
		dir := filepath.Join(all, name)
		if err := errJoin(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(all, "unfinished"), 0o700); err != nil {
		t.Fatal(err)
	}
	q, err := Prepare(Options{Env: env, Name: "new"})
	if err != nil || q.Swept != 3 {
		t.Errorf("%+v, %v", q, err)
	}
	left, err := readDirNames(all, 100)
	if err != nil || !slices.Equal(left, []string{"elsewhere", "live", "new", "unfinished"}) {
		t.Errorf("left %q, %v in %s", left, err, run)
	}
}

// TestHookChanged has somebody else's code where the hook should lie.
func TestHookChanged(t *testing.T) {
	env, _, home := testEnv(t)
	p, err := Prepare(Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.Hook, home) {
		t.Fatalf("hook in %s", p.Hook)
	}
	if err := os.WriteFile(filepath.Join(p.Hook, "sitecustomize.py"), []byte("print('evil')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := Prepare(Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(q.Hook, q.Dir) {
		t.Errorf("hook in %s", q.Hook)
	}
	if err := checkHook(q.Hook); err != nil {
		t.Error(err)
	}
}

func TestHookNotInWritablePlace(t *testing.T) {
	env, _, home := testEnv(t)
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.Hook, p.Dir) {
		t.Errorf("hook in %s", p.Hook)
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

func BenchmarkPrepare(b *testing.B) {
	env, _, _ := testEnv(b)
	for b.Loop() {
		p, err := Prepare(Options{Env: env, Name: "1.0.0"})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		Remove(p.Dir)
		b.StartTimer()
	}
}
