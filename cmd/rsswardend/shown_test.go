package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCurl: what docs/daemon.md shows to be typed, where no job has to be.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	d := start(t, "--interval", "1h")
	out, err := exec.Command(curl, "-s", "http://"+d.address+"/metrics").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"rsswarden_build_info", "rsswarden_last_look_timestamp_seconds", "rsswarden_oom_unheard_steps"} {
		if !strings.Contains(string(out), "\n"+name) {
			t.Errorf("no %s in:\n%s", name, out)
		}
	}
}
