package faults

import (
	_ "embed"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// countSignals prints its PID, a line for each SIGUSR1, and ends with 43 at the end of
// its input. It waits for both by one select: a handler of Python's whose signal comes
// just before read(2) would wait for the end of that.
//
//go:embed testdata/countsignals.py
var countSignals string

// startCount starts cmd, which has countSignals under a holder of which a part is going to
// fail, and waits until that is ready. It returns its PID too.
func startCount(t *testing.T, cmd *exec.Cmd, fault string) (c *wardentest.Talk, pid int) {
	t.Helper()
	cmd.Env = append(wardentest.Env(cmd.Env...), "RSSWARDEN_FAULT="+fault, "RSSWARDEN_RUNTIME="+t.TempDir(), "XDG_STATE_HOME="+t.TempDir())
	c = wardentest.StartTalk(t, cmd)
	pid, err := strconv.Atoi(c.Hear())
	wardentest.NoError(t, err)
	return c, pid
}

// TestHolderPanics: a bug in a part of the holder, or of what runs before and after it.
// The command runs, gets its signals once, and ends as bare.
func TestHolderPanics(t *testing.T) {
	for part, says := range map[string]string{
		"run":            "the command runs unwatched: internal error: asked for",
		"prepare":        "the loader hook is off: internal error: asked for",
		"holder-start":   "",
		"holder":         "the holder failed; the command runs on, its signals and its end are passed on: internal error: asked for by RSSWARDEN_FAULT at loop.go:",
		"holder-signal":  "the holder failed;",
		"holder-starter": "cannot start watcher: internal error: asked for by RSSWARDEN_FAULT at watcher.go:",
		"holder-log":     "",
		"tidy":           "",
	} {
		for _, end := range []string{"exit", "signal"} {
			t.Run(part+" "+end, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(faulty, "run", "--limit", "1000M", "--", "/usr/bin/python3", "-c", countSignals)
				c, _ := startCount(t, cmd, "panic-in:"+part)
				for i := range 3 {
					wardentest.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
					if !c.Lines.Scan() || c.Lines.Text() != "got" {
						t.Errorf("signal %d: %q", i, c.Lines.Text())
					}
				}
				began := time.Now()
				if end == "signal" {
					wardentest.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				} else {
					c.In.Close()
				}
				if c.Lines.Scan() {
					t.Errorf("%q besides", c.Lines.Text())
				}
				_ = cmd.Wait()
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the end took %v", took)
				}
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if end == "signal" && status.Signal() != syscall.SIGTERM || end == "exit" && status.ExitStatus() != 43 {
					t.Errorf("it ended with %v", cmd.ProcessState)
				}
				wardentest.Says(t, c.Stderr.String(), says)
				if strings.Contains(c.Stderr.String(), "goroutine ") {
					t.Errorf("a stack reached stderr:\n%s", &c.Stderr)
				}
			})
		}
	}
}

// TestHolderFaults: a fault in C, or a page of the program that cannot be read any more,
// ends the holder as SIGKILL would. The command runs on as an orphan, unless whoever
// started us wanted it to get a signal then.
func TestHolderFaults(t *testing.T) {
	for _, sig := range []string{"clear", "USR1", "TERM"} {
		t.Run("death signal "+sig, func(t *testing.T) {
			cmd := exec.Command("/usr/bin/setpriv", "--pdeathsig", sig, faulty, "run", "--limit", "1000M", "--", "/usr/bin/python3", "-c", countSignals)
			c, pid := startCount(t, cmd, "bus-in:holder-signal")
			wardentest.Until(t, "a watcher", func() bool { return len(wardentest.Watchers(cmd.Process.Pid)) == 1 })
			watcher := wardentest.Watchers(cmd.Process.Pid)[0]
			wardentest.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
			state, err := cmd.Process.Wait()
			if err != nil || state.Success() {
				t.Errorf("the holder ended with %v, %v", state, err)
			}
			wardentest.Until(t, "the watcher's end", func() bool { return !wardentest.IsWatcher(watcher) })
			switch sig {
			case "clear":
				if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
					t.Errorf("the command is gone: %v", err)
				}
				fallthrough
			case "USR1":
				if !c.Lines.Scan() || c.Lines.Text() != "got" {
					t.Errorf("the command said %q", c.Lines.Text())
				}
				c.In.Close()
			}
			// Each thread of the holder that ends sends it, as threads of anybody do.
			for c.Lines.Scan() && sig == "USR1" && c.Lines.Text() == "got" {
			}
			if c.Lines.Text() != "" && sig != "USR1" {
				t.Errorf("%q besides", c.Lines.Text())
			}
			wardentest.Until(t, "the command's end", func() bool { return wardentest.Ended(pid) })
		})
	}
}
