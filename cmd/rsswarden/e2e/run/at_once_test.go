package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// atHome is `rsswarden run` with these arguments and a home directory of its own.
func atHome(home string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append([]string{"run"}, args...)...)
	cmd.Env = wardentest.Env(append([]string{"HOME=" + home, "XDG_CACHE_HOME=", "XDG_STATE_HOME=" + home, "TMPDIR=" + home}, env...)...)
	return cmd
}

// differing is what no two runs have the same.
var differing = regexp.MustCompile(`/(run|4711)\.[0-9.]+|pipe:\[[0-9]+\]`)

// TestAtOnce: a command that C starts before there is a Go runtime has what the Go program would
// have given it, and the Go program finds no difference.
func TestAtOnce(t *testing.T) {
	home := t.TempDir()
	const shows = `env | grep -v -e RSSWARDEN_PARK -e ^_=; grep -e Sig[PBIC] -e Shd /proc/self/status; umask; ulimit -n; readlink /proc/$$/fd/*; echo "$0" "$@"
	until [ -e "${RSSWARDEN_DIR-/}" ]; do :; done; exit 7`
	wardentest.NoError(t, atHome(home, nil, "--", "true").Run()) // which makes the hook's directory
	taken := t.TempDir()
	wardentest.Write(t, filepath.Join(taken, fmt.Sprint("rsswarden-", os.Geteuid())), "not ours")
	for name, c := range map[string]struct {
		env  []string
		args []string
	}{
		"no option":        {nil, nil},
		"options":          {nil, []string{"--limit", "90%", "--trim=off", "-interval=500ms", "--stop-status", "85"}},
		"no hook":          {nil, []string{"--loader", "off"}},
		"a PYTHONPATH":     {[]string{"PYTHONPATH=a:b"}, nil},
		"an empty one":     {[]string{"PYTHONPATH="}, nil},
		"a Go program's":   {[]string{"GOMEMLIMIT=1G", "GODEBUG=x=1"}, nil},
		"a job":            {[]string{"SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_PROCID=3"}, nil},
		"another place":    {[]string{"RSSWARDEN_RUNTIME=" + home}, nil},
		"a relative PATH":  {[]string{"PATH=:bin:/nowhere:/usr/bin:/bin"}, nil},
		"C is not sure":    {nil, []string{"--at", "99%:warn"}},
		"a relative place": {[]string{"TMPDIR=x"}, nil},
		"a place taken":    {[]string{"TMPDIR=" + taken}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var outs [2]string
			for i, park := range []string{"", "RSSWARDEN_PARK=wait"} {
				cmd := atHome(home, append(strings.Fields(park), c.env...), slices.Concat(c.args, []string{"--", "sh", "-c", shows, "it", "a b", ""})...)
				out, errs, err := wardentest.Run(cmd)
				if err == nil || cmd.ProcessState.ExitCode() != 7 || strings.Contains(errs, "internal error") || strings.Contains(errs, "unwatched") {
					t.Errorf("%s: %v, said\n%s", park, err, errs)
				}
				outs[i] = differing.ReplaceAllString(out, "X")
			}
			if outs[0] != outs[1] {
				t.Errorf("the command saw\n%s, and where Go speaks first\n%s", outs[0], outs[1])
			}
		})
	}
	// C compares no contents: this shows that it has started the command.
	hook, err := filepath.Glob(filepath.Join(home, ".cache/rsswarden/hook-*/_rsswarden/trim.py"))
	wardentest.NoError(t, err)
	wardentest.Write(t, hook[0], strings.Replace(wardentest.Read(hook[0]), "\n", " ", 1))
	for park, want := range map[string]int{"": 1, "RSSWARDEN_PARK=wait": 0} {
		cmd := atHome(home, strings.Fields(park), "--", "sh", "-c", "exit 7")
		_, errs, _ := wardentest.Run(cmd)
		const differs = "internal error: the command was started at once, but not as it is to be: its environment"
		if n := strings.Count(errs, differs); n != want || cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("%q: %v, said\n%s", park, cmd.ProcessState, errs)
		}
	}
}

// TestAtOnceWatcherDies: a watcher that is killed before it has settings is started again, and
// the command ends as bare.
func TestAtOnceWatcherDies(t *testing.T) {
	home := t.TempDir()
	wardentest.NoError(t, atHome(home, nil, "--", "true").Run())
	const kills = `until first=$(pgrep -P $PPID -x rss-watcher); do :; done; kill -9 $first
	until second=$(pgrep -P $PPID -x rss-watcher) && [ "$second" != "$first" ] && grep -q SigBlk /proc/$second/status; do sleep 0.05; done; exit 7`
	cmd := atHome(home, nil, "--", "sh", "-c", kills)
	_, errs, _ := wardentest.Run(cmd)
	if cmd.ProcessState.ExitCode() != 7 || !strings.Contains(errs, "started again") || strings.Contains(errs, "unwatched") {
		t.Errorf("%v, said\n%s", cmd.ProcessState, errs)
	}
}

// TestStartAsBare: a command that is started in a way that leaves no room for a holder, or that
// passes on more than usual, sees and does what it would without one.
func TestStartAsBare(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a PID namespace")
	}
	home := t.TempDir()
	const subreaper = `import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])`
	const keeps = `import ctypes, sys
on = ctypes.c_int()
ctypes.CDLL(None).prctl(37, ctypes.byref(on), 0, 0, 0)
sys.exit(7 if on.value else 8)`
	refused := []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3,fork,vfork", "-e", "inject=clone,clone3,fork,vfork:error=EAGAIN:when=1+"}
	for name, c := range map[string]struct {
		around, command []string
		code            int
	}{
		"subreaper":              {[]string{wardentest.Python, "-c", subreaper}, []string{wardentest.Python, "-c", keeps}, 7},
		"another PID space":      {[]string{"unshare", "-p"}, []string{"sh", "-c", "kill -TERM $$; exit 7"}, 143},
		"no process can be made": {refused, []string{"sh", "-c", "exit 7"}, 7},
		"a large stack":          {[]string{"bash", "-c", `ulimit -s 300000 -v 2000000; exec "$@"`, "bash"}, []string{"sh", "-c", "exit 7"}, 7},
	} {
		for _, park := range []string{"", "RSSWARDEN_PARK=wait"} {
			cmd := atHome(home, strings.Fields(park), slices.Concat([]string{"--"}, c.command)...)
			cmd.Path, cmd.Args = lookPath(t, c.around[0]), slices.Concat(c.around, cmd.Args)
			cmd.Args[len(c.around)] = binary
			out, errs, err := wardentest.Run(cmd)
			if code := wardentest.ExitStatus(cmd.ProcessState); code != c.code || strings.Contains(errs, "pthread") {
				t.Errorf("%s %s: status %d, want %d (%v)\n%s%s", name, park, code, c.code, err, out, errs)
			}
		}
	}
}

// TestManyStartAtOnce: where many start on one processor, as ranks do, each command starts, with
// its hook and its configuration. A process that waits for a processor is no file system that
// does not answer.
func TestManyStartAtOnce(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "c.toml")
	wardentest.Write(t, file, "interval = \"1s\"\n")
	var may unix.CPUSet
	wardentest.NoError(t, unix.SchedGetaffinity(0, &may))
	first := 0
	for !may.IsSet(first) {
		first++
	}
	taskset := lookPath(t, "taskset")
	for name, args := range map[string][]string{"configured": {"--config", file}, "at once": nil} {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				cmd := atHome(home, nil, slices.Concat(args, []string{"--record", "none", "--", "sh", "-c", "exit 7"})...)
				cmd.Path, cmd.Args = taskset, slices.Concat([]string{"taskset", "-c", strconv.Itoa(first), binary}, cmd.Args[1:])
				out, errs, _ := wardentest.Run(cmd)
				if code := wardentest.ExitStatus(cmd.ProcessState); code != 7 || strings.Contains(errs, "answer") || strings.Contains(errs, "internal") {
					t.Errorf("%s: status %d\n%s%s", name, code, out, errs)
				}
			})
		}
		all.Wait()
	}
}

// TestLibraryThread: a library of LD_PRELOAD that has a thread, which takes signals, changes
// nothing in that the command gets them.
func TestLibraryThread(t *testing.T) {
	home := t.TempDir()
	library := filepath.Join(home, "thread.so")
	compile := exec.Command(lookPath(t, "cc"), "-shared", "-fPIC", "-x", "c", "-o", library, "-", "-lpthread")
	compile.Stdin = strings.NewReader(`#include <pthread.h>
#include <unistd.h>
static void *runs(void *x) { for (;;) sleep(1); }
__attribute__((constructor)) static void begin(void) { pthread_t t; pthread_create(&t, 0, runs, 0); }`)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	cmd := atHome(home, []string{"LD_PRELOAD=" + library}, "--quiet", "--", "sh", "-c", "trap 'exit 9' TERM; echo up; sleep 9 & wait; exit 3")
	out, err := cmd.StdoutPipe()
	wardentest.NoError(t, err)
	wardentest.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	wardentest.NoError(t, errors.Join(err, cmd.Process.Signal(unix.SIGTERM)))
	_ = cmd.Wait()
	if code := wardentest.ExitStatus(cmd.ProcessState); code != 9 {
		t.Errorf("status %d, want 9", code)
	}
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("needs ", name)
	}
	return path
}
