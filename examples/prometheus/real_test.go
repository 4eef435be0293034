package prometheus_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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

// startPrometheus starts a Prometheus that scrapes addr each second.
func startPrometheus(t *testing.T, addr string) *promtest.Server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	rules, err := filepath.Abs("rules.yml")
	wardentest.NoError(t, err)
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n  - job_name: rsswardend\n    static_configs: [{targets: ['%s']}]\n", rules, addr)
	wardentest.NoError(t, os.WriteFile(config, []byte(text), 0o644))
	return promtest.Prometheus(t, promtest.FreeAddr(t), config)
}

// TestBoardOnRealPrometheus: every panel has something to show, of the job that was
// chosen and of all.
func TestBoardOnRealPrometheus(t *testing.T) {
	p := startPrometheus(t, strings.TrimPrefix(exporter(t).URL, "http://"))
	for _, panel := range readBoard(t).Panels {
		for _, jobid := range []string{".*", "47"} {
			for _, target := range panel.Targets {
				query := strings.NewReplacer("$jobid", jobid, "$node", ".*", "$__rate_interval", "30s", "$__range", "1m").Replace(target.Expr)
				within(t, time.Minute, fmt.Sprintf("panel %s, job %s: %s", panel.Title, jobid, query), func() bool {
					got, _ := p.Query(query)
					return len(got) > 0
				})
			}
		}
	}
}
