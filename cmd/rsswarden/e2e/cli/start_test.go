package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// firstLines runs a command under rsswarden outside Slurm and returns what was said.
func firstLines(t *testing.T, env []string, args ...string) string {
	t.Helper()
	tmp := t.TempDir()
	cmd := exec.Command(binary, slices.Concat([]string{"run", "--record", "none"}, args, []string{"--", "true"})...)
	cmd.Env = slices.Concat(slices.DeleteFunc(wardentest.Env(), func(kv string) bool {
		return strings.HasPrefix(kv, "RSSWARDEN") || strings.HasPrefix(kv, "TMPDIR=")
	}), []string{"TMPDIR=" + tmp}, env)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, b)
	}
	return string(b)
}

// TestSaidAtTheStart: what cannot come true as it was asked for is said at the start,
// and only then.
func TestSaidAtTheStart(t *testing.T) {
	for _, c := range []struct {
		args      []string
		want, not string
	}{
		{[]string{"--limit", "0.8"}, "--limit 0.8 is 819 KiB: a number without a suffix is MiB, as in sbatch --mem; GiB are written 80G", ""},
		{[]string{"--limit", "3000000000"}, `--limit 3000000000 is 2861 TiB, more than the `, ""},
		{[]string{"--limit", "3000000000"}, "of this node: it can never act; a number without a suffix is MiB, as in sbatch --mem", ""},
		{[]string{"--limit", "900T"}, "--limit 900T is 900 TiB, more than the ", "without a suffix"},
		{[]string{"--limit", "100M"}, "", "can never act"},
		{[]string{"--at", "97%:requeue"}, "this is no Slurm job: rules with requeue do nothing here", ""},
		{nil, "", "requeue"},
	} {
		out := firstLines(t, nil, c.args...)
		if !strings.Contains(out, c.want) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%v: want %q and no %q in\n%s", c.args, c.want, c.not, out)
		}
	}
}

// TestUnusableRuntime: that RSSWARDEN_RUNTIME or TMPDIR is passed over is said once, with
// the reason and the place that is used; of TMPDIR where the other does not come first.
func TestUnusableRuntime(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"good": 0o700, "open": 0o777} {
		path := filepath.Join(dir, name)
		wardentest.NoError(t, os.Mkdir(path, 0o700))
		wardentest.NoError(t, os.Chmod(path, mode))
	}
	foreign := filepath.Join(dir, "foreign")
	wardentest.NoError(t, os.Mkdir(foreign, 0o700))
	wants := map[string]string{
		"good": "", "open": "can be written by others (mode 0777, not sticky)", "missing": "no such file or directory",
	}
	if os.Geteuid() == 0 {
		wardentest.NoError(t, os.Chown(foreign, 65534, 65534))
		wants["foreign"] = "belongs to another user"
	}
	for name, want := range wants {
		for _, loader := range []string{"auto", "off"} {
			path := filepath.Join(dir, name)
			out := firstLines(t, []string{"RSSWARDEN_RUNTIME=" + path}, "--loader", loader)
			said := strings.Count(out, "RSSWARDEN_RUNTIME="+path+" is not used, ")
			if want == "" && said != 0 || want != "" && (said != 1 || !strings.Contains(out, want)) {
				t.Errorf("%s, --loader %s: want %q in\n%s", name, loader, want, out)
			}
			out = firstLines(t, []string{"TMPDIR=" + path}, "--loader", loader)
			said = strings.Count(out, "TMPDIR="+path+" is not used, /tmp is: ")
			if want == "" && said != 0 || want != "" && (said != 1 || !strings.Contains(out, want)) {
				t.Errorf("TMPDIR %s, --loader %s: want %q in\n%s", name, loader, want, out)
			}
			out = firstLines(t, []string{"RSSWARDEN_RUNTIME=" + filepath.Join(dir, "good"), "TMPDIR=" + path}, "--loader", loader)
			if strings.Contains(out, "is not used") {
				t.Errorf("TMPDIR %s, --loader %s, and RSSWARDEN_RUNTIME is good:\n%s", name, loader, out)
			}
		}
	}
}

// TestWrongNumbers: what is no number is answered in our own words.
func TestWrongNumbers(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"limits", "--pid", "abc"}, "error: --pid \"abc\" is not a PID\nhint: give the number that ps shows"},
		{[]string{"limits", "--pid", "-3"}, "error: --pid \"-3\" is not a PID\n"},
		{[]string{"run", "--limit", "200%", "--", "true"}, "error: --limit \"200%\" is not a share of a limit\nhint: give a size as in sbatch --mem, such as 3G, or a share of the limit found, above 0% and at most 100%"},
		{[]string{"run", "--checkpoint-signal", "KILL", "--", "true"}, "error: --checkpoint-signal \"KILL\": no process can catch this signal\nhint: name one"},
	} {
		_, errs, err := wardentest.Output(append([]string{binary}, c.args...)...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.HasPrefix(errs, c.want) {
			t.Errorf("%v: %v\n%s\nwant %s", c.args, err, errs, c.want)
		}
	}
}

// TestNoRoomKnowsTheOptions: with too few descriptors for Go's runtime the
// command line is parsed in C, which has to know the options without a value.
func TestNoRoomKnowsTheOptions(t *testing.T) {
	// TestReference holds this file to the options; --help leaves some out.
	b := wardentest.ReadFile(t, "../../../../docs/reference/commands.md")
	_, text, _ := strings.Cut(string(b), "\n### rsswarden run\n")
	text, _, _ = strings.Cut(text, "\n### ")
	options := regexp.MustCompile("(?m)^- `(--[a-z-]+)( [A-Z]+)?`").FindAllStringSubmatch(text, -1)
	if len(options) < 25 {
		t.Fatalf("options %q in\n%s", options, text)
	}
	for _, o := range options {
		args := []string{"-c", `ulimit -n 8; exec "$@"`, "sh", binary, "run", o[1]}
		if o[2] != "" {
			args = append(args, "value")
		}
		err := exec.Command("sh", append(args, "sh", "-c", "exit 5")...).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Errorf("%s: %v, want the command's exit status 5", o[1], err)
		}
	}
}
