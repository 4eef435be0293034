//go:build endurance

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// alertSite is what a site has beside its Slurm: the node's daemon and node_exporter,
// Prometheus and Alertmanager with the files of examples/prometheus as they are, but for
// the ports.
type alertSite struct {
	t                        *testing.T
	prometheus, alertmanager string // their URLs
	texts                    string // the directory of textfiles

	mu   sync.Mutex
	seen []*seenAlert
	sent []string // what Alertmanager's receiver was told
	fail error    // of asking Alertmanager, since it answered last
}

// seenAlert is an alert that Alertmanager had as active.
type seenAlert struct {
	Fingerprint string
	Labels      map[string]string
	Annotations map[string]string
	StartsAt    time.Time
	at          time.Time // when it was seen first
}

func (a *seenAlert) String() string {
	return fmt.Sprintf("%s %s of job %s (%s), active at %s: %s", a.Labels["alertname"], a.Labels["rung"], a.Labels["jobid"], a.Labels["limit"], a.at.Format(time.TimeOnly), a.Annotations["summary"])
}

func startAlertSite(t *testing.T) *alertSite {
	t.Helper()
	s := &alertSite{t: t}
	var err error
	if s.texts, err = os.MkdirTemp("", "texts"); err != nil { // whom jobs run as must reach it
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.texts) })
	if err := os.Chmod(s.texts, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(s)
	t.Cleanup(receiver.Close)
	daemon, exporter, prometheus, alertmanager := freePort(t), freePort(t), freePort(t), freePort(t)
	ports := strings.NewReplacer("127.0.0.1:9093", alertmanager, "http://127.0.0.1:9094/", receiver.URL, "127.0.0.1:9100", exporter, "127.0.0.1:9759", daemon)
	dir := t.TempDir()
	for _, name := range []string{"prometheus.yml", "rules.yml", "alertmanager.yml"} {
		b, err := os.ReadFile("../../examples/prometheus/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(ports.Replace(string(b))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.alertmanager, s.prometheus = "http://"+alertmanager, "http://"+prometheus
	s.program("prometheus-alertmanager", s.alertmanager+"/-/ready", "--config.file="+dir+"/alertmanager.yml", "--storage.path="+dir+"/am", "--web.listen-address="+alertmanager, "--cluster.listen-address=", "--log.level=error")
	s.program(filepath.Join(filepath.Dir(binary), "rsswardend"), "http://"+daemon+"/metrics", "--listen", daemon)
	s.program("prometheus-node-exporter", "http://"+exporter+"/metrics", "--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+s.texts, "--web.listen-address="+exporter)
	s.program("prometheus", s.prometheus+"/-/ready", "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+prometheus, "--log.level=warn")
	go s.watch()
	return s
}

// program runs one of them until the test ends.
func (s *alertSite) program(name, answers string, args ...string) {
	s.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		s.t.Skipf("%v: .ci/setup test installs it", err)
	}
	cmd := exec.Command(path, args...)
	var said lines
	cmd.Env, cmd.Stdout, cmd.Stderr = withoutSlurm(), &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s said:\n%s", name, said.String())
		}
	})
	soon(s.t, name+" answers", func() bool {
		resp, err := http.Get(answers)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
}

// ServeHTTP is Alertmanager's receiver.
func (s *alertSite) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var got struct {
		Alerts []struct {
			Status string
			Labels map[string]string
		}
	}
	_ = json.NewDecoder(req.Body).Decode(&got)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range got.Alerts {
		s.sent = append(s.sent, fmt.Sprintf("%s %s %s %s", time.Now().Format(time.TimeOnly), a.Status, a.Labels["alertname"], a.Labels["jobid"]))
	}
}

// watch asks Alertmanager each second what is active, until the test ends.
func (s *alertSite) watch() {
	known := map[string]bool{}
	for s.t.Context().Err() == nil {
		var all []*seenAlert
		err := fetchJSON(s.alertmanager+"/api/v2/alerts?active=true&silenced=true&inhibited=true", &all)
		s.mu.Lock()
		s.fail = err
		for _, a := range all {
			// One that fires anew is another.
			if key := a.Fingerprint + a.StartsAt.String(); !known[key] {
				known[key] = true
				a.at = time.Now()
				s.seen = append(s.seen, a)
			}
		}
		s.mu.Unlock()
		time.Sleep(time.Second)
	}
}

// alerts are those that were active, of one job or of all.
func (s *alertSite) alerts(job string) (all []*seenAlert) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		s.t.Errorf("Alertmanager does not answer: %v", s.fail)
	}
	for _, a := range s.seen {
		if job == "" || a.Labels["jobid"] == job {
			all = append(all, a)
		}
	}
	return all
}

// told is what the receiver was told.
func (s *alertSite) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.sent...)
}

// value is what a query yields, of several series the first; ok is false for none.
func (s *alertSite) value(query string) (v float64, ok bool) {
	s.t.Helper()
	var got struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := fetchJSON(s.prometheus+"/api/v1/query?query="+url.QueryEscape(query), &got); err != nil {
		s.t.Errorf("%s: %v", query, err)
		return 0, false
	}
	if len(got.Data.Result) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(fmt.Sprint(got.Data.Result[0].Value[1]), 64)
	return v, err == nil
}

func fetchJSON(from string, into any) error {
	resp, err := http.Get(from)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	return err
}
