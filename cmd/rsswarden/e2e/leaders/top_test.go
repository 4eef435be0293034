package leaders

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// topJob is a job that no other test has, whatever leads on this node.
var topJob = "4000" + strconv.Itoa(os.Getpid())

// led returns a leader of so many ranks and the environment in which it is found.
func led(t *testing.T, ranks int, env ...string) (*leaderSource, []string) {
	t.Helper()
	st := control.Status{
		V: 1, Leader: os.Getpid(), Version: "v9",
		Limits: []control.Limit{{Limit: event.Limit{Name: event.LimitCgroup, Scope: event.ScopeJob, Used: 3 * rss.GiB, Limit: 4 * rss.GiB, Binding: true, Enforcer: "kernel OOM killer"}}},
	}
	for r := range ranks {
		pid := 4000 + 10*r
		st.Ranks = append(st.Ranks, control.Rank{Task: r, Step: "0", PID: pid, Command: "python train.py", Memory: control.Memory{RSS: rss.GiB}, Workers: 1, Procs: 2, Hook: "recycle"})
		st.Procs = append(st.Procs,
			control.Proc{PID: pid, Task: r, Step: "0", Role: rss.RoleTrainer, Comm: "python", State: "R", Memory: control.Memory{RSS: rss.GiB / 2}},
			control.Proc{PID: pid + 1, Task: r, Step: "0", Role: rss.RoleWorker, Comm: "pt_data_\x1b[2J", State: "S", Memory: control.Memory{RSS: rss.GiB / 4}, CanRecycle: true})
	}
	s, f := newLeaderStand(t), &leaderSource{status: st, results: []control.Result{{PID: 4001, OK: true, Freed: 100 * rss.MiB}, {Done: true, OK: true, Task: -1}}}
	s.lead(topJob, "n1", f)
	all := slices.DeleteFunc(s.env, func(kv string) bool {
		return slices.ContainsFunc([]string{"LC_", "LANG=", "COLUMNS=", "NO_COLOR=", "TERM="}, func(name string) bool { return strings.HasPrefix(kv, name) })
	})
	return f, slices.Concat(all, []string{"SLURM_JOB_ID=" + topJob, "RSSWARDEN_RUNTIME=" + s.tmp}, env)
}

// TestTopOnce: on paper a frame has all rows, no escape sequences, and the width
// that is asked for.
func TestTopOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		args []string
		has  []string
		not  []string
	}{
		{
			name: "all rows", env: []string{"LANG=C.UTF-8"},
			has: []string{"rsswarden top   job " + topJob + " · 40 ranks · n1 ", " cgroup ███", "75 %     3.0 of 4.0 GiB", "RANKS 40", "PROCESSES 80", "39    4390", " 4391 worker ", "pt_data_?[2J"},
		},
		{name: "no UTF-8", env: []string{"LC_ALL=POSIX", "LANG=C.UTF-8"}, has: []string{"####"}, not: []string{"█", "▲", "·"}},
		{name: "wider", env: []string{"COLUMNS=200"}, has: []string{"MAPS", "kernel kills"}},
		{name: "narrower", env: []string{"COLUMNS=50"}, not: []string{"RECYCLED"}},
		{name: "no width", env: []string{"COLUMNS=nonsense"}, has: []string{"RECYCLED"}, not: []string{"MAPS"}},
		{name: "filtered", args: []string{"--filter", "rank=7"}, has: []string{`1 meet "rank=7"`, " 4071 worker"}, not: []string{" 4081 "}},
		{name: "sorted", args: []string{"--sort", "command"}, has: []string{"COMMAND^", "by command"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, env := led(t, 40, tt.env...)
			cmd := exec.Command(binary, append([]string{"top", "--once"}, tt.args...)...)
			cmd.Env = env
			b, err := cmd.CombinedOutput()
			out := string(b)
			if err != nil || strings.ContainsRune(out, 0x1b) {
				t.Fatalf("%v: %q", err, out)
			}
			wardentest.Says(t, out, tt.has...)
			for _, text := range tt.not {
				if strings.Contains(out, text) {
					t.Errorf("%q is in\n%s", text, out)
				}
			}
		})
	}
}

func startTop(t *testing.T, env []string, args ...string) *wardentest.Terminal {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"top"}, args...)...)
	cmd.Env = env
	return wardentest.OnTerminal(t, cmd)
}

const leftScreen = "\x1b[?25h\x1b[?1049l"

// TestTopLive: the program on a terminal: keys, an order that reaches the leader, a
// change of the window, and the end.
func TestTopLive(t *testing.T) {
	f, env := led(t, 4, "TERM=xterm", "LANG=C.UTF-8")
	s := startTop(t, env, "--sort", "role", "--filter", "worker", "--interval", "200ms")
	s.Await("\x1b[?1049h")
	s.Await("[PROCESSES 8]")
	s.Send("R")
	s.Await("recycle worker 4001 of rank 0 on n1")
	if n := len(f.commands()); n != 0 {
		t.Fatalf("%d orders before the answer", n)
	}
	s.Send("y")
	s.Await("done, freed 100 MiB")
	if o := f.commands(); len(o) != 1 || o[0].Do != event.ActionRecycle || !slices.Equal(o[0].PIDs, []int{4001}) || o[0].Ranks != nil {
		t.Errorf("the leader was asked for %+v", o)
	}
	wardentest.NoError(t, pty.Setsize(s.File, &pty.Winsize{Rows: 33, Cols: 90}))
	s.Send("?")
	s.Await("\x1b[33H")
	s.Send("qq")
	if how, out := s.Ended(); how != "exit 0" || !strings.HasSuffix(out, leftScreen) {
		t.Errorf("%s, %q", how, out[max(0, len(out)-100):])
	}
}

// TestTopSignals: a signal ends it as it ends any program, with the terminal given
// back.
func TestTopSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		_, env := led(t, 1, "TERM=xterm")
		s := startTop(t, env)
		s.Await("4001 worker")
		s.Cmd.Process.Signal(sig)
		if how, out := s.Ended(); how != fmt.Sprintf("signal %d", sig) || !strings.HasSuffix(out, leftScreen) {
			t.Errorf("%v: %s, %q", sig, how, out[max(0, len(out)-100):])
		}
	}
}

// TestTopWithoutLeader: the screen waits for one.
func TestTopWithoutLeader(t *testing.T) {
	f, env := led(t, 1, "TERM=xterm")
	parent := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "RSSWARDEN_RUNTIME="); ok {
			parent = v
		}
	}
	place := filepath.Join(node.All(parent), node.Prefix+topJob+"@n1.0a1b2c3d")
	away := filepath.Join(parent, "away")
	wardentest.NoError(t, os.Rename(place, away))
	s := startTop(t, env, "--interval", "200ms")
	s.Await("No rsswarden run on this node.")
	wardentest.NoError(t, os.Rename(away, place))
	s.Await("4001 worker")
	s.Send("q")
	if how, _ := s.Ended(); how != "exit 0" || len(f.commands()) != 0 {
		t.Error(how)
	}
}

// TestTopPlain: a terminal without colours gets none, and one that can only scroll
// no sequence at all.
func TestTopPlain(t *testing.T) {
	_, env := led(t, 1, "TERM=xterm", "NO_COLOR=1")
	s := startTop(t, env)
	s.Await("4001 worker")
	s.Send("q")
	if _, out := s.Ended(); strings.Contains(out, ";31m") || strings.Contains(out, "[0;3") {
		t.Errorf("colours: %q", out)
	}
	_, env = led(t, 1, "TERM=dumb")
	s = startTop(t, env, "--interval", "200ms")
	s.Shown.Await(t, "4001 worker", 2)
	s.Cmd.Process.Signal(unix.SIGTERM)
	if how, out := s.Ended(); how != "signal 15" || strings.ContainsRune(out, 0x1b) || !strings.HasPrefix(out, "by TERM this terminal can only scroll: keys do nothing, Ctrl-C ends top") {
		t.Errorf("%s: %q", how, out)
	}
	_, env = led(t, 1, "TERM=xterm", "LANG=C.UTF-8")
	s = startTop(t, env, "--once")
	if how, out := s.Ended(); how != "exit 0" || !strings.Contains(out, "\x1b[0;1m") || strings.Contains(out, "\x1b[?") {
		t.Errorf("%s: %q", how, out)
	}
}
