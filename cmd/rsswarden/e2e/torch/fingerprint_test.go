package torch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestFingerprint: all that a Python program can see of itself, in /proc and
// inside, is the same bare and under rsswarden, but for the list in
// supervisor/loader/inert.md; and all of that list is seen.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	probe, err := filepath.Abs("../../../../supervisor/loader/testdata/probe.py")
	wardentest.NoError(t, err)
	for _, torch := range torches {
		for _, imported := range []bool{false, true} {
			name := "torch " + torch.name
			args := []string{"proc"}
			lists := []string{"From the start", "whole program's"}
			if imported {
				name += ", imported"
				args = append(args, "torch")
				lists = append(lists, "Once torch")
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				command := torch.command(t)
				dir := t.TempDir()
				bare, wrapped := lookAt(t, command, dir, probe, args), lookAt(t, command, dir, probe, args, binary, "run", "--quiet", "--")
				if again := lookAt(t, command, dir, probe, args); different(bare, again) != nil {
					t.Fatalf("two bare runs differ: %q", different(bare, again))
				}
				var listed []string
				for _, l := range lists {
					listed = append(listed, torchtest.Inert(t, l)...)
				}
				seen := map[string]bool{}
				for _, key := range different(bare, wrapped) {
					i := slices.IndexFunc(listed, func(l string) bool { return torchtest.Matches(l, key) })
					if i < 0 {
						t.Errorf("%s: bare %q, wrapped %q", key, bare[key], wrapped[key])
						continue
					}
					seen[listed[i]] = true
				}
				for _, l := range listed {
					if !seen[l] {
						t.Errorf("%s is listed and does not differ", l)
					}
				}
			})
		}
	}
}

// lookAt runs the probe, by wrap where that is given.
func lookAt(t *testing.T, command func(string, ...string) *exec.Cmd, dir, probe string, args []string, wrap ...string) map[string]string {
	t.Helper()
	out := filepath.Join(dir, "seen")
	argv := slices.Concat(wrap, []string{python, probe, out}, args)
	cmd := command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "XDG_CACHE_HOME="+dir, "OMP_NUM_THREADS=2", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Dir = dir
	stdout, stderr, err := wardentest.Run(cmd)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 || stdout != "to stdout\n" {
		t.Fatalf("%v: %q, %q", err, stdout, stderr)
	}
	b := wardentest.ReadFile(t, out)
	wardentest.NoError(t, os.Remove(out))
	seen := map[string]string{"stderr": stderr}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(key, "fd ") {
			value = pipes.ReplaceAllString(value, "$1:[]")
		}
		seen[key] += fmt.Sprintf("%s;", value)
	}
	// A command in a root of its own has mounts of its own, each time others.
	if mine, err := os.Readlink("/proc/self/ns/mnt"); err == nil && seen["ns mnt"] != mine+";" {
		delete(seen, "ns mnt")
		delete(seen, "proc mountinfo")
	}
	return seen
}

func different(a, b map[string]string) (keys []string) {
	for key := range a {
		if b[key] != a[key] {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// pipes are numbered by the kernel, in each run differently.
var pipes = regexp.MustCompile(`(pipe|socket):\[[0-9]+\]`)
