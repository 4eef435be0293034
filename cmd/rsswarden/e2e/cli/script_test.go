// Package cli has the command line used as a user does: scripts, shells, documents.
package cli

import (
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
	"testing"

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
			env.Setenv("PATH", filepath.Dir(binary)+":"+env.Getenv("PATH"))
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
