package main_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// TestJSONLines: with --log-format json every line of ours on stderr is a JSON
// object, errors, what the holder says and what a crash of ours leaves included. Only bad usage is told as
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
		{"a run", []string{"--", "true"}, "", 0, "watching true", "info"},
		{"a ladder that cannot help", []string{"--limit", "1M", "--", "sleep", "0.5"}, "", 0, "is of no use", "info"},
		{"a stop", []string{"--limit", "1M", "--at", "90%:stop", "--", "sleep", "100"}, "", 137, "stopping the command", "info"},
		{"a warning", []string{"--events", "no/such/folder/events", "--", "true"}, "", 0, "cannot open events file", "warn"},
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
	out, errs, _ := output([]string{binary, "run", "--log-format", "json", "--limit", "lots", "--", "true"})
	if out != "" || !strings.HasPrefix(errs, "error: --limit") {
		t.Errorf("bad usage said %q", errs)
	}
}
