//go:build endurance

package rsstest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// flaky are tests that once failed on a busy machine, with the packages they are of.
var flaky = [][2]string{
	{"supervisor/node", "^TestRenew$"},
	{"supervisor/loader", "^TestUnpicklable$/^torch2.6$/^swap$"},
	{"cmd/rsswarden/e2e/faults", "^TestGoroutinePanics$/^notifier$"},
}

// TestEnduranceLoad runs each of them 50 times beside eight processes that compute.
func TestEnduranceLoad(t *testing.T) {
	for range 8 { // they end when their standard input does
		rsstest.StartChild(t, exec.Command("bash", "-c", "while :; do :; done & read; kill $!"))
	}
	for _, f := range flaky {
		t.Run(f[0], func(t *testing.T) {
			out, err := exec.Command("go", "test", "-v", "-count=50", "-timeout=60m", "-run="+f[1], "../../"+f[0]).CombinedOutput()
			name, _, _ := strings.Cut(strings.Trim(f[1], "^"), "$")
			if passed := strings.Count(string(out), "\n--- PASS: "+name+" "); err != nil || passed != 50 {
				t.Errorf("%s: %d of 50 passed, %v\n%s", f[1], passed, err, out)
			}
		})
	}
}
