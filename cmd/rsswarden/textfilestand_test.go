package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// nodeExporter starts a real node_exporter on a directory, and returns what scrapes it.
func nodeExporter(t *testing.T, dir string) func() map[string]*dto.MetricFamily {
	t.Helper()
	program, err := exec.LookPath("prometheus-node-exporter")
	if err != nil {
		t.Skip("prometheus-node-exporter is not installed")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	cmd := exec.Command(program, "--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+dir, "--web.listen-address="+at)
	var log bytes.Buffer
	cmd.Stderr = &log
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}} // as at sites: another user
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("node_exporter said:\n%s", &log)
		}
	})
	scrape := func() (map[string]*dto.MetricFamily, error) {
		answer, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s, %w\n%s", answer.Status, err, text)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		return parser.TextToMetricFamilies(bytes.NewReader(text))
	}
	waitFor(t, "node_exporter", func() bool { _, err := scrape(); return err == nil })
	return func() map[string]*dto.MetricFamily {
		t.Helper()
		families, err := scrape()
		if err != nil {
			t.Fatal(err)
		}
		return families
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// textRun is a run with --textfile that goes on until its stdin ends.
type textRun struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr lines
	events string
}

func startTextRun(t *testing.T, dir string, env []string, before []string, options ...string) *textRun {
	t.Helper()
	r := &textRun{events: filepath.Join(t.TempDir(), "events")}
	args := slices.Concat(before, []string{binary, "run", "--record", "none", "--events", r.events, "--textfile", dir}, options)
	// It takes 16 MiB at each byte that it reads.
	const grows = `import mmap, sys
held = []
while sys.stdin.buffer.raw.read(1):
    held.append(mmap.mmap(-1, 16 << 20))
    held[-1].write(bytes(16 << 20))`
	r.cmd = exec.Command(args[0], append(args[1:], "--", python, "-c", grows)...)
	r.cmd.Env, r.cmd.Stderr = append(withoutSlurm(), env...), &r.stderr
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.stdin.Close()
		_ = r.cmd.Wait()
	})
	return r
}

func (r *textRun) end(t *testing.T) {
	t.Helper()
	r.stdin.Close()
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, r.stderr.String())
	}
}

func promFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// killWhole ends a run as SIGKILL to a whole job does: nobody of it can tidy up.
func killWhole(t *testing.T, r *textRun) {
	t.Helper()
	holder := r.cmd.Process.Pid
	if err := syscall.Kill(holder, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(holder)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range append(strings.Fields(string(out)), fmt.Sprint(holder)) {
		var pid int
		if _, err := fmt.Sscan(word, &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.cmd.Wait()
}

// eventText is what an events file holds, which may not be there yet.
func eventText(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
