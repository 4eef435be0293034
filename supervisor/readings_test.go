package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// TestLimitSetLater: the kernel is to tell of a limit, too, that nobody had set at
// the start.
func TestLimitSetLater(t *testing.T) {
	s := opened(t, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.events")
	if err := os.WriteFile(file, []byte("max 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.view.Sample.Seq = 2
	s.view.Limits = []event.Limit{{Name: event.LimitCgroup, Level: dir, Limit: 1000}}
	s.changed(&view.View{})
	if err := os.WriteFile(file, []byte("max 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.After(10 * time.Second); ; {
		select {
		case <-s.bell.C():
			if s.bell.Causes()&limitMet != 0 {
				return
			}
		case <-end:
			t.Fatal("the bell did not ring")
		}
	}
}

// TestSiteRulesAreForAllJobs: that a limit of theirs is not there is not told.
func TestSiteRulesAreForAllJobs(t *testing.T) {
	for origin, want := range map[string]bool{"flag": true, "site": false, "site (locked)": false} {
		s := opened(t, func(o *Options) {
			o.Settings.Rules, o.Settings.Origins = mustRules("throttle 80%:trim"), []event.Setting{{Name: "at", Origin: origin}}
		})
		if told := strings.Contains(s.stderr(), `the rule "throttle 80%:trim" does not fire now`); told != want {
			t.Errorf("rules of %s: told %v, want %v", origin, told, want)
		}
	}
}
