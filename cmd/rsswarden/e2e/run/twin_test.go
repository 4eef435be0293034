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

// probe writes all that a process inherits to the file that its first argument
// names. Its own PID, and that of its parent, are left out.
const probe = `
import ctypes, os, resource, sys
out = []
say = lambda name, value: out.append("%s: %s" % (name, value))
for fd in sorted(int(f) for f in os.listdir("/proc/self/fd")):
    try: say("fd %d" % fd, os.readlink("/proc/self/fd/%d" % fd))
    except OSError: pass  # of the listing itself
for line in open("/proc/self/status"):
    name = line.split(":")[0]
    if name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Groups", "CapInh", "CapBnd", "THP_enabled"):
        say(name, line.split(":")[1].strip())
say("limits", open("/proc/self/limits").read())
say("timer slack", open("/proc/self/timerslack_ns").read())
say("oom_score_adj", open("/proc/self/oom_score_adj").read())
say("dumpable", ctypes.CDLL(None).prctl(3))
say("nice", os.nice(0))
say("scheduler", os.sched_getscheduler(0))
say("affinity", sorted(os.sched_getaffinity(0)))
say("session", os.getsid(0))
say("group", os.getpgrp())
try: say("tty", os.open("/dev/tty", os.O_RDONLY) >= 0)
except OSError as e: say("tty", e.strerror)
say("cwd", os.getcwd())
for key in sorted(os.environ): say("env " + key, os.environ[key])
open(sys.argv[1], "w").write("\n".join(out) + "\n")
`

// differs are the variables in which a wrapped command differs from a bare
// one: the loader hook is found by them. supervisor/hold lists the rest, which
// is none of what the probe sees. "_" is what the shell executed.
var differs = []string{"env PYTHONPATH: ", "env RSSWARDEN_DIR: ", "env _: "}

// pipes are numbered by the kernel, each anew.
var pipes = regexp.MustCompile(`(pipe|socket):\[[0-9]+\]`)

// TestTwin: what a command inherits is what it inherits bare.
func TestTwin(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "probe.py")
	wardentest.NoError(t, os.WriteFile(script, []byte(probe), 0o644))
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
