// Package run runs commands under rsswarden, without Slurm or PyTorch: what they inherit, alerts, records.
package run

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Daemon: new(string)}))
}

// risenJob starts a Python that is setuid, as sudo is, or not to be read by who executes
// it, as programs under licence are. In it a helper, of root's where it can be, holds
// 60 MiB. Both end when their input does.
//
//go:embed testdata/risen.py
var risenJob string

// TestAnotherUserInTheTree: a process of the job's becomes another user's, or runs what may
// not be read, and the one who watches may no longer read it. It is counted, the summary says that it
// was seen in part, and the command knows nothing of it.
func TestAnotherUserInTheTree(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to become others")
	for name, c := range map[string]struct {
		mount, accounting string
		counts            string // in a sample
		says              string
		mode              uint32 // of the program
		siblings          int    // that are there before
	}{
		// RSS is for everybody to read, PSS is not.
		"smaps is root's": {"", "pss", `"used_max_bytes":`, "; at most ", 0o4755, 0},
		"hidepid=1":       {"mount -t proc -o hidepid=1 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o4755, 0},
		"hidepid=2":       {"mount -t proc -o hidepid=2 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o4755, 0},
		"its own user's":  {"mount -t proc -o hidepid=2 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o711, 0},
		"one of many":     {"mount -t proc -o hidepid=2 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o711, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "risen") // no other user may get there
			wardentest.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			var fs unix.Statfs_t
			if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
				t.Skip("setuid programs are none in ", dir, err)
			}
			warden, risen, own := filepath.Join(dir, "rsswarden"), filepath.Join(dir, "risen"), filepath.Join(dir, "own")
			for to, from := range map[string]string{warden: binary, risen: "/usr/bin/python3"} {
				if out, err := exec.Command("cp", "-L", from, to).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for _, err := range []error{os.Mkdir(own, 0o700), os.Chown(own, 65534, 65534), os.Chmod(dir, 0o755), unix.Chmod(risen, c.mode)} {
				wardentest.NoError(t, err)
			}
			list := filepath.Join(own, "events")
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c",
				c.mount+`exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`, "sh",
				warden, "run", "--events", list, "--interval", "50ms", "--limit", "400M", "--accounting", c.accounting, "--", "/usr/bin/python3", "-c", risenJob, risen, strconv.Itoa(c.siblings))
			cmd.Env = wardentest.Env("XDG_STATE_HOME="+own, "RSSWARDEN_RUNTIME="+own, "HOME="+own)
			cmd.Dir = dir
			run := wardentest.StartTalk(t, cmd)
			wardentest.Until(t, "the process that cannot be read is counted", func() bool {
				return strings.Contains(wardentest.Read(list), c.counts) && (c.accounting != "pss" || between(wardentest.Read(list)) > 10<<20)
			})
			run.EndsWith(7)
			if !strings.Contains(run.Stderr.String(), c.says) || strings.Contains(run.Stderr.String(), "watcher died") {
				t.Errorf("said\n%s", &run.Stderr)
			}
		})
	}
}

// limitUser is a reading of that limit with both its bounds.
var limitUser = regexp.MustCompile(`"limit":"user"[^}]*"used_bytes":([0-9]+),"used_max_bytes":([0-9]+)`)

// between is the most by which a sum of the run is said to be unknown, in bytes.
func between(list string) (most int) {
	for _, m := range limitUser.FindAllStringSubmatch(list, -1) {
		used, _ := strconv.Atoi(m[1])
		upper, _ := strconv.Atoi(m[2])
		most = max(most, upper-used)
	}
	return most
}

// TestRunWithinRun: a job's script may run what has a run of its own. Both watch, the
// status goes through both, and a signal arrives once.
//
// F10: two supervisors nested.
func TestRunWithinRun(t *testing.T) {
	const script = `n=0; trap 'n=$((n+1))' TERM; echo ready; i=0; while [ $i -lt 40 ]; do sleep 0.05; i=$((i+1)); done; echo got $n; exit 5`
	cmd := exec.Command(binary, "run", "--interval", "50ms", "--limit", "800M", "--", binary, "run", "--interval", "50ms", "--limit", "400M", "--", "sh", "-c", script)
	cmd.Env = wardentest.Env("TMPDIR="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir())
	run := wardentest.StartTalk(t, cmd)
	run.Hear()                         // ready
	time.Sleep(200 * time.Millisecond) // both watchers are there, and judge what is sent
	wardentest.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	if line := run.Hear(); line != "got 1" {
		t.Errorf("the command says %q", line)
	}
	run.EndsWith(5)
	errs := &run.Stderr
	outer := fmt.Sprintf("rsswarden run %d watches this command too", cmd.Process.Pid)
	if n := strings.Count(errs.String(), "watches this command too"); n != 1 || !strings.Contains(errs.String(), outer) {
		t.Errorf("it is said %d times, want once: %s\n%s", n, outer, errs)
	}
	if n := strings.Count(errs.String(), "✖ cancelled: SIGTERM (exit 5"); n != 2 {
		t.Errorf("%d of two say how it ended\n%s", n, errs)
	}
}

// TestStopEndsWhatIsLeft: a shell dies of the TERM of a stop and does not pass it on. What
// it had started does not run on beside the next try; one that saves a checkpoint when TERM
// comes can do so.
func TestStopEndsWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	script := `cd "$0" || exit
(trap 'echo saved >checkpoint; exit' TERM; echo >ready; while :; do sleep .1; done) >out 2>&1 &
echo $! >pid
while [ ! -e ready ]; do sleep .1; done
x=$(head -c 200M /dev/zero | tr '\0' x)
wait`
	_, stderr, err := wardentest.Output(binary, "run", "--limit", "100M", "--accounting", "rss", "--at", "none", "--at", "95%:stop", "--", "sh", "-c", script, dir)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 137 || !strings.Contains(stderr, " left by the command: ") {
		t.Fatalf("%v, said\n%s", err, stderr)
	}
	text := wardentest.ReadFile(t, filepath.Join(dir, "pid"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	wardentest.NoError(t, err)
	wardentest.Until(t, "what the shell had started has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	if _, err := os.Stat(filepath.Join(dir, "checkpoint")); err != nil {
		t.Error(err)
	}
}

// TestHolderIsSmall: what the start has touched is given back, and what is touched then does
// not bring all of the program with it.
func TestHolderIsSmall(t *testing.T) {
	cmd := exec.Command(binary, "run", "--limit", "1G", "--record", "none", "--", "sleep", "1000")
	wardentest.NoError(t, cmd.Start())
	wardentest.Until(t, "a holder with at most 3 MiB of files in memory", func() bool {
		var peak, file int
		fmt.Sscan(wardentest.StatusLine(t, cmd.Process.Pid, "VmHWM"), &peak)
		fmt.Sscan(wardentest.StatusLine(t, cmd.Process.Pid, "RssFile"), &file)
		return peak > 8<<10 && file <= 3<<10
	})
	wardentest.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	if err := cmd.Wait(); wardentest.ExitStatus(cmd.ProcessState) != 128+int(unix.SIGTERM) {
		t.Errorf("ended with %v", err)
	}
}
