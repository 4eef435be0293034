package torch

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// leakingApp keeps 1 MiB a request, in each worker for itself.
//
//go:embed testdata/leakingapp.py
var leakingApp string

// poolRun is what a web server went through.
type poolRun struct {
	pids   map[string]bool // of workers that answered
	failed int             // requests without an answer
	peak   rss.Bytes       // summed RSS of its tree
	events map[event.Name][]map[string]any
	stderr string
}

// serve runs gunicorn with three workers under rsswarden and asks it one request
// after the other.
func serve(t *testing.T, requests int, options ...string) poolRun {
	t.Helper()
	dir := t.TempDir()
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "leak.py"), []byte(leakingApp), 0o644))
	socket, list := filepath.Join(dir, "socket"), filepath.Join(dir, "events")
	args := append([]string{"run", "--events", list, "--limit", "400M", "--accounting", "rss"}, options...)
	args = append(args, "--", "gunicorn", "--workers", "3", "--bind", "unix:"+socket, "--worker-tmp-dir", dir,
		"--chdir", dir, "--log-level", "warning", "leak:app")
	cmd := exec.Command(binary, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	wardentest.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }() // it has ended, where all is well
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	ask := func() (string, error) {
		r, err := client.Get("http://pool/")
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", r.Status, b)
		}
		return string(b), err
	}
	run := poolRun{pids: map[string]bool{}}
	wardentest.Until(t, "the server answers", func() bool {
		_, err := ask()
		return err == nil
	})
	for i := range requests {
		time.Sleep(2 * time.Millisecond) // the load is the test's to choose
		pid, err := ask()
		if err != nil {
			t.Logf("request %d: %v", i, err)
			run.failed++
			continue
		}
		run.pids[pid] = true
	}
	wardentest.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v\n%s", err, stderr.String())
	}
	run.stderr, run.events = stderr.String(), wardentest.Events(t, list)
	exits := run.events[event.NameExit]
	if len(exits) != 1 {
		t.Fatalf("%d exit events\n%s", len(exits), run.stderr)
	}
	run.peak = rss.Bytes(exits[0]["peaks"].(map[string]any)["rss_bytes"].(float64))
	return run
}

// TestPoolOfWebWorkers: a real gunicorn whose workers leak crosses the limit; its
// workers recycled one at a time by TERM, it stays below and answers every
// request.
func TestPoolOfWebWorkers(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("gunicorn", "--version").CombinedOutput(); err != nil {
		t.Skipf("no gunicorn: %v %s", err, out)
	}
	const limit, requests = 400 * rss.MiB, 500
	bare := serve(t, requests, "--at", "none")
	if bare.peak < limit || len(bare.pids) != 3 || bare.failed > 0 {
		t.Errorf("without rules: peak %v, %d workers, %d requests failed: the test proves nothing", bare.peak, len(bare.pids), bare.failed)
	}
	run := serve(t, requests, "--at", "none", "--at", "60%:recycle", "--worker-signal", "TERM", "--worker-match", "gunicorn .*leak:app")
	recycled := wardentest.Worked(run.events[event.NameOutcome])
	t.Logf("bare peak %v; recycled %d workers, peak %v of %v, %d of %d requests failed, %d workers answered\n%s",
		bare.peak, recycled, run.peak, limit, run.failed, requests, len(run.pids), wardentest.Said(run.stderr))
	if run.failed > 0 || run.peak >= limit || recycled < 3 || len(run.pids) < 3+3 {
		t.Errorf("%d requests failed, peak %v, %d recycled, %d workers answered\n%s", run.failed, run.peak, recycled, len(run.pids), run.stderr)
	}
}

// forkingPool keeps workers that it forks, so that their command line is its own,
// and is larger than any of them. argv: how many it replaces before it ends.
//
//go:embed testdata/forkingpool.py
var forkingPool string

// TestPoolOwnerIsSpared: the pattern matches the owner of the pool as its workers,
// and the shell around it; and no worker is ever larger.
func TestPoolOwnerIsSpared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, list := filepath.Join(dir, "pool.py"), filepath.Join(dir, "events")
	wardentest.NoError(t, os.WriteFile(script, []byte(forkingPool), 0o600))
	for name, shell := range map[string]string{
		"alone": "%s %s 1; exit $?", "beside another": "sleep 20 & %s %s 1; status=$?; kill %%1; exit $status",
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(list)
			cmd := exec.Command(binary, "run", "--events", list, "--limit", "240M", "--accounting", "noshared", "--at", "none",
				"--at", "50%:recycle", "--worker-signal", "TERM", "--worker-match", "pool.py", "--interval", "20ms",
				"--", "bash", "-c", fmt.Sprintf(shell, python, script))
			cmd.Env = wardentest.Env()
			stdout, stderr, err := wardentest.Run(cmd)
			if err != nil || stdout != "finished\n" {
				t.Fatalf("%v, %q\n%s", err, stdout, stderr)
			}
			if n := wardentest.Worked(wardentest.Events(t, list)[event.NameOutcome]); n < 1 || !strings.Contains(stderr, "recycled worker ") {
				t.Errorf("recycled %d workers\n%s", n, stderr)
			}
		})
	}
}

// TestPythonPools: the lines, the report and the last word about a job with a pool of Python name
// its pool workers and the pool, and where none can be recycled why.
func TestPythonPools(t *testing.T) {
	t.Parallel()
	wardentest.NeedPython(t)
	job := []string{python, wardentest.Path(t, "examples/pools/tokens.py"), "--tasks", "1500", "--ms", "10", "--pool"}
	for _, c := range []struct {
		pool     string
		recycled bool
		says     string
		report   []string
	}{
		{"Pool", true, "recycled worker", []string{" pool workers (multiprocessing.Pool) ", "  pool worker ", "in pool worker", "what tasks call"}},
		{"ProcessPoolExecutor", false, "recycle skipped: its ProcessPoolExecutor would fork", []string{" pool workers (ProcessPoolExecutor) "}},
	} {
		t.Run(c.pool, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			events := filepath.Join(dir, "events")
			args := append([]string{"run", "--limit", "300M", "--record", filepath.Join(dir, "record"), "--events", events, "--"}, job...)
			cmd := exec.Command(binary, append(args, c.pool)...)
			cmd.Env = wardentest.Env("HOME=" + dir)
			out, stderr, err := wardentest.Run(cmd)
			wardentest.NoError(t, err)
			wardentest.Says(t, out, "1500 tasks")
			wardentest.Says(t, stderr, c.says)
			n := 0
			for _, e := range wardentest.Events(t, events)[event.NameLoader] {
				if e["what"] == string(event.LoaderRecycled) {
					n++
				}
			}
			if c.recycled != (n > 0) {
				t.Errorf("%d workers recycled", n)
			}
			full := exec.Command(binary, "report", filepath.Join(dir, "record"), "--full")
			full.Env = cmd.Env
			text, more, err := wardentest.Run(full)
			if err != nil {
				t.Fatal(err, more)
			}
			wardentest.Says(t, text, c.report...)
			if strings.Contains(text, "num_workers") || strings.Contains(text, "Dataset") {
				t.Errorf("words of a DataLoader:\n%s", text)
			}
		})
	}
}
