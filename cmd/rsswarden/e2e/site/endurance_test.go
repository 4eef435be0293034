//go:build endurance

package site

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestEnduranceSteps runs steps of a second, one after the other, with the plugin and without,
// as a site has them: the release's static program, and a user who is not nobody, for whom a
// command is never started at once.
func TestEnduranceSteps(t *testing.T) {
	nobody := options.User
	options.User = "games"
	t.Cleanup(func() { options.User = nobody })
	s := newSite(t, "")
	static := []string{"go", "build", "-trimpath", "-tags", "urfave_cli_no_docs,netgo,osusergo", "-ldflags", "-s -w -linkmode=external -extldflags=-static", "-o", s.bin, "../.."}
	if _, errs, err := wardentest.Output(static...); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	const most = 0.02
	took := map[string]time.Duration{}
	for i := range 2 * wardentest.Times(1000) {
		mode := []string{"on", "off", "off", "on"}[i%4]
		began := time.Now()
		if got := s.Srun(t, "--mem=200", "--rsswarden="+mode, "sleep", "1"); got.Code != 0 || got.Stdout+got.Stderr != "" {
			t.Errorf("%s: %+v", mode, got)
		}
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
