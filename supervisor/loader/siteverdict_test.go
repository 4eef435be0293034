package loader

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSiteVerdict: a verdict that root keeps for all users counts for a user who has none,
// and only where root alone can have written it.
func TestSiteVerdict(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const user = 1234
	u, env := stranger(t, "exit 1")
	refused := Verdict{VerdictRefused, "batches were lost"}
	for _, test := range []struct {
		name string
		harm func(dir, file string) error
		want bool
	}{
		{"as root wrote it", func(_, _ string) error { return nil }, true},
		{"others may write to the directory", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, false},
		{"the directory of a user", func(dir, _ string) error { return os.Chown(dir, user, user) }, false},
		{"the directory above of a user", func(dir, _ string) error { return os.Chown(filepath.Dir(dir), user, user) }, false},
		{"others may write to the directory above", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777) }, false},
		{"a verdict of a user", func(_, file string) error { return os.Chown(file, user, user) }, false},
		{"others may write the verdict", func(_, file string) error { return os.Chmod(file, 0o666) }, false},
		{"a link in place of the verdict", func(_, file string) error {
			if err := os.Rename(file, file+".real"); err != nil {
				return err
			}
			return os.Symlink(file+".real", file)
		}, false},
		{"a user's link in place of the directory", func(dir, _ string) error {
			if err := os.Rename(dir, dir+".real"); err != nil {
				return err
			}
			if err := os.Symlink(dir+".real", dir); err != nil {
				return err
			}
			return os.Lchown(dir, user, user)
		}, false},
		{"cut short", func(_, file string) error { return os.Truncate(file, 5) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			SiteVerdicts = filepath.Join(t.TempDir(), "rsswarden", "torch")
			defer func() { SiteVerdicts = "" }()
			if err := KeepForAll(u, refused); err != nil {
				t.Fatal(err)
			}
			name, _ := verdictName(u)
			if err := test.harm(SiteVerdicts, filepath.Join(SiteVerdicts, name)); err != nil {
				t.Fatal(err)
			}
			if v, ok := KeptVerdict(u, env); ok != test.want || ok && v != refused {
				t.Errorf("%+v, %v", v, ok)
			}
		})
	}

	t.Run("beside the user's own", func(t *testing.T) {
		SiteVerdicts = filepath.Join(t.TempDir(), "rsswarden", "torch")
		defer func() { SiteVerdicts = "" }()
		failed := Verdict{VerdictFailed, "it crashed"}
		if err := keepVerdict(u, env, failed); err != nil {
			t.Fatal(err)
		}
		if err := KeepForAll(u, failed); err != nil {
			t.Fatal(err)
		}
		if v, ok := KeptVerdict(u, env); !ok || v != failed {
			t.Errorf("a trial of root's that failed counts: %+v, %v", v, ok)
		}
		if err := KeepForAll(u, refused); err != nil {
			t.Fatal(err)
		}
		if v, ok := KeptVerdict(u, env); !ok || v != refused {
			t.Errorf("root's verdict does not count: %+v, %v", v, ok)
		}
		good := Verdict{What: VerdictOK}
		if err := keepVerdict(u, env, good); err != nil {
			t.Fatal(err)
		}
		if v, ok := KeptVerdict(u, env); !ok || v != good {
			t.Errorf("the user's own verdict does not count: %+v, %v", v, ok)
		}
	})
}
