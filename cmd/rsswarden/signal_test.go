package main_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// countJob writes a line for each signal it gets, and ends at TERM.
const countJob = `
import os, signal, sys, time
done = False
def got(n, frame):
    global done
    done = done or n == signal.SIGTERM
    os.write(1, b"got %d\n" % n)
for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
    signal.signal(s, got)
os.write(1, b"ready\n")
while not done:
    time.sleep(0.05)
`

// TestSlurmSignals: whatever way Slurm sends a signal, the command has it
// exactly once, as bare.
func TestSlurmSignals(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{CPUs: 4, RealMemory: 20000})
	warden := c.Install(t, binary)
	job := python + " " + pythonJob(t, c, "count.py", countJob)
	for name, wrap := range map[string]string{"bare": "", "wrapped": warden + " run --"} {
		t.Run(name, func(t *testing.T) {
			run := c.Submit(t, "exec "+wrap+" "+job, "--mem=400")
			seen := func(text string) func(slurmtest.Result) bool {
				return func(r slurmtest.Result) bool { return r.Over() || strings.Contains(r.Stdout, text) }
			}
			run.Until(t, time.Minute, seen("ready"))
			// -b reaches the batch process alone, -f its whole process group.
			c.Cancel(t, "-b", "-s", "USR1", run.ID)
			run.Until(t, time.Minute, seen("got 10"))
			c.Cancel(t, "-f", "-s", "USR2", run.ID)
			run.Until(t, time.Minute, seen("got 12"))
			c.Cancel(t, "-b", "-s", "TERM", run.ID)
			got := run.Wait(t)
			if want := "ready\ngot 10\ngot 12\ngot 15\n"; got.Stdout != want {
				t.Errorf("%s, stdout %q, want %q\n%s", got.State, got.Stdout, want, got.Stderr)
			}
		})
	}
}

// screen collects what a terminal shows.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the screen shows text n times.
func (s *screen) await(t *testing.T, text string, n int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for strings.Count(s.String(), text) < n {
		if time.Now().After(deadline) {
			t.Fatalf("%q was not shown %d times:\n%s", text, n, s)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestSlurmTerminal uses a shell of srun --pty as a person does: ^C, ^Z, jobs
// and fg work as without us.
func TestSlurmTerminal(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{CPUs: 4, RealMemory: 20000})
	warden := c.Install(t, binary)
	cmd := c.Command(t.Context(), "srun", "--mem=400", "--pty", warden, "run", "--quiet", "--", "bash", "--norc", "--noprofile", "-i")
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var shown screen
	go io.Copy(&shown, f) // ends with the terminal
	typed := func(text string) {
		t.Helper()
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatalf("%v\n%s", err, shown.String())
		}
	}
	typed("PS1='> '; echo up-$((40+2))\n")
	shown.await(t, "up-42", 1)
	typed("sleep 1000; echo status-$((0+$?))\n")
	awaitProcess(t, "sleep\x001000\x00")
	typed("\x03")
	typed("echo after-$((1+1))\n")
	shown.await(t, "after-2", 1)
	typed("sleep 1001\n")
	awaitProcess(t, "sleep\x001001\x00")
	typed("\x1a")
	shown.await(t, "Stopped", 1)
	typed("jobs; echo jobs-$((1+2))\n")
	shown.await(t, "jobs-3", 1)
	if strings.Count(shown.String(), "Stopped") < 2 {
		t.Errorf("jobs does not list the stopped job:\n%s", &shown)
	}
	typed("fg\n")
	shown.await(t, "sleep 1001", 4) // typed, stopped, listed, and now in front again
	typed("\x03")
	typed("exit 5\n")
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("srun ended with %d (%v), want the shell's 5\n%s", code, err, &shown)
	}
}

// awaitProcess waits until a process with that command line runs.
func awaitProcess(t *testing.T, line string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if b, err := os.ReadFile(file); err == nil && string(b) == line {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("no process %q", line))
		}
	}
}
