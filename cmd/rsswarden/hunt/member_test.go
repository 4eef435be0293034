package hunt

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// holdScript takes so many MiB, makes a file that says so, and keeps them for so many
// seconds.
const holdScript = `import sys, time
b = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(b), 4096): b[i] = 1
open(sys.argv[0] + ".held", "a").write("x")
time.sleep(float(sys.argv[2]))
`

// untilHeld has a shell wait until a holdScript holds what it takes, and a reading longer.
const untilHeld = `until [ -s "$0.held" ]; do sleep .05; done; sleep 1.5`

// daemonsScript starts daemons by a double fork, each in a session of its own.
const daemonsScript = `import os, sys, time
n, mib = int(sys.argv[1]), int(sys.argv[2])
for _ in range(n):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        b = bytearray(mib << 20)
        for i in range(0, len(b), 4096): b[i] = 1
        with open(sys.argv[0] + ".held", "a") as f: f.write("x")
        time.sleep(5)
        os._exit(0)
    os.wait()
while not os.path.exists(sys.argv[0] + ".held") or os.path.getsize(sys.argv[0] + ".held") < n: time.sleep(.05)
time.sleep(1.5)
`

// script writes a Python program to a new directory.
func script(t *testing.T, text string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	name := filepath.Join(t.TempDir(), "script.py")
	must(t, os.WriteFile(name, []byte(text), 0o644))
	return name
}

// watched is a run with its events.
type watched struct {
	result
	events []map[string]any
}

// watch runs a command under rsswarden with these options and reads its events.
func watch(t *testing.T, options []string, command ...string) watched {
	t.Helper()
	file := filepath.Join(t.TempDir(), "events")
	args := append([]string{"run", "--record", "none", "--loader", "off", "--events", file}, options...)
	r := watched{result: finish(t, exec.Command(binary, append(append(args, "--"), command...)...))}
	b, err := os.ReadFile(file)
	must(t, err)
	for line := range bytes.Lines(b) {
		var e map[string]any
		must(t, json.Unmarshal(line, &e))
		r.events = append(r.events, e)
	}
	return r
}

// of returns the events of a name.
func (w *watched) of(name string) (list []map[string]any) {
	for _, e := range w.events {
		if e["event"] == name {
			list = append(list, e)
		}
	}
	return list
}

// exit returns the exit event.
func (w *watched) exit(t *testing.T) map[string]any {
	t.Helper()
	list := w.of("exit")
	if len(list) != 1 {
		t.Fatalf("%d exit events\n%s", len(list), w.stderr)
	}
	return list[0]
}

// peak is the highest summed RSS in MiB.
func (w *watched) peak(t *testing.T) float64 {
	t.Helper()
	n, _ := w.exit(t)["peaks"].(map[string]any)["rss_bytes"].(float64)
	return n / (1 << 20)
}

// TestOrphans: what has lost its parent is of the tree, and counts.
func TestOrphans(t *testing.T) {
	const least = 200
	cases := []struct{ name, shell string }{
		{"a subshell's background process", `( python3 "$0" 200 5 & ); ` + untilHeld},
		{"a child of an orphan", `( ( sleep .7; python3 "$0" 200 5; : ) & ); ` + untilHeld},
		{"in a session of its own", `( setsid sh -c 'python3 "$0" 200 5; :' "$0" & ); ` + untilHeld},
		{"its parent ends later", `sh -c 'python3 "$0" 200 5 & sleep .5' "$0"; ` + untilHeld},
		{"four daemons", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			command := []string{"sh", "-c", c.shell, script(t, holdScript)}
			if c.shell == "" {
				command = []string{"python3", script(t, daemonsScript), "4", "50"}
			}
			w := watch(t, []string{"--limit", "10G"}, command...)
			if got := w.peak(t); got < least || got > 2*least {
				t.Errorf("peak %.0f MiB, want %d or a little more\n%s", got, least, w.stderr)
			}
			next, _ := w.exit(t)["next"].(map[string]any)
			if advised, _ := next["size_bytes"].(float64); advised/(1<<20) < least {
				t.Errorf("--limit of %.0f MiB advised", advised/(1<<20))
			}
		})
	}
	t.Run("a rule sees them", func(t *testing.T) {
		t.Parallel()
		w := watch(t, []string{"--limit", "150M", "--at", "none", "--at", "95%:stop"}, "python3", script(t, daemonsScript), "4", "50")
		if w.status != 137 {
			t.Errorf("status %d\n%s", w.status, w.stderr)
		}
	})
	t.Run("what came by exec does not count", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "events")
		r := finish(t, exec.Command("sh", "-c", `python3 "$0" 200 5 & `+untilHeld+`; exec "$@"`, script(t, holdScript),
			binary, "run", "--record", "none", "--limit", "10G", "--events", file, "sleep", "1.5"))
		b, err := os.ReadFile(file)
		must(t, err)
		if m := regexp.MustCompile(`"rss_bytes":(\d+)`).FindSubmatch(b[bytes.Index(b, []byte(`"exit"`)):]); m == nil || len(m[1]) > 8 {
			t.Errorf("peak %s\n%s", m, r.stderr)
		}
	})
}

// TestLeft: the end names what still runs.
func TestLeft(t *testing.T) {
	hold := script(t, holdScript)
	w := watch(t, []string{"--limit", "10G"}, "sh", "-c", `python3 "$0" 100 20 & echo $!; `+untilHeld, hold)
	pid, err := strconv.Atoi(strings.TrimSpace(w.stdout))
	must(t, err)
	defer syscall.Kill(pid, syscall.SIGKILL)
	if !regexp.MustCompile(`still running after the command: 1 process with 1\d\d MiB RSS \(PID ` + strconv.Itoa(pid) + `\)`).MatchString(w.stderr) {
		t.Errorf("said\n%s", w.stderr)
	}
	left, _ := w.exit(t)["left"].([]any)
	if len(left) != 1 || left[0].(map[string]any)["procs"] != 1.0 {
		t.Errorf("left %v", left)
	}
	w = watch(t, []string{"--limit", "10G"}, "sh", "-c", "sleep 1 & wait")
	if w.exit(t)["left"] != nil || strings.Contains(w.stderr, "still running") {
		t.Errorf("said\n%s", w.stderr)
	}
}

// TestMoves: the limits of cgroups that the tree moves to are found, and are what is
// told of at the end.
func TestMoves(t *testing.T) {
	needRoot(t)
	hold := script(t, holdScript)
	limits := func(w *watched, g rsstest.Group) (found bool) {
		for _, e := range w.of("limit") {
			found = found || e["level"] == g.Dir
		}
		for _, l := range w.of("start")[0]["limits"].([]any) {
			found = found || l.(map[string]any)["level"] == g.Dir
		}
		return found
	}
	for _, c := range []struct {
		name  string
		shell string // in $0 the program, in $1 the cgroup of 100 MiB
		kill  bool   // by the kernel
		found bool
		none  bool // no --mem advice
	}{
		{"the command itself, killed", `sleep .3; echo $$ >$1/cgroup.procs; sleep 1.3; exec python3 "$0" 200 1`, true, true, false},
		{"the command itself, which fits", `sleep .3; echo $$ >$1/cgroup.procs; sleep 1.3; exec python3 "$0" 50 1.5`, false, true, false},
		{"a child, killed", `sh -c 'echo $$ >$1/cgroup.procs; sleep 1.3; exec python3 "$0" 200 1' "$0" "$1"; exit 9`, true, true, false},
		{"a child, and the rest does not count", `sh -c 'echo $$ >$1/cgroup.procs; exec python3 "$0" 40 2.5' "$0" "$1" & python3 "$0" 200 2.5; wait`, false, true, true},
		{"an orphan", `( sh -c 'echo $$ >$1/cgroup.procs; exec python3 "$0" 50 3' "$0" "$1" & ); sleep 2`, false, true, false},
		{"a level below, as a container has", `mkdir $1/box; sh -c 'echo $$ >$1/box/cgroup.procs; exec python3 "$0" 50 2' "$0" "$1"; sleep .1; rmdir $1/box`, false, true, false},
		{"no process moves", `exec python3 "$0" 50 1.5`, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := rsstest.NewGroup(t, 100*rss.MiB)
			w := watch(t, nil, "sh", "-c", c.shell, hold, g.Dir)
			if limits(&w, g) != c.found {
				t.Errorf("limit found: %v\n%s", !c.found, w.stderr)
			}
			e := w.exit(t)
			if (e["outcome"] == "oom") != c.kill || (e["kernel_oom_kills"] != nil) != c.kill {
				t.Errorf("outcome %v, kills %v\n%s", e["outcome"], e["kernel_oom_kills"], w.stderr)
			}
			if strings.Contains(w.stderr, "did not come from lack of memory") {
				t.Errorf("said\n%s", w.stderr)
			}
			if advised := e["advice_mem_bytes"] != nil; c.none && advised {
				t.Errorf("advised %v\n%s", e["advice_mem_bytes"], w.stderr)
			}
		})
	}
}

// TestOtherPIDs: where /proc shows another PID namespace, its numbers are not taken for
// ours: the command runs, and a line says that it is not watched.
func TestOtherPIDs(t *testing.T) {
	needRoot(t)
	unshared := func(args ...string) result {
		return finish(t, exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", binary}, args...)...))
	}
	const says = "/proc shows the processes of another PID namespace"
	r := unshared("run", "--", "sh", "-c", "echo out; exit 3")
	if r.status != 3 || r.stdout != "out\n" || !strings.Contains(r.stderr, "the command runs unwatched: "+says) || strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.stderr, "watching") {
		t.Errorf("status %d, wrote %q, said\n%s", r.status, r.stdout, r.stderr)
	}
	if r = unshared("run", "--quiet", "--", "true"); r.status != 0 || r.stderr != "" {
		t.Errorf("--quiet: status %d, said\n%s", r.status, r.stderr)
	}
	for _, args := range [][]string{{"attach", "1"}, {"attach", "--job", "7"}, {"trim", "--pid", "1"}} {
		if r = unshared(args...); r.status != 2 || !strings.Contains(r.stderr, says) {
			t.Errorf("%v: status %d, said\n%s", args, r.status, r.stderr)
		}
	}
	r = unshared("limits", "--json")
	var got struct{ PID int }
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.PID < 10 { // 1 is the node's init there
		t.Errorf("limits: %v of process %d\n%s", err, got.PID, r.stderr)
	}
	mounted := finish(t, exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", binary, "run", "--record", "none", "--", "true"))
	if mounted.status != 0 || strings.Contains(mounted.stderr, says) {
		t.Errorf("with its own /proc: status %d, said\n%s", mounted.status, mounted.stderr)
	}
}
