package promtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// plainUser is the account that node_exporter runs as: at sites it is not the user of the job
// either.
const plainUser = 65534

// NodeExporter starts a node_exporter that exports the textfiles of dir and nothing
// else. As root it is another user's.
func NodeExporter(t testing.TB, addr, dir string) *Server {
	t.Helper()
	s := &Server{Addr: addr, ready: "/metrics", argv: []string{
		"prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory=" + dir, "--web.listen-address=" + addr,
	}}
	if os.Geteuid() == 0 {
		s.cred = &syscall.Credential{Uid: plainUser, Gid: plainUser}
	}
	return run(t, s)
}

// Prometheus starts a Prometheus with a configuration, and more options.
func Prometheus(t testing.TB, addr, config string, more ...string) *Server {
	t.Helper()
	return Run(t, addr, "/-/ready", append([]string{
		"prometheus", "--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(t.TempDir(), "data"), "--web.listen-address=" + addr, "--log.level=warn",
	}, more...)...)
}

// Alertmanager starts an Alertmanager with a configuration, and without others of a
// cluster.
func Alertmanager(t testing.TB, addr, config string) *Server {
	t.Helper()
	return Run(t, addr, "/-/ready",
		"prometheus-alertmanager", "--config.file="+config, "--storage.path="+t.TempDir(), "--web.listen-address="+addr, "--cluster.listen-address=", "--log.level=error")
}

// Series is one of an instant vector.
type Series struct {
	Labels map[string]string
	Value  float64
}

// Query asks a Prometheus for an instant vector.
func (s *Server) Query(query string) ([]Series, error) {
	var got struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := s.fetch("/api/v1/query?query="+url.QueryEscape(query), &got); err != nil || got.Error != "" {
		return nil, fmt.Errorf("%s: %s, %w", query, got.Error, err)
	}
	var all []Series
	for _, r := range got.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		all = append(all, Series{r.Metric, v})
	}
	return all, nil
}

// Alert is one that an Alertmanager has.
type Alert struct {
	Labels           map[string]string
	Annotations      map[string]string
	StartsAt, EndsAt time.Time
	Status           struct {
		State       string   // active, suppressed
		InhibitedBy []string // fingerprints
	}
}

// Alerts asks an Alertmanager what fires, inhibited or not.
func (s *Server) Alerts() (all []Alert, err error) {
	return all, s.fetch("/api/v2/alerts", &all)
}

// Text gets a page.
func (s *Server) Text(path string) (string, error) {
	resp, err := http.Get(s.URL() + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

func (s *Server) fetch(path string, into any) error {
	text, err := s.Text(path)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}
