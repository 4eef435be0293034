// Package prometheus_test holds what a site copies to what rsswarden exports.
package prometheus_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The programs under test.
var rsswarden, rsswardend string

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &rsswarden, wardentest.Daemon: &rsswardend}))
}

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
				within(t, rsstest.Patience, fmt.Sprintf("panel %s, job %s: %s", panel.Title, jobid, query), func() bool {
					got, _ := p.Query(query)
					return len(got) > 0
				})
			}
		}
	}
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

const (
	limit = 256 * rss.MiB // of the jobs that near it
	small = 64 * rss.MiB  // of others
	full  = 236 * rss.MiB // 92 % of that, and 96 with a rsswarden beside it
)

// TestEndToEnd: for real jobs near their limit, exported by the daemon and by the textfile
// of their run, a real Prometheus and Alertmanager with the files of this directory send
// notifications, in the time that the rules promise, and again when they are over. A
// restart of any part loses none and resolves none. Beside
// them a job that only page cache brings to its limit raises no alert.
func TestEndToEnd(t *testing.T) {
	tree := rsstest.NewSlurmTree(t)
	s := startSite(t)
	eater := func(job int, limit rss.Bytes) *rsstest.Eater {
		task := tree.Job(job, limit)
		e := rsstest.StartEater(t)
		task.Join(e.PID)
		return e
	}
	began := time.Now()
	alone := eater(101, limit)
	run := rsstest.StartEaterBy(t, []string{"SLURM_JOB_ID=102", "SLURMD_NODENAME=" + tree.Node, "RSSWARDEN_RUNTIME=" + runtimeDir(t)},
		"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, tree.Job(102, limit).Dir,
		rsswarden, "run", "--quiet", "--at", "91%:warn", "--record", "none", "--textfile", s.texts, "--")
	innocent := eater(103, small)
	if !run.Anon(limit/2) || !innocent.Anon(small/2) || !innocent.File(small, filepath.Join(t.TempDir(), "data")) {
		t.Fatal("a job died")
	}

	told := func(job, by, more string) bool {
		return len(s.query(t, `rsswarden_step_limit_ratio{jobid="%s",job="%s",step="batch",node="%s",limit="cgroup"} %s`, job, by, tree.Node, more)) > 0
	}
	within(t, targets+scrape+slack, "both targets are up, and tell of the run", func() bool {
		return len(s.query(t, `up == 1`)) == 2 && told("102", "node", "") && told("102", "rsswardend", "> 0.5")
	})
	sameNames(t, s)

	heard := func(since time.Time, status, alert, job string) func() bool {
		return func() bool {
			_, ok := s.told.Find(since, status, map[string]string{"alertname": alert, "jobid": job, "node": tree.Node})
			return ok
		}
	}
	firing := func(job string, since time.Time) func() bool {
		return heard(since, "firing", "JobNearMemoryLimit", job)
	}
	resolved := func(job string) func() bool { return heard(began, "resolved", "JobNearMemoryLimit", job) }
	// A look, a scrape and an evaluation each come an interval later at most, and the one
	// that finds `for:` over too.
	const promised = look + scrape + 2*evaluation + nearFor + wait + slack

	if !run.Anon(full - limit/2) {
		t.Fatal("the run died")
	}
	within(t, scrape+slack, "the textfile tells at its decisions", func() bool { return told("102", "node", "> 0.9") })
	within(t, promised, "a notification about the run", firing("102", began))

	// Prometheus is killed while an alert is pending.
	if !alone.Anon(full) {
		t.Fatal("the job died")
	}
	state := func(state string) func() bool {
		return func() bool {
			return len(s.query(t, `ALERTS{alertname="JobNearMemoryLimit",jobid="101",step="batch",node="%s",alertstate="%s"}`, tree.Node, state)) == 1
		}
	}
	within(t, look+scrape+evaluation+slack, "the job's alert is pending", state("pending"))
	// waited is for how many seconds it had been that when it was looked at last, since a
	// time.
	var waited float64
	hasWaited := func(least, since float64) func() bool {
		const series = `ALERTS_FOR_STATE{alertname="JobNearMemoryLimit",jobid="101",step="batch",node="%[1]s"}`
		return func() bool {
			got := s.query(t, `timestamp(`+series+`) - `+series+` >= %[2]f and timestamp(`+series+`) > %[3]f`, tree.Node, least, since)
			if len(got) == 1 {
				waited = got[0].Value
			}
			return len(got) == 1
		}
	}
	within(t, nearFor+slack, "it has waited for half of its time", hasWaited((nearFor/2).Seconds(), 0))
	before, at := waited, time.Now()
	s.prometheus.Kill()
	s.prometheus.Start()
	within(t, targets+3*evaluation+slack, "it is looked at again", hasWaited(0, unix(at)))
	if waited < before {
		t.Errorf("it had waited for %.1f s, and when Prometheus was started again for %.1f s", before, waited)
	}
	within(t, promised+grace, "a notification about the job, though Prometheus was killed", firing("101", began))

	// … and while they fire. Alertmanager has them for 4 times resend.
	at = time.Now()
	s.prometheus.Kill()
	s.prometheus.Start()
	within(t, targets+3*evaluation+slack, "Prometheus has them firing again", func() bool {
		return len(s.query(t, `timestamp(ALERTS{alertname="JobNearMemoryLimit",node="%s",step="batch",alertstate="firing"}) > %f`, tree.Node, unix(at))) == 2
	})
	within(t, targets+resend+evaluation+slack, "Prometheus has told Alertmanager of them again", func() bool {
		a, b := s.near(tree.Node, "101"), s.near(tree.Node, "102")
		return len(a) == 1 && len(b) == 1 && a[0].EndsAt.After(at.Add(4*resend+evaluation)) && b[0].EndsAt.After(at.Add(4*resend+evaluation))
	})

	at = time.Now()
	restarted := at
	s.alertmanager.Kill()
	s.alertmanager.Start()
	within(t, resend+evaluation+slack, "Alertmanager has both again", func() bool { return len(s.near(tree.Node, "101")) == 1 && len(s.near(tree.Node, "102")) == 1 })
	// What it had told is lost with it: people hear once more.
	within(t, wait+interval+slack, "and tells people", func() bool { return firing("101", at)() && firing("102", at)() })

	// The daemon is killed, and is there again.
	fired := s.near(tree.Node, "101")[0].StartsAt
	s.daemon.Kill()
	within(t, scrape+slack, "Prometheus knows that the daemon is down", func() bool { return len(s.query(t, `up{job="rsswardend"} == 0`)) == 1 })
	within(t, 3*evaluation+slack, "the alert has been looked at since", func() bool {
		return len(s.query(t, `count_over_time((up{job="rsswardend"} == 0)[1m:%s]) >= 2`, evaluation)) == 1
	})
	if !state("firing")() {
		t.Error("what fired does so no longer while the daemon is down")
	}
	s.daemon.Start()
	within(t, scrape+slack, "the daemon is up", func() bool { return len(s.query(t, `up{job="rsswardend"} == 1`)) == 1 })
	within(t, look+scrape+evaluation+slack, "and tells of the job", func() bool { return told("101", "rsswardend", "> 0.9") })
	if now := s.near(tree.Node, "101"); len(now) != 1 || !now[0].StartsAt.Equal(fired) {
		t.Errorf("the alert that fired from %v on is now %+v", fired, now)
	}

	// A job that the OOM killer ends, and all of its cgroups with it.
	hit := eater(104, small)
	if hit.Anon(2 * small) {
		t.Fatal("nothing was killed")
	}
	within(t, slack, "the daemon has seen the kill", func() bool { return strings.Contains(s.daemon.Said(), "of a job\" jobid=104 ") })
	tree.Remove(104)
	within(t, look+scrape+evaluation+slack, "a notification about the kill", heard(began, "firing", "JobOOMKilled", "104"))

	if resolved("101")() || resolved("102")() {
		t.Error("people were told that it is over, and it is not")
	}

	const over = look + scrape + evaluation + interval + slack
	if !alone.Free() {
		t.Fatal("the job died")
	}
	within(t, over, "the receiver hears that the job has memory again", resolved("101"))
	run.End()
	within(t, over, "the receiver hears that the run is over", resolved("102"))

	if most := charged(t, tree.Dir+"/uid_1000/job_103"); most < 0.98*float64(small) {
		t.Errorf("the innocent job had %.0f MiB charged at most, which is not its limit", most/(1<<20))
	}
	if got := s.query(t, `last_over_time(ALERTS{jobid="103",node="%s"}[10m])`, tree.Node); len(got) > 0 {
		t.Errorf("an alert on who has page cache: %v", got)
	}
	for _, n := range s.told.Notes(began) {
		if node := n.Labels["node"]; node != "" && node != tree.Node { // of who tests beside us
			continue
		}
		// A step's alert stands for its job's, once Alertmanager knows both.
		twice := n.Status == "firing" && n.Labels["alertname"] == "JobNearMemoryLimit" && n.Labels["step"] != "batch" && n.At.Before(restarted)
		if n.Labels["jobid"] == "103" || n.Labels["alertname"] == "RsswardendDown" || twice {
			t.Errorf("a needless notification: %s %v", n.Status, n.Labels)
		}
	}
}

// unix is a time as Prometheus has it.
func unix(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// runtimeDir is a directory like /tmp of a node.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "runtime")
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// charged is what a group of v1 was charged at most.
func charged(t *testing.T, dir string) (n float64) {
	t.Helper()
	_, err := fmt.Sscan(wardentest.Read(dir+"/memory.max_usage_in_bytes"), &n)
	wardentest.NoError(t, err)
	return n
}

var headRE = regexp.MustCompile(`^# (?:HELP|TYPE) (rsswarden_\w+) `)

// sameNames: promtool finds nothing to say about what daemon and node_exporter serve of
// ours, and metrics of both have the same help texts.
func sameNames(t *testing.T, s *site) {
	t.Helper()
	heads := func(from, path string) map[string]string {
		page, err := map[string]func(string) (string, error){"daemon": s.daemon.Text, "node_exporter": s.exporter.Text}[from](path)
		wardentest.NoError(t, err)
		all := map[string]string{}
		var ours strings.Builder
		for line := range strings.Lines(page) {
			if m := headRE.FindStringSubmatch(line); m != nil {
				all[m[1]] += line
			}
			if strings.HasPrefix(line, "rsswarden_") || headRE.MatchString(line) {
				ours.WriteString(line)
			}
		}
		if from == "node_exporter" && !strings.Contains(page, "\nnode_textfile_scrape_error 0\n") {
			t.Error("node_exporter cannot read the textfiles")
		}
		cmd := exec.Command("promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(ours.String())
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool on what %s serves: %v\n%s", from, err, out)
		}
		return all
	}
	daemon, text := heads("daemon", "/metrics"), heads("node_exporter", "/metrics")
	for name := range maps.Keys(daemon) {
		if text[name] != "" && text[name] != daemon[name] {
			t.Errorf("the daemon says\n%sand the run\n%s", daemon[name], text[name])
		}
	}
	for _, m := range []*metrics.Metric{
		&metrics.OfJob.Used, &metrics.OfStep.Unreclaimable, &metrics.OfStep.Limit, &metrics.OfJob.Ratio, &metrics.Former.Ratio, &metrics.Processes, &metrics.OOMKills, &metrics.LastLook, &metrics.BuildInfo,
	} {
		if daemon[m.Name] == "" || text[m.Name] == "" {
			t.Errorf("not both tell of %s: %q, %q", m.Name, slices.Sorted(maps.Keys(daemon)), slices.Sorted(maps.Keys(text)))
		}
	}
}

// board is what is read of grafana.json.
type board struct {
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	wardentest.NoError(t, json.Unmarshal(wardentest.ReadFile(t, "grafana.json"), &b))
	return b
}

// queries are all expressions of rules and board.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	b := readBoard(t)
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title] += target.Expr + "\n"
		}
	}
	for _, v := range b.Templating.List {
		if v.Definition != "" {
			all["variable "+v.Name] = v.Definition
		}
	}
	all["rules.yml"] = string(wardentest.ReadFile(t, "rules.yml"))
	return all
}

var (
	nameRE     = regexp.MustCompile(`(?:^|[^:\w])(rsswarden_[a-z_]+)(?:\{([^}]*)\})?`)
	labelRE    = regexp.MustCompile(`(\w+)\s*(=~|!=|=|!~)\s*"([^"]*)"`)
	groupingRE = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// TestNamesAreExported: every query uses metrics, labels and values that are there.
func TestNamesAreExported(t *testing.T) {
	labels := map[string]bool{"job": true, "instance": true} // Prometheus's own
	for where, text := range queries(t) {
		found := nameRE.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for nothing of rsswarden's", where)
		}
		for _, f := range found {
			i := slices.IndexFunc(metrics.All, func(m *metrics.Metric) bool { return m.Name == f[1] })
			if i < 0 {
				t.Errorf("%s: there is no %s", where, f[1])
				continue
			}
			has := append(slices.Clone(metrics.Common), metrics.All[i].Labels...)
			for _, l := range has {
				labels[l.Name] = true
			}
			for _, m := range labelRE.FindAllStringSubmatch(f[2], -1) {
				j := slices.IndexFunc(has, func(l metrics.Label) bool { return l.Name == m[1] })
				if j < 0 {
					t.Errorf("%s: %s has no label %s", where, f[1], m[1])
					continue
				}
				for _, value := range strings.Split(m[3], "|") {
					if has[j].Values != nil && !slices.Contains(has[j].Values, value) {
						t.Errorf("%s: %s is never %q of %s", where, m[1], value, f[1])
					}
				}
			}
		}
	}
	for where, text := range queries(t) {
		for _, g := range groupingRE.FindAllStringSubmatch(text, -1) {
			for _, l := range strings.Split(g[1], ",") {
				if !labels[strings.TrimSpace(l)] {
					t.Errorf("%s: nothing has the label %s", where, l)
				}
			}
		}
	}
}

// TestEveryMetricIsShown: the board leaves out nothing but what is about rsswarden.
func TestEveryMetricIsShown(t *testing.T) {
	var all strings.Builder
	for where, text := range queries(t) {
		if strings.HasPrefix(where, "panel") {
			all.WriteString(text)
		}
	}
	about := []*metrics.Metric{&metrics.BuildInfo, &metrics.LastLook, &metrics.OOMUnheard, &metrics.SelfMemory, &metrics.SelfCPU}
	for _, m := range metrics.All {
		if !slices.Contains(about, m) && !m.Former && !strings.Contains(all.String(), m.Name) {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}

// TestTheirOwnTools: Prometheus and Alertmanager take the files as they are, and the
// alerts fire when they should and not when not.
func TestTheirOwnTools(t *testing.T) {
	for _, c := range [][]string{
		{"promtool", "check", "rules", "rules.yml"},
		{"promtool", "check", "config", "prometheus.yml"},
		{"promtool", "test", "rules", "rules_test.yml"},
		{"amtool", "check-config", "alertmanager.yml"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			if _, err := exec.LookPath(c[0]); err != nil {
				t.Skipf("%v: apt-get install prometheus prometheus-alertmanager", err)
			}
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
