package site

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestManyTasks: a step of more tasks on a node than are wrapped, 2,000 in the long run, is as bare.
func TestManyTasks(t *testing.T) {
	n := wardentest.Few(2000, 80)
	many := func(t *testing.T, s *site) {
		const script = parent + `; sleep 2; [ $SLURM_PROCID != 7 ] || exit 7`
		srun := func(mode string) (bare int, rest, errs string, code int) {
			got := s.Do(t, "env", "RSSWARDEN="+mode, "srun", "-N1", fmt.Sprint("-n", n), "-O", "--mem=0", "sh", "-c", script)
			names, rest := by(got.Stdout)
			return strings.Count(strings.Join(names, "\n"), "slurmstepd"), rest, unnumbered(got.Stderr), got.Code
		}
		for _, mode := range []string{"on", "off"} {
			if bare, rest, errs, code := srun(mode); bare != n || rest != "" || code != 7 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "task 7: Exited with exit code 7") {
				t.Errorf("RSSWARDEN=%s: %d of %d tasks bare, status %d\n%s%s", mode, bare, n, code, rest, errs)
			}
		}
	}
	t.Run("plugin", func(t *testing.T) {
		s := newSite(t, "")
		s.plugstack(t, "optional "+s.so+" bin="+s.bin)
		many(t, s)
		if why := "there are more than maxtasks tasks on this node"; !strings.Contains(s.Log("slurmd"), why) {
			t.Errorf("the log of slurmd has no %q", why)
		}
	})
	t.Run("task-prolog", func(t *testing.T) {
		s := newPrologSite(t, "")
		many(t, s)
	})
}
