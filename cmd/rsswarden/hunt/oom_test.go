package hunt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
		return now < most*6/10
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
