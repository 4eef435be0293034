package main_test

import (
	"fmt"
	"io"
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

	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
)

// nodeExporter starts a real node_exporter on a directory, and returns what scrapes it.
func nodeExporter(t *testing.T, dir string) func() map[string]*dto.MetricFamily {
	t.Helper()
	s := promtest.NodeExporter(t, promtest.FreeAddr(t), dir)
	return func() map[string]*dto.MetricFamily {
		t.Helper()
		text, err := s.Text("/metrics")
		if err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
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

// shownFiles are the files that node_exporter reads: others are being written.
func shownFiles(dir string) []string {
	names, _ := filepath.Glob(dir + "/*.prom")
	return names
}

// promFiles is all that there is in a directory.
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
