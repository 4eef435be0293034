package prometheus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The programs under test.
var rsswarden, rsswardend string

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &rsswarden, wardentest.Daemon: &rsswardend}))
}

// faster is how many times faster than at a site things go here: each interval of the
// configuration, each `for:` and the options of Prometheus are divided by it. The windows
// within expressions are as they are.
const faster = 15

// What is promised after that.
const (
	look       = time.Second // --interval of the daemon, which takes no less
	scrape     = 15 * time.Second / faster
	evaluation = 15 * time.Second / faster
	nearFor    = 2 * time.Minute / faster // of JobNearMemoryLimit
	wait       = 10 * time.Second / faster
	interval   = time.Minute / faster // between two messages of a group
	grace      = 30 * time.Second / faster

	// targets is after how long a Prometheus that was started knows its targets and its
	// Alertmanagers, here as at a site. Alertmanager forgets an alert that was not re-sent for
	// 4 times resend, which is a minute: it is no less here than bridges that.
	targets = 5 * time.Second
	resend  = 8 * time.Second

	// slack is for two processors that others may share.
	slack = 10 * time.Second
)

var (
	timeRE    = regexp.MustCompile(`(?m)^(\s*(?:for|group_wait|group_interval|scrape_interval|evaluation_interval): )(\S+)$`)
	addressRE = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// site is what a site has beside its Slurm, with the files of this directory.
type site struct {
	prometheus, alertmanager, daemon, exporter *promtest.Server
	told                                       *promtest.Receiver
	texts                                      string // the directory of textfiles
}

func startSite(t *testing.T) *site {
	t.Helper()
	s := &site{told: promtest.NewReceiver(t), texts: t.TempDir()}
	for d := s.texts; d != "/" && d != os.TempDir(); d = filepath.Dir(d) { // node_exporter is another user
		wardentest.NoError(t, os.Chmod(d, 0o755))
	}
	addrs := map[string]string{"127.0.0.1:9094": strings.TrimPrefix(s.told.URL, "http://")}
	for _, of := range []string{"127.0.0.1:9759", "127.0.0.1:9100", "127.0.0.1:9093"} {
		addrs[of] = promtest.FreeAddr(t)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range s.told.Notes(time.Time{}) {
				t.Log(n.At.Format("15:04:05.000"), n.Status, n.Labels)
			}
		}
	})
	dir := t.TempDir()
	for _, name := range []string{"prometheus.yml", "rules.yml", "alertmanager.yml"} {
		text := timeRE.ReplaceAllStringFunc(string(wardentest.ReadFile(t, name)), func(line string) string {
			m := timeRE.FindStringSubmatch(line)
			d, err := time.ParseDuration(m[2])
			wardentest.NoError(t, err)
			return fmt.Sprintf("%s%dms", m[1], (d / faster).Milliseconds())
		})
		text = addressRE.ReplaceAllStringFunc(text, func(of string) string {
			if addrs[of] == "" {
				t.Fatalf("%s names %s", name, of)
			}
			return addrs[of]
		})
		wardentest.Write(t, filepath.Join(dir, name), text)
	}
	s.daemon = promtest.Run(t, addrs["127.0.0.1:9759"], "/-/healthy", rsswardend, "--interval", look.String(), "--listen", addrs["127.0.0.1:9759"])
	s.exporter = promtest.NodeExporter(t, addrs["127.0.0.1:9100"], s.texts)
	s.alertmanager = promtest.Alertmanager(t, addrs["127.0.0.1:9093"], dir+"/alertmanager.yml")
	s.prometheus = promtest.Prometheus(t, promtest.FreeAddr(t), dir+"/prometheus.yml",
		"--rules.alert.resend-delay="+resend.String(), "--rules.alert.for-grace-period="+grace.String())
	return s
}

// query is what Prometheus answers now, nothing where it does not.
func (s *site) query(t *testing.T, format string, args ...any) []promtest.Series {
	t.Helper()
	got, err := s.prometheus.Query(fmt.Sprintf(format, args...))
	wardentest.NoError(t, err)
	return got
}

// near are the alerts JobNearMemoryLimit of a job in Alertmanager.
func (s *site) near(node, job string) (active []promtest.Alert) {
	all, _ := s.alertmanager.Alerts() // it may be starting
	for _, a := range all {
		if a.Labels["alertname"] == "JobNearMemoryLimit" && a.Labels["node"] == node && a.Labels["jobid"] == job && a.Status.State == "active" {
			active = append(active, a)
		}
	}
	return active
}

// within waits for a condition.
func within(t *testing.T, most time.Duration, what string, is func() bool) {
	t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > most {
			t.Fatalf("not within %v: %s", most, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%5.1f s of %4.1f s: %s", time.Since(began).Seconds(), most.Seconds(), what)
}
