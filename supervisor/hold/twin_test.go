package hold

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// differences are the items of docs/promises.md that the probe shows, with the fields in
// which it does. Nothing else that it shows may differ.
var differences = map[string][]string{
	"Its PID is not the one that its parent started": {"pid", "ppid", "PPid"},
	"It leads neither a process group nor a session": {"pgid", "sid", "fgpgid", "NSpgid", "NSsid"},
	"SigQ in /proc/PID/status counts":                {"SigQ"},
	"The shell's variable _ names what":              {"env _="},
}

func TestDifferences(t *testing.T) {
	_, list, _ := strings.Cut(wardentest.Read("../../docs/promises.md"), "# What tells a held command from a bare one\n")
	for text := range differences {
		if !strings.Contains(list, "\n- "+text) {
			t.Errorf("docs/promises.md does not say %q", text)
		}
	}
}

// twin runs the probe bare and held under the same conditions.
func twin(t *testing.T, c config, prepare func(argv []string) *exec.Cmd) (bare, wrapped []string) {
	t.Helper()
	dir := t.TempDir()
	show := func(name string, wrap bool) []string {
		file := filepath.Join(dir, "twin")
		argv := []string{probe, "twin", file}
		if wrap {
			c.Log = filepath.Join(dir, "log")
			argv = held(c, argv...)
		}
		cmd := prepare(argv)
		cmd.Dir = dir
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines := slices.Collect(strings.Lines(wardentest.Read(file)))
		if len(lines) < 60 {
			t.Fatalf("%s: only %d lines", name, len(lines))
		}
		os.Remove(file)
		return lines
	}
	return show("bare", false), show("wrapped", true)
}

var pipeNumber = regexp.MustCompile(`(pipe|socket):\[\d+\]`)

func normal(lines []string) (out []string) {
	for _, l := range lines {
		if mayDiffer(l) {
			continue
		}
		out = append(out, pipeNumber.ReplaceAllString(l, "$1"))
	}
	return out
}

// mayDiffer says that a line of the probe's shows one of the differences.
func mayDiffer(line string) bool {
	for _, fields := range differences {
		if slices.ContainsFunc(fields, func(f string) bool {
			return strings.HasPrefix(line, f+" ") || strings.HasPrefix(line, f+":") || strings.HasSuffix(f, "=") && strings.HasPrefix(line, f)
		}) {
			return true
		}
	}
	return false
}

func TestTwin(t *testing.T) {
	given := func(what ...string) func([]string) *exec.Cmd {
		return func(argv []string) *exec.Cmd {
			argv = append(append(append([]string{"given"}, what...), "--"), argv...)
			return exec.Command(probe, argv...)
		}
	}
	shell := func(script string) func([]string) *exec.Cmd {
		return func(argv []string) *exec.Cmd {
			return exec.Command("sh", append([]string{"-c", script, "sh"}, argv...)...)
		}
	}
	type twinTest struct {
		name    string
		prepare func([]string) *exec.Cmd
	}
	const inPlace = "executed in our place"
	tests := []twinTest{
		{"plain", given()},
		{inPlace, given("i=1", "i=17", "b=2", "b=33", "c=0", "r=1000", "o=7", "d=10")},
		{"stdin closed", given("c=0")},
		{"stdout closed", given("c=1")},
		{"stderr closed", given("c=2")},
		{"all closed", given("c=0", "c=1", "c=2")},
		{"nohup", shell(`exec nohup "$@" 2>/dev/null`)},
		{"background", shell(`trap '' INT QUIT; "$@" </dev/null & wait $!`)},
		{"SIGCHLD ignored", given("i=17")},
		{"much ignored", given("i=1", "i=2", "i=13", "i=15", "i=20", "i=32", "i=34", "i=64")},
		{"much blocked", given("b=1", "b=2", "b=10", "b=15", "b=17", "b=20", "b=32", "b=33", "b=34", "b=64")},
		{"descriptors 3 to 9", given("o=3", "o=4", "f=5", "o=6", "f=7", "f=8", "o=9")},
		{"a high descriptor", given("o=800", "f=700")},
		{"soft RLIMIT_NOFILE", given("r=1000")},
		{"umask, nice, slack", given("u=31", "n=3", "s=123456")},
		{"parent death signal", given("d=15")},
		{"one CPU", shell(`exec taskset -c 1 "$@"`)},
		{"oom_score_adj", shell(`echo 321 >/proc/self/oom_score_adj; exec "$@"`)},
		{"limits", shell(`ulimit -c 0 -s 4096 -u 5000; exec "$@"`)},
		{"Go's variables", shell(`export GODEBUG=gctrace=1 GOGC=off GOMAXPROCS=x GOMEMLIMIT=lots GOTRACEBACK=crash; exec "$@"`)},
		{"session of its own", func(argv []string) *exec.Cmd {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			return cmd
		}},
		{"reader of stderr gone", func(argv []string) *exec.Cmd {
			cmd := exec.Command(argv[0], argv[1:]...)
			r, w, err := os.Pipe()
			must(t, err)
			r.Close()
			t.Cleanup(func() { w.Close() })
			cmd.Stderr = w
			return cmd
		}},
	}
	if !raceDetector { // which maps more than any sensible RLIMIT_AS: make test runs this package without it too
		tests = append(tests, twinTest{"little address space", shell(`ulimit -v 2000000; exec "$@"`)})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := config{Watch: "good"}
			if test.name == inPlace {
				c = config{InPlace: true}
			}
			bare, wrapped := twin(t, c, test.prepare)
			compare(t, normal(bare), normal(wrapped))
		})
	}
}

func compare(t *testing.T, b, w []string) {
	t.Helper()
	for i := range max(len(b), len(w)) {
		switch {
		case i >= len(b):
			t.Errorf("only wrapped: %s", w[i])
		case i >= len(w):
			t.Errorf("only bare: %s", b[i])
		case b[i] != w[i] && !envOfRun(b[i], w[i]):
			t.Errorf("bare    %swrapped %s", b[i], w[i])
		}
	}
}

// envOfRun: the shell sets _ to what it runs.
func envOfRun(a, b string) bool {
	return strings.HasPrefix(a, "env _=") && strings.HasPrefix(b, "env _=")
}

// In the same process group and session as its holder.
func TestSameGroupAndSession(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	for _, pid := range []int{k.command, k.watcher} {
		group, err := syscall.Getpgid(pid)
		if err != nil || group != k.holder {
			t.Errorf("group of %d: %d, %v, want %d", pid, group, err, k.holder)
		}
	}
	k.end(t)
}
