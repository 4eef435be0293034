//go:build endurance

package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// alertedStand is a real cluster whose kernel enforces, and a site that watches it.
type alertedStand struct {
	stand
	*alertSite
	program string // testdata/jobs/use.py
}

func newAlertedStand(t *testing.T) *alertedStand {
	t.Helper()
	wardentest.NeedTorch(t)
	// A cluster of its own: its partition is changed.
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{CPUs: 32, RealMemory: 16000, Conf: "# endurance of alerts"})
	if out := c.Admin(t, "scontrol", "update", "PartitionName=debug", "MaxTime=300"); out.Code != 0 {
		t.Fatal(out)
	}
	s := &alertedStand{stand: stand{Cluster: c, rsswarden: c.Install(t, binary)}}
	c.Install(t, filepath.Join(filepath.Dir(binary), "rsswardend"))
	s.train = c.Install(t, "../../../../examples/train/train.py")
	c.Install(t, "../../../../examples/train/data.py")
	s.program = c.Install(t, "testdata/jobs/use.py")
	s.alertSite = startAlertSite(t, c.Node())
	return s
}

// aJob is one to be submitted. Under is what is put before its command: nothing, or
// rsswarden.
type aJob struct {
	what, command, mem string
	under              string
	*slurmtest.JobRun
}

// wrap is rsswarden with this site's receivers, and more options.
func (s *alertedStand) wrap(options string) string {
	return fmt.Sprintf("%s run --alert %s --textfile %s --record none %s --", s.rsswarden, s.alertmanager.URL(), s.texts, options)
}

func (s *alertedStand) job(what string, size float64, mem, under string) *aJob {
	return &aJob{what: what, command: fmt.Sprintf("%s %s %s %v", python, s.program, what, size), mem: mem, under: under}
}

// submit has the job write when its command ended.
func (s *alertedStand) submit(t *testing.T, j *aJob) {
	t.Helper()
	script := j.under + " " + j.command + "\ncode=$?; date +%s.%N >ended; exit $code"
	j.JobRun = s.Submit(t, script, "--mem="+j.mem, "--no-requeue", "-t", "240", "-n1")
}

func (j *aJob) String() string {
	if j.under == "" {
		return fmt.Sprintf("job %s, %s, bare", j.ID, j.what)
	}
	return fmt.Sprintf("job %s, %s, under rsswarden", j.ID, j.what)
}

// TestEnduranceAlertSlurm: with the rules that we hand out no alert is raised for an hour
// of jobs that are innocent, whether they run under rsswarden or not; and one that grows
// into its limit is reported a minute at least before the kernel kills it, by a run of
// rsswarden and by the rules alone. RSSWARDEN_INNOCENT, such as 3m, shortens a trial.
func TestEnduranceAlertSlurm(t *testing.T) {
	s := newAlertedStand(t)
	within := time.Hour
	if v := os.Getenv("RSSWARDEN_INNOCENT"); v != "" {
		var err error
		if within, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	s.innocent(t, within)
	if !t.Failed() {
		s.guilty(t)
	}
}

// innocent runs jobs that will not die, for so long.
func (s *alertedStand) innocent(t *testing.T, within time.Duration) {
	var jobs []*aJob
	data := filepath.Join(s.Dir(), "small.lmdb")
	made := []string{"--data", data, "--records", "400", "--record-bytes", "120000"}
	if got := s.Do(t, python, append([]string{s.train, "--epochs", "0", "--workers", "0"}, made...)...); got.Code != 0 {
		t.Fatalf("cannot make the data: %+v", got)
	}
	for _, under := range []string{"", s.wrap("")} {
		jobs = append(jobs,
			s.job("cache", 300, "200", under),
			s.job("steady", 275, "400", under), // 70 % with Python, Slurm and us
			s.job("saw", 180, "300", under),    // 30 to 60 %
			// Workers write reference counts into pages of the list, until they have all: after
			// some two minutes at 65 %.
			&aJob{what: "training", mem: "650", under: under,
				command: fmt.Sprintf("%s %s %s --workers 2 --persistent --cow 700000 --batch 8 --step-ms 300 --epochs 1000000 >/dev/null", python, s.train, strings.Join(made, " "))},
		)
	}
	for _, j := range jobs {
		s.submit(t, j)
	}
	began, short, peak := time.Now(), 0, map[*aJob]float64{}
	var last *aJob
	for time.Since(began) < within && len(s.alerts(t, "")) == 0 {
		if last == nil {
			under := ""
			if short++; short%2 == 0 {
				under = s.wrap("")
			}
			last = s.job("short", 140, "200", under)
			s.submit(t, last)
		} else if r, err := last.Now(t.Context()); err == nil && r.Over() {
			if r.State != "COMPLETED" {
				t.Errorf("%v: %s\n%s", last, r.State, r.Stderr)
			}
			last = nil
		}
		for _, j := range jobs {
			if charged, err := strconv.ParseFloat(strings.TrimSpace(wardentest.Read(j.MemoryCgroup("")+"/memory.usage_in_bytes")), 64); err == nil {
				peak[j] = max(peak[j], charged)
			}
		}
		time.Sleep(time.Second)
	}
	if last != nil {
		last.Wait(t)
	}
	t.Logf("%d jobs for %v, and %d short ones", len(jobs), time.Since(began).Round(time.Second), short)
	for _, j := range jobs {
		r, err := j.Now(t.Context())
		if err != nil || r.State != "RUNNING" {
			t.Errorf("%v: %s, %v\n%s", j, r.State, err, r.Stderr)
		}
		past := fmt.Sprintf(`{jobid="%s",limit="cgroup"}[%ds])`, j.ID, int(time.Since(began).Seconds()))
		mib, _ := strconv.ParseFloat(j.mem, 64)
		ratio, told := s.value(t, "max(max_over_time(rsswarden_job_limit_ratio"+past+")")
		eta, forecast := s.value(t, "min(min_over_time(rsswarden_job_time_to_limit_seconds"+past+")")
		looks, _ := s.value(t, "max(count_over_time(rsswarden_job_limit_ratio"+past+")")
		t.Logf("%v: charged at most %.0f %%, not to be taken back %.0f %%, told of in %.0f scrapes; least forecast %.0f s (%v)", j, 100*peak[j]/(mib*(1<<20)), 100*ratio, looks, eta, forecast)
		if !told || looks < within.Seconds()/15*0.8 {
			t.Errorf("%v: Prometheus heard of it in %.0f scrapes", j, looks)
		}
		if full := peak[j] / (mib * (1 << 20)); j.what == "cache" && full < 0.99 {
			t.Errorf("%v: its page cache took %.0f %%: the test proves nothing", j, 100*full)
		}
	}
	for _, a := range s.alerts(t, "") {
		t.Errorf("an innocent job: %v", a)
	}
	for _, n := range s.notes() {
		t.Errorf("the receiver was told: %s %v", n.Status, n.Labels)
	}
	for _, j := range jobs {
		s.Cancel(t, j.ID)
	}
	for _, j := range jobs {
		j.Wait(t)
	}
}

// guilty runs jobs that grow until they are killed.
func (s *alertedStand) guilty(t *testing.T) {
	jobs := []*aJob{
		s.job("grow", 3, "1024", s.wrap("")),
		s.job("grow", 3, "1024", ""),
		s.job("grow", 1.5, "600", s.wrap("")),
		s.job("grow", 1.5, "600", ""),
		// Its action does not help, and nothing is forecast.
		s.job("grow", 2, "800", s.wrap("--at none --at 80%:exec=true")),
	}
	for _, j := range jobs {
		s.submit(t, j)
	}
	for _, j := range jobs {
		r := j.Until(t, 15*time.Minute, slurmtest.Result.Over)
		killed, err := strconv.ParseFloat(strings.TrimSpace(wardentest.Read(j.Dir+"/ended")), 64)
		if r.State != "OUT_OF_MEMORY" || err != nil {
			t.Errorf("%v: %s, %v: nothing was proved\n%s", j, r.State, err, r.Stderr)
			continue
		}
		began, _ := strconv.ParseFloat(wardentest.Read(j.Dir+"/started"), 64)
		t.Logf("%v: killed %.0f s after it began", j, killed-began)
		// What the run itself told, and what the rules made of metrics.
		first := map[string]float64{}
		for _, a := range s.alerts(t, j.ID) {
			before := killed - float64(a.at.UnixMilli())/1000
			t.Logf("%6.0f s before the kill: %v", before, a)
			by := "rules"
			if strings.HasPrefix(a.Labels["alertname"], "Rsswarden") {
				by = "run"
			}
			first[by] = max(first[by], before)
		}
		want := []string{"rules"}
		if j.under != "" {
			want = append(want, "run")
		}
		for _, by := range want {
			if first[by] < 60 {
				t.Errorf("%v: told of by its %s %.0f s before the kill, want 60 s at least\n%s", j, by, first[by], r.Stderr)
			}
		}
	}
	if len(s.notes()) == 0 {
		t.Error("Alertmanager has sent nothing")
	}
}

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
	if s.texts, err = os.MkdirTemp("", "texts"); err != nil { // the user of the jobs must reach it
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.texts) })
	wardentest.NoError(t, os.Chmod(s.texts, 0o777|os.ModeSticky))
	daemon, exporter, alertmanager := promtest.FreeAddr(t), promtest.FreeAddr(t), promtest.FreeAddr(t)
	ports := strings.NewReplacer("127.0.0.1:9093", alertmanager, "http://127.0.0.1:9094/", s.receiver.URL, "127.0.0.1:9100", exporter, "127.0.0.1:9759", daemon)
	dir := t.TempDir()
	for _, name := range []string{"prometheus.yml", "rules.yml", "alertmanager.yml"} {
		b := wardentest.ReadFile(t, "../../../../examples/prometheus/"+name)
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(ports.Replace(string(b))), 0o644))
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
			// One that fires again is another.
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
