//go:build endurance

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
)

// alertSite is what a site has beside its Slurm: the node's daemon and node_exporter,
// Prometheus and Alertmanager with the files of examples/prometheus as they are, but for
// the ports.
type alertSite struct {
	prometheus, alertmanager *promtest.Server
	receiver                 *promtest.Receiver // of Alertmanager
	texts                    string             // the directory of textfiles
	node                     string             // of the cluster: the daemon sees what other tests have on this machine

	mu   sync.Mutex
	seen []*seenAlert
	fail error // of asking Alertmanager, nil since it answered
}

// seenAlert is an alert that Alertmanager had.
type seenAlert struct {
	promtest.Alert
	at time.Time // when it was seen first
}

func (a *seenAlert) String() string {
	return fmt.Sprintf("%s %s of job %s (%s), there at %s: %s", a.Labels["alertname"], a.Labels["rung"], a.Labels["jobid"], a.Labels["limit"], a.at.Format(time.TimeOnly), a.Annotations["summary"])
}

func startAlertSite(t *testing.T, node string) *alertSite {
	t.Helper()
	s := &alertSite{receiver: promtest.NewReceiver(t), node: node}
	var err error
	if s.texts, err = os.MkdirTemp("", "texts"); err != nil { // whom jobs run as must reach it
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.texts) })
	if err := os.Chmod(s.texts, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	daemon, exporter, alertmanager := promtest.FreeAddr(t), promtest.FreeAddr(t), promtest.FreeAddr(t)
	ports := strings.NewReplacer("127.0.0.1:9093", alertmanager, "http://127.0.0.1:9094/", s.receiver.URL, "127.0.0.1:9100", exporter, "127.0.0.1:9759", daemon)
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
	s.alertmanager = promtest.Alertmanager(t, alertmanager, dir+"/alertmanager.yml")
	promtest.Run(t, daemon, "/metrics", filepath.Join(filepath.Dir(binary), "rsswardend"), "--listen", daemon)
	promtest.NodeExporter(t, exporter, s.texts)
	s.prometheus = promtest.Prometheus(t, promtest.FreeAddr(t), dir+"/prometheus.yml")
	go s.watch(t)
	return s
}

// watch asks Alertmanager each second what it has, until the test ends.
func (s *alertSite) watch(t *testing.T) {
	known := map[string]bool{}
	for t.Context().Err() == nil {
		all, err := s.alertmanager.Alerts()
		s.mu.Lock()
		s.fail = err
		for _, a := range all {
			// One that fires anew is another.
			if key := fmt.Sprint(a.Labels, a.StartsAt); s.ours(a.Labels) && !known[key] {
				known[key] = true
				s.seen = append(s.seen, &seenAlert{a, time.Now()})
			}
		}
		s.mu.Unlock()
		time.Sleep(time.Second)
	}
}

func (s *alertSite) ours(labels map[string]string) bool {
	return labels["node"] == s.node || labels["node"] == ""
}

// notes are what the receiver was told.
func (s *alertSite) notes() []promtest.Note {
	return slices.DeleteFunc(s.receiver.Notes(time.Time{}), func(n promtest.Note) bool { return !s.ours(n.Labels) })
}

// alerts are those that were there, of one job or of all.
func (s *alertSite) alerts(t *testing.T, job string) (all []*seenAlert) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		t.Errorf("Alertmanager does not answer: %v", s.fail)
	}
	for _, a := range s.seen {
		if job == "" || a.Labels["jobid"] == job {
			all = append(all, a)
		}
	}
	return all
}

// value is what a query yields, of several series the first; ok is false for none.
func (s *alertSite) value(t *testing.T, query string) (v float64, ok bool) {
	t.Helper()
	all, err := s.prometheus.Query(query)
	if err != nil {
		t.Error(err)
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[0].Value, true
}
