package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// get reads a page.
func (d *instance) get(path string) (status int, body string) {
	d.t.Helper()
	resp, err := http.Get("http://" + d.address + path)
	if err != nil {
		d.t.Fatalf("%v: %s", err, d.said())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// values are the series of a node in a text, by "name scope jobid step".
func values(t *testing.T, text, node string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("not metrics: %v\n%s", err, text)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["node"] == node {
				key := strings.Join(strings.Fields(strings.Join([]string{name, labels["scope"], labels["jobid"], labels["step"]}, " ")), " ")
				out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// TestRealCgroups: a job of real cgroups and processes, seen by a scrape and in the
// textfile, until it ends.
func TestRealCgroups(t *testing.T) {
	tree := rsstest.NewSlurmTree(t)
	task := tree.Job(4711, 200*rss.MiB)
	for range 3 {
		sleeper(t, task)
	}
	eater := rsstest.StartEater(t)
	task.Join(eater.PID)
	if !eater.Anon(150 * rss.MiB) {
		t.Fatal("the eater died")
	}
	text := t.TempDir()
	d := start(t, "--textfile", text)
	_, page := d.get("/metrics")
	got := values(t, page, tree.Node)
	if n := got["rsswarden_processes 4711 batch"]; n != 4 {
		t.Errorf("%v processes, want 4", n)
	}
	for _, scope := range []string{"job 4711", "step 4711 batch"} {
		if v := got["rsswarden_memory_limit_bytes "+scope]; v != 200<<20 {
			t.Errorf("limit %v of %s", v, scope)
		}
		if v := got["rsswarden_memory_unreclaimable_bytes "+scope]; v < 150<<20 || v > 160<<20 {
			t.Errorf("%v bytes of %s", v, scope)
		}
		if v := got["rsswarden_limit_ratio "+scope]; v < 0.75 || v > 0.8 {
			t.Errorf("ratio %v of %s", v, scope)
		}
	}
	b, err := os.ReadFile(filepath.Join(text, "rsswardend.prom"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(values(t, string(b), tree.Node)); n != len(got) {
		t.Errorf("%d series in the textfile, %d in the scrape", n, len(got))
	}
	if status, body := d.get("/-/healthy"); status != 200 || !strings.Contains(body, "healthy") {
		t.Errorf("health: %d %q", status, body)
	}
	if status, body := d.get("/"); status != 200 || !strings.Contains(body, "/metrics") {
		t.Errorf("landing page: %d %q", status, body)
	}
	// A hang-up is nothing to it.
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// Memory that is given to the job while it runs (scontrol update).
	for _, dir := range []string{filepath.Dir(filepath.Dir(task.Dir)), filepath.Dir(task.Dir)} {
		if err := os.WriteFile(dir+"/memory.limit_in_bytes", []byte("314572800"), 0); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the new limit is told", func() bool {
		_, page := d.get("/metrics")
		return values(t, page, tree.Node)["rsswarden_memory_limit_bytes step 4711 batch"] == 300<<20
	})
	if code := d.end(); code != 0 {
		t.Errorf("status %d: %s", code, d.said())
	}
	if left, _ := filepath.Glob(filepath.Join(text, "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestSecondDaemon: one that cannot listen leaves the file of the one that does.
func TestSecondDaemon(t *testing.T) {
	dir := t.TempDir()
	first := start(t, "--textfile", dir)
	name := filepath.Join(dir, "rsswardend.prom")
	var was os.FileInfo
	until(t, "a file", func() (ok bool) { was, _ = os.Stat(name); return was != nil })
	out, err := exec.Command(binary, "--interval", "1h", "--textfile", dir, "--listen", first.address).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(string(out), "address already in use\nhint: one rsswardend a node is enough") {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
	if first.end() != exitOK {
		t.Error(first.said())
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its own file, at its end: %v", err)
	}
}

// TestCannotStart: what keeps it from starting is told with what to do about it.
func TestCannotStart(t *testing.T) {
	config := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(config, []byte("tls_server_confg: {cert_file: x}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--listen", "192.0.2.1:9759"}, "cannot assign requested address\nhint: no interface of this node has that address"},
		{[]string{"--web.config.file", config}, "field tls_server_confg not found in type web.Config\nhint: it is YAML, "},
		{[]string{"--web.config.file", config + ".none"}, "no such file or directory\nhint: it is YAML, "},
	} {
		out, err := exec.Command(binary, append(test.args, "--interval", "1h")...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(string(out), test.says) {
			t.Errorf("%q: %v, %s", test.args, err, out)
		}
	}
}

// TestComplains: what does not work is said once, until it has worked again.
func TestComplains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d := newDaemon(settings{node: "n1", textfile: dir, interval: time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
	defer d.close()
	for _, there := range []bool{true, false, false, false, true, false, false} {
		if there {
			_ = os.Mkdir(dir, 0o755)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		d.look()
	}
	if n := strings.Count(log.String(), "cannot write to "+dir); n != 2 {
		t.Errorf("told %d times, want 2:\n%s", n, log.String())
	}
}

func TestUsage(t *testing.T) {
	full := t.TempDir()
	if err := os.Mkdir(filepath.Join(full, "oom.jsonl"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		env  string
		says string
	}{
		{[]string{"--listen", "7"}, "", "not an address"},
		{[]string{"--listen", "none"}, "", "nothing to tell"},
		{[]string{"--interval", "1ms"}, "", "too short"},
		{[]string{"--interval", "10"}, "", "error: --interval \"10\" has no unit\nhint: give the number a unit: --interval 10s\n"},
		{[]string{"--interval", "soon"}, "", "error: --interval \"soon\" is not a duration\nhint: give a number with a unit"},
		{[]string{"--listen"}, "", "error: option --listen needs a value\n"},
		{[]string{"--textfile", "/none/such"}, "", "not a directory"},
		{[]string{"--records", "/etc/passwd"}, "", "not a directory"},
		{[]string{"--textfile", "/proc"}, "", "no file can be made in /proc"},
		{[]string{"--records", "/proc"}, "", "no file can be made in /proc"},
		{[]string{"--records", full}, "", "cannot write what is there"},
		{[]string{"--node", "a\"b"}, "", "not the name of a node"},
		{[]string{"--nonsense"}, "", "error: unknown option --nonsense\n"},
		{[]string{"--port", "9759"}, "", "error: unknown option --port\nhint: did you mean --listen?\n"},
		{[]string{"--web.listen-address=:9759"}, "", "error: unknown option --web.listen-address\nhint: did you mean --listen?\n"},
		{[]string{"word"}, "", "unexpected argument"},
		{nil, "SLURM_JOB_ID=7", "this is job 7"},
	} {
		cmd := exec.Command(binary, test.args...)
		cmd.Env = append(environ(), test.env)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), test.says) || !strings.Contains(string(out), "\nhint: ") {
			t.Errorf("%q: %v, %s", test.args, err, out)
		}
	}
	for _, option := range []string{"--version", "--help"} {
		if out, err := exec.Command(binary, option).CombinedOutput(); err != nil || !bytes.Contains(out, []byte(programName)) {
			t.Errorf("%s: %v, %s", option, err, out)
		}
	}
}
