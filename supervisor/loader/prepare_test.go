package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

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
	must(t, err)
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
