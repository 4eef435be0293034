package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// everyPrinter is a run in which each command that prints tables prints them.
const everyPrinter = `
until rsswarden status >status.out 2>&1; do sleep 0.02; n=$((n + 1)); [ "$n" -lt 1000 ] || { cat status.out; exit 1; }; done
rsswarden status && rsswarden top --once && rsswarden limits && rsswarden trim --dry-run --pid $$`

var (
	escape = regexp.MustCompile(`\x1b`)
	colour = regexp.MustCompile(`\x1b\[([0-9]*;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]`)
)

// TestPlainWhereAsked: colour is for a terminal that has it, whose user wants it
// (https://no-color.org). A dumb terminal, a pipe and a file get text alone.
func TestPlainWhereAsked(t *testing.T) {
	for _, c := range []struct {
		name     string
		env      []string
		terminal bool
		columns  uint16
		colours  bool
		ascii    bool
	}{
		{"terminal", []string{"TERM=xterm-256color"}, true, 120, true, false},
		{"20 columns", []string{"TERM=xterm-256color"}, true, 20, true, false},
		{"no UTF-8", []string{"TERM=xterm-256color", "LC_ALL=C"}, true, 120, true, true},
		{"NO_COLOR", []string{"TERM=xterm-256color", "NO_COLOR=1"}, true, 120, false, false},
		{"TERM=dumb", []string{"TERM=dumb"}, true, 120, false, false},
		{"pipe", []string{"TERM=xterm-256color"}, false, 0, false, false},
		{"ASCII pipe", []string{"LC_ALL=POSIX"}, false, 0, false, true},
		{"CLICOLOR_FORCE", []string{"CLICOLOR_FORCE=1", "NO_COLOR=1"}, false, 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			script := "rsswarden run --limit 200M --at none --at 1%:warn --interval 20ms --record " + dir + "/records -- sh -c '" + everyPrinter +
				"' && rsswarden report " + dir + "/records && rsswarden replay " + dir + "/records && rsswarden --help && rsswarden run --help"
			cmd := exec.Command("sh", "-c", script)
			cmd.Dir = dir
			cmd.Env = append([]string{
				"PATH=" + filepath.Dir(binary) + ":/usr/bin:/bin", "HOME=" + dir, "XDG_STATE_HOME=" + dir, "RSSWARDEN_RUNTIME=" + dir, "LC_ALL=C.UTF-8",
			}, c.env...)
			var out bytes.Buffer
			if c.terminal {
				tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: c.columns})
				wardentest.NoError(t, err)
				_, _ = out.ReadFrom(tty) // until the terminal hangs up, which is an error
				tty.Close()
			} else {
				cmd.Stdout, cmd.Stderr = &out, &out
				wardentest.NoError(t, cmd.Start())
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out.Bytes())
			}
			if got := escape.Match(out.Bytes()); got != c.colours {
				t.Errorf("escapes: %v, want %v\n%q", got, c.colours, out.Bytes())
			}
			if got := colour.Match(out.Bytes()); got != c.colours {
				t.Errorf("colour: %v, want %v\n%q", got, c.colours, out.Bytes())
			}
			if ascii := !bytes.ContainsFunc(out.Bytes(), func(r rune) bool { return r > '~' }); c.ascii && !ascii {
				t.Errorf("not ASCII:\n%q", out.Bytes())
			}
			if _, err := os.Stat(filepath.Join(dir, "records")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestJSONLines: with --log-format json every line of ours on stderr is a JSON
// object, errors, what the holder says and what a crash of ours leaves included. Only bad usage is printed as
// text, since the format may be what is wrong.
func TestJSONLines(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		env    string
		status int
		says   string // in the msg or hint of a line
		level  string // of that line
	}{
		{"a run", []string{"--", "sleep", "2.2"}, "", 0, "watching sleep", "info"},
		{"a ladder that cannot help", []string{"--limit", "1M", "--", "sleep", "0.5"}, "", 0, "recycle skipped: ", "info"},
		{"a stop", []string{"--limit", "1M", "--at", "90%:stop", "--", "sleep", "100"}, "", 137, "stopping: SIGTERM now", "info"},
		{"a warning", []string{"--events", "/proc/events", "--", "true"}, "", 0, "cannot open events file", "warn"},
		{"a misspelt variable", []string{"--", "true"}, "RSSWARDEN_LIMT=3G", 0, "did you mean RSSWARDEN_LIMIT?", "warn"},
		{"a watcher that dies", []string{"--interval", "50ms", "--", "sleep", "2"}, "RSSWARDEN_FAULT=panic", 0, "the watcher died", "warn"},
		{"what it died of", []string{"--interval", "50ms", "--", "sleep", "2"}, "RSSWARDEN_FAULT=panic", 0, "the watcher before this one crashed: panic: ", "warn"},
		{"not found", []string{"--", "no-such-command"}, "", 127, "cannot start no-such-command", "error"},
		{"the hint", []string{"--", "no-such-command"}, "", 127, "check the name and PATH", "error"},
		{"not executable", []string{"--", "/dev/null"}, "", 126, "cannot start /dev/null", "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(faulty, append([]string{"run", "--log-format", "json"}, c.args...)...)
			cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			var errs strings.Builder
			cmd.Stderr = &errs
			_ = cmd.Run() // the status is looked at
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("exit status %d, want %d", got, c.status)
			}
			found := false
			for _, l := range strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n") {
				var line struct{ Level, Time, Msg, Hint string }
				if err := json.Unmarshal([]byte(l), &line); err != nil {
					t.Errorf("%q is no JSON: %v", l, err)
					continue
				}
				if line.Level == "" || line.Time == "" || line.Msg == "" {
					t.Errorf("%q lacks a field", l)
				}
				found = found || line.Level == c.level && (strings.Contains(line.Msg, c.says) || strings.Contains(line.Hint, c.says))
			}
			if !found {
				t.Errorf("no line of level %s says %q:\n%s", c.level, c.says, errs.String())
			}
		})
	}
	out, errs, _ := wardentest.Output(binary, "run", "--log-format", "json", "--limit", "lots", "--", "true")
	if out != "" || !strings.HasPrefix(errs, "error: --limit") {
		t.Errorf("bad usage said %q", errs)
	}
}

// TestClosedPipe: whoever reads only the first lines, as head does, ends what prints them
// as it ends any program: by SIGPIPE, without a word.
func TestClosedPipe(t *testing.T) {
	records := t.TempDir()
	_, _, _ = wardentest.Output(binary, "run", "--record", records, "--at", "none", "--", "sh", "-c", "exit 3")
	for _, args := range [][]string{{"report", records}, {"report", "--json", records}, {"limits"}, {"--help"}} {
		reader, writer, err := os.Pipe()
		wardentest.NoError(t, err)
		reader.Close()
		cmd := exec.Command(binary, args...)
		var errs strings.Builder
		cmd.Stdout, cmd.Stderr = writer, &errs
		_ = cmd.Run() // how it ended is looked at
		writer.Close()
		if how := cmd.ProcessState.String(); how != "signal: broken pipe" || errs.Len() > 0 {
			t.Errorf("%q: %s, %q", args, how, errs.String())
		}
	}
}
