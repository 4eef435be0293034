package site

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestOdd: whatever is wrong around a run that the site started, its command sees and does what
// it would without it, and the user reads nothing.
func TestOdd(t *testing.T) {
	program := wardentest.Program(t, wardentest.Site) // which reads etc/rsswarden.toml
	const script = `echo out "$0"; [ -z "$RSSWARDEN_BY$RSSWARDEN_ARGV0" ] || env; exit 7`
	for _, test := range []struct{ name, toml, env string }{
		{"nothing set", "", "-"},
		{"no home", "", "HOME="},
		{"no place for files", "", "TMPDIR=/proc RSSWARDEN_RUNTIME=/proc"},
		{"a bad value of the user's", "", "RSSWARDEN_LIMIT=abc"},
		{"a file that is not there", "", "RSSWARDEN_CONFIG=/nowhere"},
		{"a bad file of the site's", "limit = 3 = 4\n", ""},
		{"an unknown key", "reycle = true\nlock = [\"at\"]\n", "RSSWARDEN_AT=90%:recycle"},
		{"off", "", "RSSWARDEN=off"},
	} {
		dir := t.TempDir()
		wardentest.NoError(t, os.Mkdir(filepath.Join(dir, "etc"), 0o755))
		wardentest.Write(t, filepath.Join(dir, "etc/rsswarden.toml"), test.toml)
		for _, park := range []string{"", "RSSWARDEN_PARK=0"} {
			cmd := exec.Command(program, "run", "--", "sh", "-c", script, "two words")
			cmd.Dir = dir
			cmd.Env = wardentest.Env(strings.Fields("RSSWARDEN_BY=site " + test.env + " " + park)...)
			if test.env == "-" {
				cmd.Env = []string{"RSSWARDEN_BY=site"}
				cmd.Args[3], cmd.Path = "/bin/sh", program
			}
			out, errs, _ := wardentest.Run(cmd)
			if code := wardentest.ExitStatus(cmd.ProcessState); out != "out two words\n" || errs != "" || code != 7 {
				t.Errorf("%s %s: status %d, %q, %q", test.name, park, code, out, errs)
			}
		}
	}
}

// TestShortStep: a step of one small process that ends well within two seconds has no watcher,
// and leaves nothing; any other has one.
func TestShortStep(t *testing.T) {
	home := t.TempDir()
	run := func(by string, command ...string) int {
		cmd := exec.Command(binary, append([]string{"run", "--"}, command...)...)
		cmd.Env = wardentest.Env("HOME="+home, "XDG_CACHE_HOME=", "XDG_STATE_HOME="+home, "TMPDIR="+home, by)
		if _, errs, _ := wardentest.Run(cmd); by != "" && strings.Contains(errs, "rsswarden: ") {
			t.Errorf("%v: %s", command, errs)
		}
		if left, _ := filepath.Glob(home + "/rsswarden-*"); len(left) > 0 {
			t.Errorf("%v: %v is left", command, left)
		}
		return wardentest.ExitStatus(cmd.ProcessState)
	}
	run("", "true") // which makes the hook's directory
	for _, c := range []struct {
		command string
		code    int
		watched bool
	}{
		{"exit 7", 7, false},
		{"exec sleep 0.3", 0, false},
		{"exec sleep 2.5", 0, true},
		{"sleep 0.3; exit 7", 7, true}, // two processes
		{"exec head -c 100M /dev/zero | tail -c 100M >/dev/null", 0, true},
		{"kill -9 $$", 137, true},
		{"exit 137", 137, true}, // as a shell says that a child was killed
	} {
		if err := os.RemoveAll(home + "/rsswarden"); err != nil {
			t.Fatal(err)
		}
		code := run("RSSWARDEN_BY=site", "sh", "-c", c.command)
		index, _ := filepath.Glob(home + "/rsswarden/*/index-*.jsonl")
		if code != c.code || (len(index) > 0) != c.watched {
			t.Errorf("%s: status %d, left %v", c.command, code, index)
		}
	}
}

// TestSignalsOfAStep: signals to a step and to its holder reach the command once each, also in the
// two seconds in which nothing but the fork of the holder is there.
func TestSignalsOfAStep(t *testing.T) {
	wardentest.NeedPython(t)
	const counts = `import os, signal, sys, time
n = 0
def seen(*_):
    global n
    n += 1
signal.signal(signal.SIGUSR1, seen)
print("ready", os.getpgid(0), os.getppid(), flush=True)
end = time.monotonic() + 1.5
while time.monotonic() < end: time.sleep(0.01)
print(n)`
	home := t.TempDir()
	first := exec.Command(binary, "run", "--", "true") // which makes the hook's directory
	first.Env = wardentest.Env("HOME=" + home)
	wardentest.NoError(t, first.Run())
	run := func(signals func(group, holder int)) string {
		cmd := exec.Command(binary, "run", "--", wardentest.Python, "-S", "-c", counts)
		cmd.Env = wardentest.Env("HOME="+home, "XDG_CACHE_HOME=", "RSSWARDEN_BY=site")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		pipe, err := cmd.StdoutPipe()
		wardentest.NoError(t, err)
		wardentest.NoError(t, cmd.Start())
		out := bufio.NewReader(pipe)
		var group, holder int
		if _, err := fmt.Fscanf(out, "ready %d %d\n", &group, &holder); err != nil {
			t.Error(err)
		} else {
			signals(group, holder)
		}
		rest, _ := io.ReadAll(out)
		wardentest.NoError(t, cmd.Wait())
		return strings.TrimSpace(string(rest))
	}
	kill := func(pid int) { wardentest.NoError(t, syscall.Kill(pid, syscall.SIGUSR1)) }
	if n := run(func(group, _ int) {
		for range 3 {
			kill(-group)
			time.Sleep(300 * time.Millisecond) // the pace of the signals
		}
	}); n != "3" {
		t.Errorf("of three signals to the group it saw %s", n)
	}
	if n := run(func(_, holder int) {
		children := wardentest.Read(fmt.Sprintf("/proc/%d/task/%d/children", holder, holder))
		for child := range strings.FieldsSeq(children) {
			if comm := wardentest.Read("/proc/" + child + "/comm"); !strings.HasPrefix(comm, "python") {
				pid, _ := strconv.Atoi(child)
				kill(pid) // which is not for the command
			}
		}
		time.Sleep(300 * time.Millisecond)
		kill(holder)
	}); n != "1" {
		t.Errorf("of one signal to the holder it saw %s", n)
	}
}

// TestTask: the link that Slurm before 23.11 executes is `rsswarden run`, or the command where
// there is no rsswarden beside it.
func TestTask(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "rsswarden-task")
	wardentest.NoError(t, os.Symlink(binary, link))
	run := func(env ...string) (out string, code int) {
		cmd := exec.Command(link, "-c", parent+`; echo "$0 $# $3"; [ -z "$RSSWARDEN_ARGV0" ] || env; exit 7`, "zero", "", "two words", "-x")
		cmd.Env = wardentest.Env(env...)
		out, errs, _ := wardentest.Run(cmd)
		if code := wardentest.ExitStatus(cmd.ProcessState); code == 7 && errs != "" {
			t.Errorf("%s", errs)
		}
		return out, wardentest.ExitStatus(cmd.ProcessState)
	}
	if out, code := run("RSSWARDEN_ARGV0=sh"); out == "by rsswarden\nzero 3 -x\n" || code != 7 {
		t.Errorf("without rsswarden: %d %q", code, out)
	}
	wardentest.NoError(t, os.Symlink(binary, filepath.Join(dir, "rsswarden")))
	if out, code := run("RSSWARDEN_ARGV0=sh"); out != "by rsswarden\nzero 3 -x\n" || code != 7 {
		t.Errorf("%d %q", code, out)
	}
	if out, code := run("RSSWARDEN_ARGV0=/bin/no-such-file"); out != "" || code != 127 {
		t.Errorf("not found: %d %q", code, out)
	}
	if out, code := run(); out != "" || code != 2 {
		t.Errorf("by hand: %d %q", code, out)
	}
}

// TestGivesWay: a run of the site's acts by its rules, until the user has typed one of his own
// within the command.
func TestGivesWay(t *testing.T) {
	wardentest.NeedPython(t)
	program, hold := wardentest.Program(t, wardentest.Site), wardentest.Path(t, "cmd/rsswarden/e2e/site/testdata/hold.py")
	for typed, acts := range map[string]bool{"": true, binary + " run --quiet -- ": false} {
		dir := t.TempDir()
		wardentest.NoError(t, os.Mkdir(filepath.Join(dir, "etc"), 0o755))
		wardentest.Write(t, filepath.Join(dir, "etc/rsswarden.toml"), `limit = "100M"
at = ["none", "60%:exec=touch fired"]
interval = "100ms"
`)
		cmd := exec.Command(program, "run", "--", "sh", "-c", typed+wardentest.Python+" "+hold+" 80; exit 7")
		cmd.Dir, cmd.Env = dir, wardentest.Env("RSSWARDEN_BY=site")
		out, errs, _ := wardentest.Run(cmd)
		_, err := os.Stat(filepath.Join(dir, "fired"))
		if code := wardentest.ExitStatus(cmd.ProcessState); code != 7 || out != "" || (err == nil) != acts || !acts && errs != "" {
			t.Errorf("%q: status %d, the rule has fired: %v\n%s%s", typed, code, err == nil, out, errs)
		}
	}
}
