package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/creack/pty"
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
		escapes  bool
		colours  bool
	}{
		{"terminal", []string{"TERM=xterm-256color"}, true, true, true},
		{"NO_COLOR", []string{"TERM=xterm-256color", "NO_COLOR=1"}, true, true, false},
		{"TERM=dumb", []string{"TERM=dumb"}, true, false, false},
		{"pipe", []string{"TERM=xterm-256color"}, false, false, false},
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
				tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
				if err != nil {
					t.Fatal(err)
				}
				_, _ = out.ReadFrom(tty) // until the terminal hangs up, which is an error
				tty.Close()
			} else {
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out.Bytes())
			}
			if got := escape.Match(out.Bytes()); got != c.escapes {
				t.Errorf("escapes: %v, want %v\n%q", got, c.escapes, out.Bytes())
			}
			if got := colour.Match(out.Bytes()); got != c.colours {
				t.Errorf("colour: %v, want %v\n%q", got, c.colours, out.Bytes())
			}
			if _, err := os.Stat(filepath.Join(dir, "records")); err != nil {
				t.Error(err)
			}
		})
	}
}
