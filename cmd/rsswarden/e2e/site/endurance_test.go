//go:build endurance

package site

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestEnduranceSteps: a thousand steps of one second take as long with the plugin as without it,
// to within 2 %, on a machine that does nothing else: one after the other, and as many at once as
// there are processors. They run as at a site: the release's static program, and a user whom a
// user namespace knows, unlike the test's usual one, for whom no command is started at once.
func TestEnduranceSteps(t *testing.T) {
	usual := options.User
	options.User = "games"
	t.Cleanup(func() { options.User = usual })
	s := newSite(t, "")
	static := []string{"go", "build", "-trimpath", "-tags", "urfave_cli_no_docs,netgo,osusergo", "-ldflags", "-s -w -linkmode=external -extldflags=-static", "-o", s.bin, "../.."}
	if _, errs, err := wardentest.Output(static...); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	for _, n := range []int{1, runtime.NumCPU()} {
		t.Run(fmt.Sprint(n, " at once"), func(t *testing.T) { s.steps(t, n) })
	}
}

func (s *site) steps(t *testing.T, n int) {
	const most = 0.02
	took := map[string]time.Duration{}
	for i := range 2 * wardentest.Times(1000/n) {
		mode := []string{"on", "off", "off", "on"}[i%4]
		began := time.Now()
		var steps sync.WaitGroup
		for range n {
			steps.Go(func() {
				if got := s.Srun(t, "--mem=200", "--rsswarden="+mode, "sleep", "1"); got.Code != 0 || got.Stdout+got.Stderr != "" {
					t.Errorf("%s: %+v", mode, got)
				}
			})
		}
		steps.Wait()
		took[mode] += time.Since(began)
	}
	ratio := took["on"].Seconds()/took["off"].Seconds() - 1
	t.Logf("with the plugin %v, without %v: %+.2f %%", took["on"], took["off"], 100*ratio)
	if ratio > most {
		t.Errorf("%.1f %% longer, want at most %.0f", 100*ratio, 100*most)
	}
}

// TestEnduranceManyTasks: a step that has no room for 64 watchers ends well.
func TestEnduranceManyTasks(t *testing.T) {
	s := newSite(t, "")
	s.plugstack(t, "optional "+s.so+" bin="+s.bin)
	got := s.Srun(t, "-N1", "-n64", "-O", "--mem=1000", "sleep", "5")
	if got.Code != 0 || got.Stderr != "" {
		t.Errorf("%+v", got)
	}
}
