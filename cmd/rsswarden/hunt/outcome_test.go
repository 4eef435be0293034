package hunt

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
		{"the run ends well", `exec sleep 4`, true, false},
		{"a process of the run, too short to be seen", `python3 "$0" 300 0; exec sleep 2`, false, true},
		{"a process of the run, in the background", `(sleep 2; exec python3 "$0" 300 0) & exec sleep 4`, false, true},
		{"beside one that waited for others", `sleep .1; exec sleep 4`, true, true},
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
