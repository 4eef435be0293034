// Package cli has the command line used as a user does: scripts, shells, documents.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, faulty the same with faults that can be asked for,
// ofSite one whose site file is etc/rsswarden.toml of its working directory.
var binary, faulty, ofSite string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Faults: &faulty, wardentest.Daemon: new(string), wardentest.Site: &ofSite}))
}

// interpreter is what python3 runs in the end: it may be a script that starts fifty processes to
// find that out, at each call.
var interpreter = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return python
	}
	return strings.TrimSpace(string(out))
})

// TestScripts runs the command line as a user does: testdata/script holds one
// file a feature. A job of Slurm that the tests themselves may run in is
// hidden from them.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *golden.Update,
		Condition: func(cond string) (bool, error) {
			if cond != "yama" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
			return err == nil && b[0] != '0', nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+":"+filepath.Dir(interpreter())+":"+env.Getenv("PATH"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("TMPDIR", env.WorkDir)
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
	})
}

// TestSiteScripts runs the command line with a site's file. It belongs to root, so only
// root can make one.
func TestSiteScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file that a site could have made")
	}
	dir := t.TempDir()
	wardentest.NoError(t, os.Link(ofSite, filepath.Join(dir, "rsswarden")))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/site",
		RequireExplicitExec: true,
		UpdateScripts:       *golden.Update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", dir+":"+env.Getenv("PATH"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("TMPDIR", env.WorkDir)
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
	})
}

// TestDoctorTriesAlerts: each receiver that a run would have gets one alert that says
// that nothing is wrong, and the result is printed without a secret.
func TestDoctorTriesAlerts(t *testing.T) {
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/no/s3cret" {
			http.Error(w, "no "+req.Header.Get("Authorization"), http.StatusForbidden)
			return
		}
		b, _ := io.ReadAll(req.Body)
		got <- req.URL.Path + " " + string(b)
	}))
	defer server.Close()
	try := func(alerts string, args ...string) (checks []doctor.Check) {
		t.Helper()
		cmd := exec.Command(binary, slices.Concat([]string{"doctor", "--json"}, args, []string{"/bin/true"})...)
		cmd.Env = wardentest.Env("RSSWARDEN_ALERT=" + alerts)
		out, _ := cmd.Output() // the status is about memory
		var r doctor.Report
		if err := json.Unmarshal(out, &r); err != nil || strings.Contains(string(out), "s3cret") {
			t.Fatalf("%v\n%s", err, out)
		}
		return slices.DeleteFunc(r.Checks, func(c doctor.Check) bool { return c.Name != doctor.NameAlert })
	}
	all := strings.Join([]string{server.URL, server.URL + "/hook", server.URL + "/no/s3cret token=s3cret-token", "http://" + promtest.FreeAddr(t) + "/x"}, "\n")
	if checks := try(all); len(checks) != 0 || len(got) != 0 {
		t.Errorf("without --try-alerts: %+v, %d requests", checks, len(got))
	}
	checks := try(all, "--try-alerts")
	want := []struct {
		status doctor.Status
		says   string
	}{
		{doctor.OK, "took a test alert, RsswardenTest, which ends by itself"}, {doctor.OK, "/… took a test alert, and that it is over"},
		{doctor.Off, "/…: HTTP status 403: no Bearer ***"}, {doctor.Off, "/…: connection refused"},
	}
	for i, w := range want {
		if len(checks) != len(want) || checks[i].Status != w.status || !strings.Contains(checks[i].Found, w.says) {
			t.Fatalf("%+v", checks)
		}
	}
	var told []string
	for len(got) > 0 {
		path, body, _ := strings.Cut(<-got, " ")
		var m alert.Message
		if path == alert.APIPath {
			wardentest.Says(t, body, `"alertname":"RsswardenTest"`)
		} else if err := json.Unmarshal([]byte(body), &m); err != nil || m.Alert != "RsswardenTest" || !strings.Contains(m.Text, "nothing is wrong") {
			t.Errorf("%v: %s", err, body)
		}
		told = append(told, path+" "+m.Status)
	}
	if want := []string{alert.APIPath + " ", "/hook firing", "/hook resolved"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if checks := try("", "--try-alerts"); len(checks) != 1 || checks[0].Status != doctor.Off || !strings.Contains(checks[0].Do, "RSSWARDEN_ALERT") {
		t.Errorf("without a receiver: %+v", checks)
	}
}

// TestNoRoomKnowsTheOptions: with too few descriptors for Go's runtime the
// command line is parsed in C, which has to know the options without a value.
func TestNoRoomKnowsTheOptions(t *testing.T) {
	// TestReference holds this file to the options; --help leaves some out.
	b := wardentest.ReadFile(t, "../../../../docs/reference/commands.md")
	_, text, _ := strings.Cut(string(b), "\n### rsswarden run\n")
	text, _, _ = strings.Cut(text, "\n### ")
	options := regexp.MustCompile("(?m)^- `(--[a-z-]+)( [A-Z]+)?`").FindAllStringSubmatch(text, -1)
	if len(options) < 25 {
		t.Fatalf("options %q in\n%s", options, text)
	}
	for _, o := range options {
		if strings.HasPrefix(o[1], "--help") {
			continue // it runs nothing
		}
		args := []string{"-c", `ulimit -n 8; exec "$@"`, "sh", binary, "run", o[1]}
		if o[2] != "" {
			args = append(args, "value")
		}
		err := exec.Command("sh", append(args, "sh", "-c", "exit 5")...).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Errorf("%s: %v, want the command's exit status 5", o[1], err)
		}
	}
}

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
