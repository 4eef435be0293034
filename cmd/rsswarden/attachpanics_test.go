package main_test

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// TestAttachPanics: the process that is watched knows nothing of it, and who attached
// is told in a line.
func TestAttachPanics(t *testing.T) {
	for _, fault := range []string{"panic", "bus"} {
		t.Run(fault, func(t *testing.T) {
			p := startTold(t)
			before := fingerprint(t, p.cmd.Process.Pid)
			cmd := exec.Command(faulty, "attach", "--interval", "20ms", "--limit", "1000M", p.pid())
			cmd.Env = append(withoutSlurm(), "RSSWARDEN_FAULT="+fault, "TMPDIR="+t.TempDir())
			var said bytes.Buffer
			cmd.Stderr = &said
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() <= 0 {
				t.Errorf("%v\n%s", err, &said)
			}
			if fault == "panic" && !strings.Contains(said.String(), "runs on: internal error: asked for by RSSWARDEN_FAULT") {
				t.Errorf("said\n%s", &said)
			}
			p.do("grow 1")
			if after := fingerprint(t, p.cmd.Process.Pid); after != before {
				t.Errorf("the process was %s and is %s", before, after)
			}
			p.end()
		})
	}
}
