package prometheus_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/metrics"
)

// exporter serves every metric of the table, of two jobs. What counts grows.
func exporter(t *testing.T) *httptest.Server {
	var scrapes atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := float64(scrapes.Add(1))
		set := metrics.NewSet()
		for _, at := range []metrics.Place{{JobID: "46", Step: "0", Node: "n1"}, {JobID: "47", Step: "batch", Node: "n2"}} {
			for _, m := range metrics.All {
				values := make([]string, len(m.Labels))
				for i, l := range m.Labels {
					if values[i] = "1.0"; l.Values != nil {
						values[i] = l.Values[0]
					}
				}
				v := 0.5
				if m.Type == metrics.Counter {
					v = n
				}
				set.Put(m, at, v, values...)
			}
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(set.Text())
	}))
	t.Cleanup(s.Close)
	return s
}

// startPrometheus starts a Prometheus that scrapes addr each second, and returns its
// address.
func startPrometheus(t *testing.T, addr string) string {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skipf("%v: apt-get install prometheus", err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	rules, err := filepath.Abs("rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n  - job_name: rsswardend\n    static_configs: [{targets: ['%s']}]\n", rules, addr)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := l.Addr().String()
	l.Close()
	cmd := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+own, "--log.level=warn")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return "http://" + own
}

// ask runs a query and returns how many series it yields.
func ask(t *testing.T, base, query string) (n int, err error) {
	t.Helper()
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var got struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return 0, fmt.Errorf("%s: %w", data, err)
	}
	if got.Status != "success" {
		return 0, fmt.Errorf("%s: %s", query, got.Error)
	}
	return len(got.Data.Result), nil
}

// TestBoardOnRealPrometheus: every panel has something to show, of the job that was
// chosen and of all.
func TestBoardOnRealPrometheus(t *testing.T) {
	base := startPrometheus(t, strings.TrimPrefix(exporter(t).URL, "http://"))
	within := time.Now().Add(time.Minute)
	for _, p := range readBoard(t).Panels {
		for _, jobid := range []string{".*", "47"} {
			for _, target := range p.Targets {
				query := strings.NewReplacer("$jobid", jobid, "$node", ".*", "$__rate_interval", "30s", "$__range", "1m").Replace(target.Expr)
				for {
					n, err := ask(t, base, query)
					if n > 0 {
						break
					}
					if time.Now().After(within) {
						t.Fatalf("panel %s, job %s: nothing, %v\n%s", p.Title, jobid, err, query)
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
		}
	}
}
