package hunt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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

// awaited polls for a condition and says whether it came within ten seconds.
func awaited(ok func() bool) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// inProc reads one file of a process, "" when that is gone.
func inProc(pid int, name string) string {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	return strings.TrimSpace(string(b))
}

// watcherOf finds the watcher of a holder, 0 for none.
func watcherOf(holder int) int { return append(wardentest.Watchers(holder), 0)[0] }

// The OOM killer takes the watcher before the holder, and before small processes. The command and
// what a rule starts keep the oom_score_adj that the user gave.
func TestOOMScore(t *testing.T) {
	needRoot(t)
	for given, above := range map[string]string{"0": "50", "321": "371"} {
		t.Run(given, func(t *testing.T) {
			t.Parallel()
			dir := owned(t, filepath.Join(shared(t, 0o755), "victim"), victim, 0o700)
			ran := filepath.Join(dir, "ran")
			cmd := as(victim, exec.Command("sh", "-c", `echo $0 >/proc/self/oom_score_adj && exec "$@"`, given,
				binary, "run", "--quiet", "--record", "none", "--limit", "10M", "--at", "none", "--at", "1%:exec=cat /proc/self/oom_score_adj >"+ran,
				"--", "sleep", "100"))
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir)
			must(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			var watcher int
			if !awaited(func() bool { watcher = watcherOf(cmd.Process.Pid); return inProc(watcher, "oom_score_adj") == above }) {
				t.Errorf("the watcher's oom_score_adj is %s", inProc(watcher, "oom_score_adj"))
			}
			if got := inProc(cmd.Process.Pid, "oom_score_adj"); got != given {
				t.Errorf("the holder's oom_score_adj is %s", got)
			}
			out, _ := exec.Command("pgrep", "-P", strconv.Itoa(cmd.Process.Pid), "sleep").Output()
			command, _ := strconv.Atoi(strings.TrimSpace(string(out)))
			if got := inProc(command, "oom_score_adj"); got != given {
				t.Errorf("the command's oom_score_adj is %s", got)
			}
			if !awaited(func() bool { b, _ := os.ReadFile(ran); return strings.TrimSpace(string(b)) == given }) {
				b, _ := os.ReadFile(ran)
				t.Errorf("a program of a rule has oom_score_adj %q", b)
			}
			if !awaited(func() bool { return inProc(watcher, "oom_score_adj") == above }) {
				t.Errorf("the watcher's oom_score_adj stays %s after it has started a program", inProc(watcher, "oom_score_adj"))
			}
		})
	}
}

// The holder gives back what of its program only the start has needed.
func TestHolderGivesBack(t *testing.T) {
	cmd := exec.Command(binary, "run", "--quiet", "--record", "none", "--", "sleep", "100")
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var now, most int
	if !awaited(func() bool {
		fmt.Sscan(wardentest.StatusLine(t, cmd.Process.Pid, "RssFile"), &now)
		most = max(most, now)
		return now < most*6/10 || watcherOf(cmd.Process.Pid) != 0 && most < 2<<10 // it is parked
	}) {
		t.Errorf("%d KiB of files are resident, %d KiB at most before", now, most)
	}
}

// A small program fills /dev/shm up to the limit of its cgroup and is killed. Its script
// goes on, as bare: not the holder is killed, and the watcher is started again.
func TestOOMTakesTheWatcher(t *testing.T) {
	needRoot(t)
	// It has 13.6 MB resident: more than the holder at its largest, while it starts a watcher on
	// a busy machine, and less than the watcher.
	const script = `perl -e '$x = "x" x 55e5; sleep 3; open F, ">", "%s"; print F "x" x 65536 while 1'; echo "after $?"; rm -f %[1]s; exit 3`
	for _, wrap := range []bool{false, true} {
		t.Run(fmt.Sprintf("wrapped %v", wrap), func(t *testing.T) {
			g := rsstest.NewGroup(t, 100*rss.MiB)
			if g.Version != 1 {
				t.Skip("needs cgroup v1 with the memory controller")
			}
			file := fmt.Sprintf("/dev/shm/rsswarden-hunt-%d", os.Getpid())
			t.Cleanup(func() { os.Remove(file) })
			argv := []string{"sh", "-c", fmt.Sprintf(script, file)}
			if wrap {
				argv = append([]string{binary, "run", "--record", "none", "--at", "none", "--"}, argv...)
			}
			cmd := exec.Command("sh", append([]string{"-c", `echo $$ >$0/cgroup.procs && exec "$@"`, g.Dir}, argv...)...)
			r := finish(t, cmd)
			if r.status != 3 || r.stdout != "after 137\n" {
				t.Errorf("status %d, %q\n%s", r.status, r.stdout, r.stderr)
			}
			if wrap && !strings.Contains(r.stderr, "the watcher died (signal 9)") {
				t.Errorf("no word of the watcher's end:\n%s", r.stderr)
			}
		})
	}
}

func init() { roles["parent"] = parent }

// parent starts a command and takes SIGUSR1 itself: args[0] is the file that it makes
// on the first one. It prints how often it got the signal, and the command's status.
func parent(args []string) int {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGUSR1)
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	for n := 0; ; {
		select {
		case <-got:
			n++
			os.WriteFile(args[0], nil, 0o600)
		case <-ended:
			fmt.Println("signals", n+len(got), "status", cmd.ProcessState)
			return 0
		}
	}
}

// What any process of the command's tree sends to the command's parent, as $PPID names
// it in every subshell, goes to whoever started rsswarden, and never to the command.
func TestSignalToParent(t *testing.T) {
	// The watcher, which tells a signal to the group from one to the parent, comes a
	// millisecond after the command. Each sender lives until the signal has arrived: see "What is forwarded" of
	// supervisor/hold for one that does not.
	const arrived = `while [ $held = yes ] && ! pgrep -P $PPID rss-watcher >/dev/null; do sleep .01; done; arrived() { for i in $(seq 500); do [ -e "$got" ] && return; sleep .01; done; echo lost; }; `
	for name, script := range map[string]string{
		"the command":             `kill -USR1 $PPID; arrived; echo done`,
		"a subshell":              `( kill -USR1 $PPID; arrived ) & wait; echo done`,
		"a nested subshell":       `( ( ( kill -USR1 $PPID; arrived ) & wait ) & wait ); echo done`,
		"a program":               `python3 -c 'import os,sys,time; os.kill(int(sys.argv[1]), 10); [time.sleep(.01) for i in range(500) if not os.path.exists(os.environ["got"])]' $PPID; arrived; echo done`,
		"a session of its own":    `setsid bash -c 'kill -USR1 $1; for i in $(seq 500); do [ -e "$got" ] && exit; sleep .01; done' bash $PPID; arrived; echo done`,
		"a subshell to the group": `trap 'echo mine' USR1; ( trap '' USR1; kill -USR1 0; arrived ); arrived; echo done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(kind string, wrap ...string) string {
				got := filepath.Join(t.TempDir(), kind)
				cmd := role("parent", append(append([]string{got}, wrap...), "bash", "-c", arrived+script)...)
				cmd.Env = append(os.Environ(), "got="+got, "held="+map[bool]string{true: "yes", false: "no"}[len(wrap) > 0])
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				r := finish(t, cmd)
				return r.stdout + r.stderr
			}
			bare := run("bare")
			wrapped := run("wrapped", binary, "run", "--quiet", "--record", "none", "--")
			if bare != wrapped {
				t.Errorf("bare:\n%s\nwrapped:\n%s", bare, wrapped)
			}
		})
	}
}

// growScript takes 10 MiB, or opens a file, each 0.1 s until it cannot.
const growScript = `import sys, time
held = []
while True:
    held.append(open("/dev/null") if sys.argv[1] == "files" else bytearray(10 << 20))
    time.sleep(.1)
`

// TestLimitsSetWhileItRuns: a shell's ulimit right before exec is what ends the command
// later, and the outcome says so.
func TestLimitsSetWhileItRuns(t *testing.T) {
	grow := script(t, growScript)
	for _, c := range []struct{ name, shell, says string }{
		{"address space", `sleep 1; ulimit -v 600000; exec python3 "$0" memory`, "address space"},
		{"address space, in a child", `(sleep 1; ulimit -v 600000; exec python3 "$0" memory)`, "address space"},
		{"descriptors", `for i in $(seq 10 139); do eval "exec $i</dev/null"; done; sleep 1; ulimit -n 160; exec python3 "$0" files`, "file descriptors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, []string{"--limit", "20G", "--interval", "100ms"}, "bash", "-c", c.shell, grow)
			if e := w.exit(t); e["outcome"] != "exhausted" || !strings.Contains(w.stderr, "ran out of "+c.says) {
				t.Errorf("outcome %v, want exhausted, by %s\n%s", e["outcome"], c.says, w.stderr)
			}
		})
	}
	t.Run("raised again", func(t *testing.T) {
		t.Parallel()
		w := watch(t, []string{"--limit", "20G", "--interval", "100ms"}, "sh", "-c", `ulimit -S -n 160; sleep 2; ulimit -S -n 600; exec python3 -c '
import sys, time
held = [open("/dev/null") for _ in range(150)]
time.sleep(3)
sys.exit(1)'`)
		wardentest.Has(t, w.exit(t), "outcome", "failed")
	})
}

// TestKillOfAStranger: what the OOM killer ends in the same cgroup is laid to a run only
// where it may have been of it.
func TestKillOfAStranger(t *testing.T) {
	needRoot(t)
	// Its oom_score_adj is the watcher's, and it is larger: it is killed first.
	eat := script(t, `open("/proc/self/oom_score_adj", "w").write("1000")`+"\n"+holdScript)
	for _, c := range []struct {
		name, command  string
		stranger, ours bool
	}{
		{"the run ends well", `exec sleep 8`, true, false},
		{"a process of the run, too short to be seen", `python3 "$0" 300 0; exec sleep 2`, false, true},
		{"a process of the run, in the background", `(sleep 2; exec python3 "$0" 300 0) & exec sleep 8`, false, true},
		{"beside one that waited for others", `sleep .1; exec sleep 8`, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := rsstest.NewGroup(t, 150*rss.MiB)
			within := []string{"-c", `echo $$ >` + g.Dir + `/cgroup.procs; exec "$@"`, "-"}
			if c.stranger {
				stranger := exec.Command("sh", append(within, "sh", "-c", `sleep 2; exec python3 "$0" 300 0`, eat)...)
				must(t, stranger.Start())
				defer stranger.Wait()
			}
			file := filepath.Join(t.TempDir(), "events")
			r := finish(t, exec.Command("sh", append(within, binary, "run", "--record", "none", "--loader", "off", "--events", file, "--", "sh", "-c", c.command, eat)...))
			b, err := os.ReadFile(file)
			must(t, err)
			says := "finished, memory "
			if c.ours {
				says = "out of memory: 1 process killed; the command went on (exit 0"
			}
			if oom := strings.Contains(string(b), `"outcome":"oom"`); r.status != 0 || oom != c.ours || !strings.Contains(r.stderr, says) {
				t.Errorf("status %d, want 0, outcome oom %v and %q\n%s", r.status, oom, says, r.stderr)
			}
		})
	}
}

// TestCgroupView asks for the limits in a cgroup that has none of its own, below one
// of 300 MiB, wherever the hierarchy is mounted and whatever part of it is seen.
func TestCgroupView(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name   string
		shell  string // has "$@" run, the program
		source string // of the limit; %s is the directory that has it
	}{
		{"as it is", `"$@"`, "%s/memory.limit_in_bytes"},
		{"cgroup namespace, mounts of the host", `unshare -C "$@"`, "%s/memory.limit_in_bytes"},
		{"cgroup namespace of a process below", `echo $$ >$SUB/leaf/cgroup.procs; unshare -C sh -c 'echo $$ >$SUB/cgroup.procs; "$@"' - "$@"`, "%s/memory.limit_in_bytes"},
		{"cgroup namespace, a mount of its own", `unshare -mC sh -c 'mount -t tmpfs t /mnt; mkdir /mnt/c; mount -t cgroup -o memory c /mnt/c; umount -l /sys/fs/cgroup/memory; "$@"' - "$@"`,
			"/mnt/c/memory.stat: hierarchical_memory_limit"},
		{"mounted twice", `unshare -m sh -c 'mount -t tmpfs t /mnt; mkdir /mnt/c; mount -t cgroup -o memory c /mnt/c; "$@"' - "$@"`, "%s/memory.limit_in_bytes"},
		{"a part of it mounted elsewhere", `unshare -m sh -c 'mount --bind $SUB /mnt; "$@"' - "$@"`, "%s/memory.limit_in_bytes"},
		{"a part of it mounted twice, and no more", `unshare -m sh -c 'mount -t tmpfs t /mnt; mkdir /mnt/a /mnt/b; mount --bind $SUB/.. /mnt/a; mount --bind $SUB /mnt/b; umount -l /sys/fs/cgroup/memory; "$@"' - "$@"`,
			"/mnt/a/memory.limit_in_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := rsstest.NewGroup(t, 300*rss.MiB)
			if g.Version != 1 {
				t.Skip("needs cgroup v1 with the memory controller")
			}
			sub := g.Sub("sub")
			sub.Sub("leaf")
			cmd := exec.Command("sh", "-c", `echo $$ >$SUB/cgroup.procs && `+c.shell, "-", binary, "limits", "--json")
			cmd.Env = append(cmd.Environ(), "SUB="+sub.Dir)
			r := finish(t, cmd)
			var got struct {
				Limits []struct {
					Limit       string
					LimitBytes  rss.Bytes `json:"limit_bytes"`
					LimitSource string    `json:"limit_source"`
				}
			}
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || len(got.Limits) == 0 {
				t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
			}
			want := c.source
			if strings.Contains(want, "%s") {
				want = fmt.Sprintf(want, g.Dir)
			}
			if l := got.Limits[0]; l.Limit != "cgroup" || l.LimitBytes != 300*rss.MiB || l.LimitSource != want {
				t.Errorf("got %+v, want 300 MiB from %s", l, want)
			}
		})
	}
}

// TestOwnTasks: docs/limits.md says how many tasks are ours.
func TestOwnTasks(t *testing.T) {
	needRoot(t)
	dir, err := rsstest.GroupDir("/sys/fs/cgroup/pids")
	if err != nil {
		t.Skip("needs cgroup v1 with the pids controller:", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	const most = 28
	// The command counts for two seconds: the watcher starts threads after it.
	cmd := exec.Command("bash", "-c", `echo $$ >$DIR/cgroup.procs && exec "$@"`, "-", binary, "run", "--quiet", "--record", "none", "--",
		"bash", "-c", `most=0; for ((i = 0; i < 40; i++)); do read -r n <$DIR/pids.current; ((n > most)) && most=$n; read -rt 0.05 <>$FIFO; done; echo $most`)
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	cmd.Env = append(cmd.Environ(), "DIR="+dir, "FIFO="+fifo)
	r := finish(t, cmd)
	n, err := strconv.Atoi(strings.TrimSpace(r.stdout))
	if n--; err != nil || n < 2 || n > most {
		t.Errorf("%d tasks beside the command, %v\n%s%s", n, err, r.stdout, r.stderr)
	}
}
