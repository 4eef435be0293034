package hold

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// However the watcher ends, the command's status is its own.
func TestWatcherFails(t *testing.T) {
	for _, watch := range []string{"good", "kill", "stop", "panic", "bus", "leave", "hang"} {
		t.Run(watch, func(t *testing.T) {
			t.Parallel()
			starts := 1
			if watch == "kill" || watch == "panic" || watch == "bus" {
				starts = 2 // at least
			}
			log := filepath.Join(t.TempDir(), "log")
			cmd := run(t, held(config{Watch: watch, Log: log, Flush: 300 * time.Millisecond}, "sh", "-c",
				fmt.Sprintf(`until [ "$(grep -cs begin %s)" -ge %d ]; do sleep 0.05; done; sleep 0.3; exit 43`, log, starts))...)
			cmd.Stderr = nil
			if s := runStatus(t, cmd); s.ExitStatus() != 43 {
				t.Errorf("got %v, want 43", s)
			}
			var watcher int
			if fmt.Sscanf(awaitLine(t, log, "begin"), "begin %d", &watcher); watch == "good" && unix.Kill(watcher, 0) != unix.ESRCH {
				t.Errorf("the watcher %d is left behind", watcher)
			}
			if n := strings.Count(wardentest.Read(log), "begin"); n < starts || starts == 1 && n > 1 {
				t.Errorf("started %d times, want %d", n, starts)
			}
			if watch == "good" && !strings.Contains(wardentest.Read(log), "exit code 43 signal 0") {
				t.Errorf("the watcher was not told: %s", wardentest.Read(log))
			}
		})
	}
}

// Three times at most, the last one told so.
func TestWatcherRestarts(t *testing.T) {
	t.Parallel()
	k := startCounted(t, config{Watch: "kill"})
	awaitLine(t, k.log, "begin")
	until(t, "the last watcher", func() bool { return strings.Contains(wardentest.Read(k.log), "attempt 4 last true") })
	for i := 1; i <= 3; i++ {
		if !strings.Contains(wardentest.Read(k.log), fmt.Sprintf("attempt %d last false", i)) {
			t.Errorf("no attempt %d in %s", i, wardentest.Read(k.log))
		}
	}
	until(t, "no child but the command", func() bool { return len(wardentest.Children(k.holder)) == 1 })
	kill(t, k.holder, 10)
	until(t, "a signal without a watcher", func() bool { return k.count(10) == 1 })
	k.end(t)
	if n := strings.Count(wardentest.Read(k.log), "begin"); n != 4 {
		t.Errorf("started %d times, want 4", n)
	}
}

func TestOverride(t *testing.T) {
	k := startCounted(t, config{Watch: "good", Override: 137})
	kill(t, k.command, 9)
	if s := waitStatus(t, k.cmd); s.ExitStatus() != 137 {
		t.Errorf("got %v, want exit status 137", s)
	}
	if !strings.Contains(wardentest.Read(k.log), "exit code 0 signal 9") {
		t.Errorf("the watcher did not get signal 9: %s", wardentest.Read(k.log))
	}
}

func TestSubreaper(t *testing.T) {
	dir := t.TempDir()
	for _, on := range []bool{false, true} {
		file, log := filepath.Join(dir, fmt.Sprint("orphans", on)), filepath.Join(dir, fmt.Sprint("log", on))
		cmd := run(t, held(config{Watch: "good", Log: log, Subreaper: on}, "sh", "-c",
			fmt.Sprintf("until grep -qs begin %s; do sleep 0.01; done; exec %s orphans 50 %s", log, probe, file))...)
		wardentest.NoError(t, cmd.Start())
		until(t, "all orphans", func() bool { return strings.Count(wardentest.Read(file), "orphan ") == 50 })
		var command int
		fmt.Sscanf(awaitLine(t, file, "ready"), "ready %d", &command)
		adopted := strings.Count(wardentest.Read(file), fmt.Sprintf("parent %d\n", cmd.Process.Pid)) - 1
		if want := map[bool]int{true: 50}[on]; adopted != want {
			t.Errorf("subreaper %v: adopted %d, want %d", on, adopted, want)
		}
		until(t, "all reaped", func() bool { return len(wardentest.Children(cmd.Process.Pid)) == 2 })
		unix.Kill(command, unix.SIGKILL)
		if s := waitStatus(t, cmd); s.Signal() != unix.SIGKILL {
			t.Errorf("got %v", s)
		}
	}
}

// The watcher ends when its holder is killed; the command runs on.
func TestHolderKilled(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	kill(t, k.holder, 9)
	waitStatus(t, k.cmd)
	awaitLine(t, k.log, "gone")
	if stateOf(t, k.command) == 0 {
		t.Error("the command died with the holder")
	}
	unix.Kill(k.command, unix.SIGKILL)
}

// A holder that is stopped beside a running or ended command is continued.
func TestUnstick(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	kill(t, k.holder, int(unix.SIGSTOP))
	until(t, "a continued holder", func() bool { return stateOf(t, k.holder) == 'S' })
	kill(t, k.holder, int(unix.SIGSTOP))
	k.end(t)
}
