package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// scene is a look at three jobs: one with a forecast, one without a limit, one without
// a memory cgroup.
func scene() *nodejobs.Snapshot {
	near := nodejobs.Use{
		Measured: true, Charged: 900 * rss.MiB, Unreclaimable: 750 * rss.MiB, Used: 750 * rss.MiB, Limit: 1000 * rss.MiB,
		OOMKills: 2, Processes: 5, ETA: 90 * time.Second, Forecast: true,
	}
	step := near
	step.Unreclaimable, step.Used, step.Forecast = 500*rss.MiB, 500*rss.MiB, false
	free := nodejobs.Use{Measured: true, Charged: 10, Unreclaimable: 5, Used: 5, Limit: cgroup.Unlimited, Processes: 1}
	bare := nodejobs.Use{Processes: 3, RSS: 4096}
	return &nodejobs.Snapshot{
		At: time.Now(), Where: "memory", Memory: true, Found: true,
		Jobs: []nodejobs.Job{
			{ID: "7", Node: "n1", UID: 1000, Use: near, Steps: []nodejobs.Step{{ID: "batch", Use: step}, {ID: "0", Use: step}}},
			{ID: "sEKNKTV3WPV500", Node: "n1", UID: -1, Use: free, Steps: []nodejobs.Step{{ID: "extern", Use: free}}},
			{ID: "9", Node: "n2", UID: -1, Use: bare, Steps: []nodejobs.Step{{ID: "0", Use: bare}}},
		},
	}
}

func daemonWith(s *nodejobs.Snapshot) *daemon {
	d := newDaemon(settings{interval: 10 * time.Second, node: "n1"}, slog.New(slog.DiscardHandler))
	if s != nil {
		d.snap.Store(&view{Snapshot: s})
	}
	return d
}

func TestCollector(t *testing.T) {
	c := &collector{daemonWith(scene())}
	head := func(m *metrics.Metric) string {
		return "# HELP " + m.Name + " " + m.Help + "\n# TYPE " + m.Name + " gauge\n"
	}
	want := head(&metrics.OfJob.Used) + `rsswarden_job_memory_used_bytes{jobid="7",limit="cgroup",node="n1"} 7.86432e+08
` + head(&metrics.OfStep.Ratio) + `rsswarden_step_limit_ratio{jobid="7",level="step",limit="cgroup",node="n1",step="0"} 0.5
rsswarden_step_limit_ratio{jobid="7",level="step",limit="cgroup",node="n1",step="batch"} 0.5
` + head(&metrics.OfJob.TimeLeft) + `rsswarden_job_time_to_limit_seconds{jobid="7",limit="cgroup",node="n1"} 90
` + head(&metrics.Former.TimeLeft) + `rsswarden_time_to_limit_seconds{jobid="7",limit="cgroup",node="n1",scope="job",step=""} 90
` + head(&metrics.MemoryRSS) + `rsswarden_memory_rss_bytes{jobid="9",node="n2",role="",step="0"} 4096
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), metrics.OfJob.Used.Name, metrics.OfStep.Ratio.Name,
		metrics.OfJob.TimeLeft.Name, metrics.OfStep.TimeLeft.Name, metrics.Former.TimeLeft.Name, metrics.MemoryRSS.Name); err != nil {
		t.Error(err)
	}
	for name, count := range map[string]int{
		"rsswarden_job_memory_unreclaimable_bytes": 2, "rsswarden_step_memory_charged_bytes": 3, "rsswarden_job_memory_limit_bytes": 1, "rsswarden_step_memory_used_bytes": 2,
		"rsswarden_memory_unreclaimable_bytes": 5, "rsswarden_memory_charged_bytes": 5, "rsswarden_memory_limit_bytes": 3, "rsswarden_memory_used_bytes": 3,
		"rsswarden_oom_kills_total": 2, "rsswarden_processes": 4, "rsswarden_build_info": 1, "rsswarden_last_look_timestamp_seconds": 1,
	} {
		if got := testutil.CollectAndCount(c, name); got != count {
			t.Errorf("%d series of %s, want %d", got, name, count)
		}
	}
}

func TestLint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{daemonWith(scene())})
	problems, err := testutil.GatherAndLint(registry)
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// What is too old is not told: a daemon that hangs has no numbers but how long it has
// hung.
func TestStale(t *testing.T) {
	old := scene()
	old.At = old.At.Add(-time.Minute)
	for what, c := range map[string]struct {
		last  *nodejobs.Snapshot
		looks int
	}{"before the first look": {nil, 0}, "a minute ago": {old, 1}} {
		d := daemonWith(c.last)
		all := testutil.CollectAndCount(&collector{d})
		looks := testutil.CollectAndCount(&collector{d}, metrics.LastLook.Name)
		if all != 1+looks || looks != c.looks || d.healthy() {
			t.Errorf("%s: %d series, %d of them the last look; healthy %v", what, all, looks, d.healthy())
		}
	}
}

// TestKilledIsTold: a job that the OOM killer hit is reported for a while after its end, as
// it most often ends at once, and no longer once it is here again.
func TestKilledIsTold(t *testing.T) {
	d := daemonWith(nil)
	began := time.Now()
	look := func(after time.Duration, alive bool, kills uint64) string {
		s := &nodejobs.Snapshot{At: began.Add(after)}
		j := nodejobs.Job{ID: "7", Node: "n1", UID: -1, Use: nodejobs.Use{Measured: true, OOMKills: kills, Limit: cgroup.Unlimited}}
		if alive {
			s.Jobs = []nodejobs.Job{j}
		} else if kills > 0 {
			s.Ended = []nodejobs.Ended{{Job: j, Last: s.At}}
		}
		d.watchOOM(s)
		set := metrics.NewSet()
		fill(&view{s, slices.Collect(maps.Values(d.killed))}, set.Put)
		_, line, _ := strings.Cut(string(set.Text()), "rsswarden_oom_kills_total counter\n")
		line, _, _ = strings.Cut(line, "\n")
		return line
	}
	const series = `rsswarden_oom_kills_total{jobid="7",node="n1"} `
	for _, c := range []struct {
		after time.Duration
		alive bool
		kills uint64
		want  string
	}{
		{0, true, 0, series + "0"},
		{time.Second, true, 2, series + "2"},
		{2 * time.Second, false, 2, series + "2"}, // its end
		{toldFor, false, 0, series + "2"},
		{toldFor + 2*time.Second, false, 0, ""},
		{time.Hour, true, 1, series + "1"}, // requeued
		{time.Hour + time.Second, false, 1, series + "1"},
		{time.Hour + time.Minute, true, 0, series + "0"}, // and again
		{time.Hour + 2*time.Minute, false, 0, ""},
	} {
		if got := look(c.after, c.alive, c.kills); got != c.want {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
}

// The textfile has the same series as a scrape. A label without a value is left out of
// the one and empty in the other, which is the same.
func TestTextfileIsTheScrape(t *testing.T) {
	s := scene()
	set := metrics.NewSet()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	fill(&view{Snapshot: s}, set.Put)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	file, err := parser.TextToMetricFamilies(bytes.NewReader(set.Text()))
	must(t, err)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&collector{daemonWith(s)})
	list, err := registry.Gather()
	must(t, err)
	scrape := map[string]*dto.MetricFamily{}
	for _, f := range list {
		scrape[f.GetName()] = f
	}
	if diff := cmp.Diff(seriesOf(scrape), seriesOf(file)); diff != "" {
		t.Errorf("scrape -, textfile +:\n%s", diff)
	}
}

// seriesOf are the values by name, type, help and those labels that have a value.
func seriesOf(families map[string]*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := []string{f.GetName(), f.GetType().String(), f.GetHelp()}
			for _, l := range m.Label {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			slices.Sort(labels[3:])
			out[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// BenchmarkScrape is a scrape of 1,000 jobs of two steps.
func BenchmarkScrape(b *testing.B) {
	s := scene()
	job := s.Jobs[0]
	s.Jobs = nil
	for i := range 1000 {
		j := job
		j.ID = fmt.Sprint(i)
		j.Steps = append([]nodejobs.Step{}, job.Steps...)
		s.Jobs = append(s.Jobs, j)
	}
	d := daemonWith(s)
	d.interval = 1 << 40
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{d})
	b.ReportAllocs()
	for b.Loop() {
		families, err := registry.Gather()
		must(b, err)
		enc := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
		for _, f := range families {
			must(b, enc.Encode(f))
		}
	}
}
