package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRunWithinRun: a job's script may run what has a run of its own. Both watch, the
// status goes through both, and a signal arrives once.
//
// F10: two supervisors nested.
func TestRunWithinRun(t *testing.T) {
	const script = `n=0; trap 'n=$((n+1))' TERM; echo ready; i=0; while [ $i -lt 40 ]; do sleep 0.05; i=$((i+1)); done; echo got $n; exit 5`
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, "run", "--interval", "50ms", "--limit", "800M", "--", binary, "run", "--interval", "50ms", "--limit", "400M", "--", "sh", "-c", script)
	cmd.Env = append(withoutSlurm(), "TMPDIR="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir())
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 6)
	if _, err := said.Read(line); err != nil || string(line) != "ready\n" {
		t.Fatalf("%q, %v\n%s", line, err, &errs)
	}
	time.Sleep(200 * time.Millisecond) // both watchers are there, and judge what is sent
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := out.ReadFrom(said); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 || out.String() != "got 1\n" {
		t.Errorf("%v, the command says %q\n%s", err, &out, &errs)
	}
	outer := fmt.Sprintf("this run is within rsswarden run %d: both watch the command, and each acts by its own rules; its PyTorch loaders answer to this one alone; one is enough", cmd.Process.Pid)
	if n := strings.Count(errs.String(), "this run is within"); n != 1 || !strings.Contains(errs.String(), outer) {
		t.Errorf("it is said %d times, want once: %s\n%s", n, outer, &errs)
	}
	if n := strings.Count(errs.String(), "exit status 5"); n != 2 {
		t.Errorf("%d of two say how it ended\n%s", n, &errs)
	}
}
