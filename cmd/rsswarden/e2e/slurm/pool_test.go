package slurm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestPools has jobs whose pools of workers keep something of each task: Slurm or the kernel
// kills them bare, and wrapped they end with the same results.
func TestPools(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		for _, pool := range []string{"Pool --start fork", "ProcessPoolExecutor --start spawn"} {
			t.Run(fmt.Sprintf("%v/%s", mode, strings.Fields(pool)[0]), func(t *testing.T) {
				t.Parallel()
				c, warden := cluster(t, mode)
				line := python + " " + c.Install(t, "../../../../examples/pools/tokenize.py") + " --tasks 1500 --pool " + pool
				got := c.Do(t, "/bin/sh", "-c", line+" --keep 0 --ms 1")
				want := wardentest.Checksum(got.Stdout)
				if got.Code != 0 || want == "none" {
					t.Fatalf("the run without a limit failed: %+v", got)
				}
				// A Pool that lost a worker to the kernel waits for its result for ever.
				if bare := c.Submit(t, "exec timeout 60 "+line, "--mem=600", "--no-requeue").Wait(t); bare.State == "COMPLETED" {
					t.Errorf("bare: %s: the test proves nothing", bare.State)
				}
				for range wardentest.Few(20, 1) {
					s := stand{Cluster: c, rsswarden: warden}
					run := c.Submit(t, "exec "+warden+" run --events $PWD/events -- "+line, "--mem=600", "--no-requeue")
					s.completed(t, want, run.Wait(t))
					n := 0
					for _, e := range wardentest.Events(t, filepath.Join(run.Dir, "events"))[event.NameLoader] {
						if e["what"] == string(event.LoaderRecycled) {
							n++
						}
					}
					if n < 3 {
						t.Errorf("%d workers recycled", n)
					}
				}
			})
		}
	}
}
