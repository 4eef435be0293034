package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
// a stand has the digest that the table says. With [EnvTexts] it reads the texts of
// releases again, and tries each over the binaries of the stands.
func TestReleases(t *testing.T) {
	list := readReleases(t)
	_, dir := hooked(t)
	var known map[string][]string
	if err := json.Unmarshal([]byte(runPython(t, nil, "-c", fmt.Sprintf(importHook, dir)+`
import json
from _rsswarden import known
print(json.dumps(known.DIGESTS))
`)), &known); err != nil {
		t.Fatal(err)
	}
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
		t.Run(s.name, func(t *testing.T) {
			s.need(t)
			out, err := s.command(t, python, "-c", fmt.Sprintf(importHook, dir)+readText+torchVersion+`
print(version, *said(folder + "/utils/data"))
`).Output()
			if err != nil {
				t.Fatal(err)
			}
			f := strings.Fields(string(out))
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
			out := runPython(t, nil, "-c", fmt.Sprintf(importHook, dir)+readText+`print(*said(sys.argv[1]))`, folder)
			if got, want := strings.TrimSpace(out), r.digest+" "+r.dataset; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			for _, s := range stands {
				t.Run("over "+s.name, func(t *testing.T) {
					s.need(t)
					env, _ := hooked(t)
					site := mutate(t, s, mutant{})
					data := filepath.Join(site, "torch/utils/data")
					if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(folder))); err != nil {
						t.Fatal(err)
					}
					cmd := s.command(t, python, "-c", "import torch.utils.data")
					cmd.Env = append(os.Environ(), "PYTHONPATH="+site)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Skipf("%v: %s", err, out)
					}
					u := untried(t, s, env, site)
					v, err := Try(t.Context(), u, env, s.start(t))
					t.Logf("torch %s: %+v, %v", u.Torch, v, err)
					if v.OK() != slices.Contains(r.tried, s.binaries(t)) {
						t.Errorf("%+v, the table has it tried over %v", v, r.tried)
					}
				})
			}
		})
	}
}

// readText defines said, which returns the digest of a text, or why it is not
// understood, and how a worker is given the data set.
const readText = `
def said(folder):
    got = fingerprint.understand(fingerprint.below(folder))
    return got.why or got.digest, ".".join(got.filled.get("dataset") or got.filled.get("dataset_holder") or ("", ""))
`

// torchVersion defines the version of torch and its folder, without the seconds of an import.
const torchVersion = `
import importlib.util, sys
folder, scope = importlib.util.find_spec("torch").submodule_search_locations[0], {}
exec(open(folder + "/version.py").read(), scope)
version = scope["__version__"].split("+")[0]
`

// binaries names the torch and the Python of a stand.
func (s *stand) binaries(t *testing.T) string {
	t.Helper()
	out, err := s.command(t, python, "-c", torchVersion+`print("%s/%d.%d" % ((version,) + sys.version_info[:2]))`).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
