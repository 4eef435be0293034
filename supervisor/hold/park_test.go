package hold

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestNotParked: what the other tests show of a parked holder holds for the Go holder too, which
// RSSWARDEN_PARK=0 asks for.
func TestNotParked(t *testing.T) {
	t.Setenv("RSSWARDEN_PARK", "0")
	for name, test := range map[string]func(*testing.T){
		"every signal once": TestEverySignalOnce,
		"a reserved signal": TestReservedSignals,
		"queued signals":    TestRealTimeSignalsQueue,
		"a group's signal":  TestGroupSignalOnce,
		"group and holder":  TestGroupAndHolderAtOnce,
		"holder and group":  TestHolderAndGroupAtOnce,
		"used evidence":     TestReportOfUsedEvidence,
		"a mute watcher":    TestMuteWatcher,
		"while it starts":   TestSignalWhileStarting,
		"a pending signal":  TestPendingBeforeStart,
		"the terminal":      TestTerminalSignalsOnce,
		"stops":             TestStopThroughHolder,
		"a watcher's files": TestWatcherDescriptors,
		"no room for tasks": TestPidsMax,
		"no room at all":    TestNoRoomForTwo,
		"another status":    TestOverride,
		"orphans":           TestSubreaper,
	} {
		t.Run(name, test)
	}
}

// threads are those of a process.
func threads(t *testing.T, pid int) string { return wardentest.StatusLine(t, pid, "Threads") }

// TestParkedSleeps: it has one thread and ends as its command until more is asked of it than to
// pass signals on or to see that the command has them, and none is lost or doubled while it wakes.
func TestParkedSleeps(t *testing.T) {
	for status := range 3 {
		if s := runStatus(t, run(t, held(config{Watch: "good", Log: filepath.Join(t.TempDir(), "log")}, probe, "exit", fmt.Sprint(status))...)); s.ExitStatus() != status {
			t.Errorf("%v for %d", s, status)
		}
	}
	k := startCounted(t, config{Watch: "good"})
	until(t, "one thread", func() bool { return threads(t, k.holder) == "1" })
	if line := wardentest.ReadFile(t, fmt.Sprintf("/proc/%d/cmdline", k.watcher)); !strings.HasPrefix(string(line), "rss-watcher\x00watch\x00") {
		t.Errorf("pkill -f meets the watcher as %q", line)
	}
	for n := range 20 {
		kill(t, -k.holder, int(unix.SIGUSR1))
		k.comes(t, int(unix.SIGUSR1), n+1)
		k.settled(t)
	}
	if n := k.count(int(unix.SIGUSR1)); n != 20 || threads(t, k.holder) != "1" {
		t.Errorf("%d signals for 20 to the group, threads: %s", n, threads(t, k.holder))
	}
	for _, wakes := range []bool{false, true} {
		n, queued, term := 300, k.count(40), k.count(int(unix.SIGTERM))
		if wakes {
			kill(t, k.holder, int(unix.SIGCONT)) // job control is the Go holder's
		}
		for range n {
			kill(t, k.holder, 40)
			kill(t, k.holder, int(unix.SIGTERM))
		}
		kill(t, k.holder, 41)
		k.comes(t, 41, map[bool]int{false: 1, true: 2}[wakes])
		if queued, term = k.count(40)-queued, k.count(int(unix.SIGTERM))-term; queued != n || term == 0 || term > n {
			t.Errorf("wakes %v: %d of %d queued signals, %d SIGTERM", wakes, queued, n, term)
		}
		if one := threads(t, k.holder) == "1"; one == wakes {
			t.Errorf("wakes %v, one thread %v", wakes, one)
		}
	}
	k.comes(t, int(unix.SIGCONT), 1)
	k.end(t)
	if log := wardentest.Read(k.log); !strings.Contains(log, "signal 41 forwarded true") {
		t.Errorf("the watcher was not told: %s", log)
	}
	k = startCounted(t, config{Watch: "good"})
	kill(t, k.watcher, 9)
	until(t, "a second watcher", func() bool { return strings.Contains(wardentest.Read(k.log), "attempt 2") })
	k.end(t)
}

// TestParkedStartFails: where the fork that was to give the verdict dies the command runs
// unwatched; where it gives none, under the Go holder.
func TestParkedStartFails(t *testing.T) {
	for want, argv := range map[string][]string{
		"runs unwatched: its start failed": {self, "run", "--", "sh", "-c", "exit 7"}, // "--" is no config: it panics
		"":                                 held(config{}, "sh", "-c", "exit 7"),
	} {
		said := filepath.Join(t.TempDir(), "stderr")
		cmd := run(t, append([]string{"sh", "-c", `exec "$@" 2>` + said, "sh"}, argv...)...)
		if s := runStatus(t, cmd); s.ExitStatus() != 7 {
			t.Errorf("%q: %v, want 7", argv, s)
		}
		if text := wardentest.Read(said); !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("%q said %q", argv, text)
		}
	}
}

// TestWarnings: the compiler's analysis of the C here finds nothing.
func TestWarnings(t *testing.T) {
	files, err := filepath.Glob("*.c")
	wardentest.NoError(t, err)
	for _, file := range files {
		out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fanalyzer", "-c", "-o", os.DevNull, file).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("needs gcc: ", err)
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestParkedFlush: a watcher that does not end is waited for once, by C and Go together; one that
// has flushed is hardly waited for.
func TestParkedFlush(t *testing.T) {
	for watch, flush := range map[string]time.Duration{"hang": 4 * time.Second, "linger": 20 * time.Second} {
		t.Run(watch, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			cmd := run(t, held(config{Watch: watch, Log: log, Flush: flush}, "sh", "-c", "until grep -qs begin "+log+"; do sleep 0.05; done; exit 3")...)
			cmd.Stderr = nil
			wardentest.NoError(t, cmd.Start())
			awaitLine(t, log, "exit code 3")
			told := time.Now()
			if s := waitStatus(t, cmd); s.ExitStatus() != 3 {
				t.Errorf("got %v, want 3", s)
			}
			if took := time.Since(told); took > 7*time.Second { // waited for twice "hang" takes 8 s
				t.Errorf("it was waited for %v", took)
			}
		})
	}
}
