package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// differs are the variables in which a wrapped command differs from a bare
// one: the loader hook is found by them. supervisor/hold lists the rest, which
// is none of what the probe sees. "_" is what the shell executed.
var differs = []string{"env PYTHONPATH: ", "env RSSWARDEN_DIR: ", "env _: "}

// pipes are numbered by the kernel, in each run differently.
var pipes = regexp.MustCompile(`(pipe|socket):\[[0-9]+\]`)

// TestTwin: what a command inherits is what it inherits bare.
func TestTwin(t *testing.T) {
	dir := t.TempDir()
	script := wardentest.Path(t, "cmd/rsswarden/e2e/run/testdata/probe.py")
	for name, shell := range map[string]string{
		"plain":              `$X`,
		"nohup":              `nohup $X`,
		"background":         `$X & wait $!`,
		"background, traps":  `trap '' INT QUIT HUP; $X & wait $!`,
		"stdin closed":       `$X <&-`,
		"all closed":         `$X <&- >&- 2>&-`,
		"reader gone":        `$X 2> >(exec 0<&-; true)`,
		"more descriptors":   `$X 3</dev/null 7>/dev/zero 9</proc/version`,
		"SIGCHLD ignored":    `trap '' CHLD PIPE USR1; $X`,
		"limits":             `ulimit -n 100; ulimit -c 0; ulimit -s 4096; $X`,
		"umask and nice":     `umask 027; nice -n 5 $X`,
		"a session":          `setsid -w $X`,
		"one processor":      `taskset 1 $X`,
		"an odd environment": `env -i A=1 B= PATH=$PATH HOME=$HOME $X`,
	} {
		t.Run(name, func(t *testing.T) {
			look := func(wrap string) []string {
				t.Helper()
				out := filepath.Join(dir, "seen")
				x := strings.TrimSpace(wrap + " " + python + " -I " + script + " " + out)
				cmd := exec.Command("bash", "-c", strings.ReplaceAll(shell, "$X", x))
				cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "TMPDIR="+dir)
				if b, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, b)
				}
				b := wardentest.ReadFile(t, out)
				wardentest.NoError(t, os.Remove(out))
				var lines []string
				for line := range strings.Lines(string(b)) {
					if !startsWithAny(line, differs) {
						lines = append(lines, pipes.ReplaceAllString(line, "$1:[]"))
					}
				}
				return lines
			}
			bare, wrapped := look(""), look(binary+" run --")
			if name == "a session" {
				bare, wrapped = without(bare, "session: ", "group: "), without(wrapped, "session: ", "group: ")
			}
			if diff := cmp.Diff(bare, wrapped); diff != "" {
				t.Errorf("bare (-) and wrapped (+) differ:\n%s", diff)
			}
		})
	}
}

func startsWithAny(line string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return false
}

func without(lines []string, prefixes ...string) []string {
	var kept []string
	for _, line := range lines {
		if !startsWithAny(line, prefixes) {
			kept = append(kept, line)
		}
	}
	return kept
}
