package torch

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestReviveOOM: in a full cgroup the kernel kills workers, and the training ends well,
// each batch as it has to be. The exit event counts workers and kills.
func TestReviveOOM(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	wardentest.NeedRoot(t, "a memory cgroup takes root")
	for n := range wardentest.Few(20, 1) {
		g, list := rsstest.NewGroup(t, 600*rss.MiB), filepath.Join(t.TempDir(), "events")
		cmd := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.Dir, binary,
			"run", "--record", "none", "--at", "none", "--events", list, "--", python, "testdata/revived.py")
		cmd.Env = wardentest.Env("OMP_NUM_THREADS=1")
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		all := wardentest.Events(t, list)
		revived := 0
		for _, e := range all[event.NameLoader] {
			if e["what"] == string(event.LoaderRevived) && strings.HasPrefix(fmt.Sprint(e["reason"]), "SIGKILL, and the kernel counts") {
				revived++
			}
		}
		t.Logf("run %d: %v, %q, %d revived", n, err, strings.TrimSpace(out.String()), revived)
		if err != nil || !strings.HasPrefix(out.String(), "right ") || revived == 0 {
			t.Fatalf("%v, %d revived: %s\n%s", err, revived, out.String(), errs.String())
		}
		exit := all[event.NameExit][0]
		if exit["kernel_oom_kills"] == nil {
			t.Errorf("no kills in %v", exit)
		}
		wardentest.Says(t, errs.String(), "unfinished batch", "dead worker", "killed; the command went on")
	}
}
