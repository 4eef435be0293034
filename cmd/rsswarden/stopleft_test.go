package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestStopEndsWhatIsLeft: a shell dies of the TERM of a stop and does not pass it on. What
// it had started does not run on beside the next try; one that saves a checkpoint when TERM
// comes can do so.
func TestStopEndsWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	script := `cd "$0" || exit
(trap 'echo saved >checkpoint; exit' TERM; echo >ready; while :; do sleep .1; done) >out 2>&1 &
echo $! >pid
while [ ! -e ready ]; do sleep .1; done
x=$(head -c 200M /dev/zero | tr '\0' x)
wait`
	_, stderr, err := output([]string{binary, "run", "--limit", "100M", "--accounting", "rss", "--at", "none", "--at", "95%:stop", "--", "sh", "-c", script, dir})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 137 || !strings.Contains(stderr, " outlived the command, and got TERM: ") {
		t.Fatalf("%v, said\n%s", err, stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "what the shell had started has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	if _, err := os.Stat(filepath.Join(dir, "checkpoint")); err != nil {
		t.Error(err)
	}
}
