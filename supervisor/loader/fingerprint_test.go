package loader

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestArguments: how a worker is started is found in the text of the constructor, and
// what is not understood is named.
func TestArguments(t *testing.T) {
	t.Parallel()
	var rows []struct{ Name, Want string }
	must(t, json.Unmarshal([]byte(wardentest.Read("testdata/arguments.json")), &rows))
	lines := strings.Split(inHook(t, "fingerprint.py", "arguments", script(t, "arguments.json")), "\n")
	if len(rows) == 0 || len(lines) != len(rows)+1 {
		t.Fatalf("%d answers: %q", len(lines)-1, lines)
	}
	for i, row := range rows {
		if !strings.Contains(lines[i], row.Want) {
			t.Errorf("%s: got %s, want %s", row.Name, lines[i], row.Want)
		}
	}
}

// EnvTexts names a directory with the text of releases of torch, for [TestReleases]:
// VERSION has what is below torch/utils/data.
const EnvTexts = "TORCH_TEXTS"

// release is a row of testdata/releases.txt.
type release struct {
	version, digest string
	dataset         string   // how a worker is given the data set: is or in, and the attribute
	tried           []string // the binaries that a trial of its text went well with, VERSION/PYTHON
}

func readReleases(t *testing.T) []release {
	t.Helper()
	data, err := os.ReadFile("testdata/releases.txt")
	must(t, err)
	var list []release
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) < 3 {
			t.Fatalf("a row of %d fields: %s", len(f), line)
		}
		list = append(list, release{f[0], f[1], f[2], f[3:]})
	}
	return list
}

// TestReleases holds the table of torch's releases against what is shipped: each digest
// in known.py is that of a release, each release is known or was tried, and the torch of
// a stand has the digest that the table says: recycling is on with it because its text is in
// the list, and not by a trial. With [EnvTexts] it reads the texts of
// releases again, and tries each over the binaries of the stands.
func TestReleases(t *testing.T) {
	t.Parallel()
	list := readReleases(t)
	var known map[string][]string
	must(t, json.Unmarshal([]byte(inHook(t, "fingerprint.py", "digests")), &known))
	for digest, pythons := range known {
		if !slices.ContainsFunc(list, func(r release) bool { return r.digest == digest }) {
			t.Errorf("known.py has %s on %v, no release has it", digest, pythons)
		}
	}
	for _, r := range list {
		if len(known[r.digest]) == 0 && len(r.tried) == 0 {
			t.Errorf("torch %s is neither known nor tried", r.version)
		}
	}

	for _, s := range stands {
		t.Run(s.Name, func(t *testing.T) {
			s.Need(t)
			out := inHookOf(t, s, "fingerprint.py", "release")
			f := strings.Fields(out)
			i := slices.IndexFunc(list, func(r release) bool {
				return f[0] == r.version || f[0] == r.version+"a0" // Debian's 1.13.0a0
			})
			switch {
			case i < 0 && s == newest:
				t.Logf("torch %s has no row yet", f[0]) // a newer Debian sid
			case i < 0:
				t.Fatalf("torch %s has no row", f[0])
			case f[1] != list[i].digest || f[2] != list[i].dataset:
				t.Errorf("%s, want %+v", out, list[i])
			}
			// That of Debian sid changes: a newer one has a trial in the other tests.
			out = inHookOf(t, s, "fingerprint.py", "recycles")
			if !strings.HasPrefix(out, "None True ") && (s != newest || wardentest.Few(1, 0) == 1) {
				t.Errorf("the digest of its text is not in known.py: %s", out)
			}
		})
	}

	texts := os.Getenv(EnvTexts)
	if texts == "" {
		return
	}
	for _, r := range list {
		folder := filepath.Join(texts, r.version)
		if _, err := os.Stat(folder); err != nil {
			t.Logf("no text of torch %s", r.version)
			continue
		}
		t.Run(r.version, func(t *testing.T) {
			out := inHook(t, "fingerprint.py", "text", folder)
			if got, want := strings.TrimSpace(out), r.digest+" "+r.dataset; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			for _, s := range stands {
				t.Run("over "+s.Name, func(t *testing.T) {
					s.Need(t)
					env, _ := hooked(t)
					site := mutate(t, s, mutant{})
					data := filepath.Join(site, "torch/utils/data")
					must(t, errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(folder))))
					cmd := s.Command(t, python, "-c", "import torch.utils.data")
					cmd.Env = append(os.Environ(), "PYTHONPATH="+site)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Skipf("%v: %s", err, out)
					}
					u := untried(t, s, env, site)
					v, err := Try(t.Context(), u, env, startOn(t, s))
					t.Logf("torch %s: %+v, %v", u.Torch, v, err)
					if v.OK() == !slices.Contains(r.tried, strings.TrimSpace(inHookOf(t, s, "fingerprint.py", "binaries"))) {
						t.Errorf("%+v, the table has it tried over %v", v, r.tried)
					}
				})
			}
		})
	}
}

// TestWorksWith holds the README's row on PyTorch against what the stands have.
func TestWorksWith(t *testing.T) {
	t.Parallel()
	var list []string
	for _, s := range stands {
		s.Need(t)
		list = append(list, strings.TrimSpace(inHookOf(t, s, "fingerprint.py", "platform")))
	}
	rsstest.WorksWith(t, "PyTorch", list)
}
