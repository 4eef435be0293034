package metrics

import (
	"bytes"
	"math"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

var here = Place{JobID: "46", Step: "0", Node: "n1", Run: "0a1b2c3d"}

func TestText(t *testing.T) {
	s := NewSet()
	s.Put(&OOMKills, Place{}, 2)
	s.Put(&BuildInfo, Place{Node: `a\b"c` + "\nd", Run: "r"}, 1, "v1\xff")
	s.Put(&MemoryUsed, here, 3<<30, "slurm", "step")
	s.Put(&MemoryUsed, here, 1<<60, "cgroup", "job")
	s.Add(&Processes, here, 1, "worker")
	s.Add(&Processes, here, 1, "worker")
	s.Put(&LimitRatio, here, 0.8125, "maps", "process")
	s.Put(&TimeToLimit, here, math.Inf(1), "maps", "process")
	s.Put(&LastLook, here, 1.7e9+0.25)
	s.Put(&Ranks, here, 4)
	s.Put(&Ranks, here, 5)
	want := `# HELP rsswarden_build_info 1, with the version that is running.
# TYPE rsswarden_build_info gauge
rsswarden_build_info{node="a\\b\"c\nd",run="r",version="v1` + "\uFFFD" + `"} 1
# HELP rsswarden_last_look_timestamp_seconds ` + LastLook.Help + `
# TYPE rsswarden_last_look_timestamp_seconds gauge
rsswarden_last_look_timestamp_seconds{jobid="46",step="0",node="n1",run="0a1b2c3d"} 1.70000000025e+09
# HELP rsswarden_limit_ratio ` + LimitRatio.Help + `
# TYPE rsswarden_limit_ratio gauge
rsswarden_limit_ratio{jobid="46",step="0",node="n1",run="0a1b2c3d",limit="maps",scope="process"} 0.8125
# HELP rsswarden_memory_used_bytes ` + MemoryUsed.Help + `
# TYPE rsswarden_memory_used_bytes gauge
rsswarden_memory_used_bytes{jobid="46",step="0",node="n1",run="0a1b2c3d",limit="cgroup",scope="job"} 1.152921504606847e+18
rsswarden_memory_used_bytes{jobid="46",step="0",node="n1",run="0a1b2c3d",limit="slurm",scope="step"} 3221225472
# HELP rsswarden_oom_kills_total ` + OOMKills.Help + `
# TYPE rsswarden_oom_kills_total counter
rsswarden_oom_kills_total 2
# HELP rsswarden_processes ` + Processes.Help + `
# TYPE rsswarden_processes gauge
rsswarden_processes{jobid="46",step="0",node="n1",run="0a1b2c3d",role="worker"} 2
# HELP rsswarden_ranks ` + Ranks.Help + `
# TYPE rsswarden_ranks gauge
rsswarden_ranks{jobid="46",step="0",node="n1",run="0a1b2c3d"} 5
# HELP rsswarden_time_to_limit_seconds ` + TimeToLimit.Help + `
# TYPE rsswarden_time_to_limit_seconds gauge
rsswarden_time_to_limit_seconds{jobid="46",step="0",node="n1",run="0a1b2c3d",limit="maps",scope="process"} +Inf
`
	if diff := cmp.Diff(want, string(s.Text())); diff != "" {
		t.Error(diff)
	}
	if len(NewSet().Text()) != 0 {
		t.Error("an empty set has a text")
	}
}

func TestPutWantsItsLabels(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a series without its labels was taken")
		}
	}()
	NewSet().Put(&MemoryUsed, here, 1, "slurm")
}

// full is what a run has to tell, all of it.
func full() *Set {
	eta := 90.5
	s := NewSet()
	s.Limits(here, []event.Limit{
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/a/job_46", Used: 10, Limit: 100},
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/a/job_46/b", Used: 50, Charged: 90, Limit: 100, ETA: &eta},
		{Name: event.LimitCgroup, Scope: event.ScopeStep, Level: "/a/job_46/step_0", Used: 20, Limit: 0},
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: 70, Limit: 100},
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Used: 10, Limit: 40, PID: 4711},
		{Name: event.LimitTime, Scope: event.ScopeJob, ETA: &eta},
	})
	s.Processes(here, []rss.Proc{{Role: rss.RoleTrainer, RSS: 5}, {Role: rss.RoleWorker, RSS: 3}, {Role: rss.RoleWorker, RSS: 4}, {State: 'Z', Role: rss.RoleWorker}, {RSS: 1}})
	var a Acted
	a.Expect(event.ActionTrim)
	a.Count(event.ActionRecycle, Done, 42)
	a.Count(event.ActionRecycle, Refused, 0)
	s.Actions(here, &a)
	s.Put(&OOMKills, here, 0)
	s.Put(&OOMUnheard, here, 0)
	s.Put(&Ranks, here, 1)
	s.Put(&LastLook, here, 1.7e9)
	s.Put(&BuildInfo, here, 1, "v0.9")
	return s
}

func TestFill(t *testing.T) {
	var got []string
	for l := range strings.Lines(string(full().Text())) {
		if !strings.HasPrefix(l, "#") {
			got = append(got, strings.TrimSpace(strings.Replace(l, `jobid="46",step="0",node="n1",run="0a1b2c3d"`, "", 1)))
		}
	}
	want := []string{
		`rsswarden_actions_total{,action="recycle",outcome="done"} 1`, `rsswarden_actions_total{,action="recycle",outcome="failed"} 0`, `rsswarden_actions_total{,action="recycle",outcome="refused"} 1`,
		`rsswarden_actions_total{,action="trim",outcome="done"} 0`, `rsswarden_actions_total{,action="trim",outcome="failed"} 0`, `rsswarden_actions_total{,action="trim",outcome="refused"} 0`,
		`rsswarden_build_info{,version="v0.9"} 1`,
		`rsswarden_last_look_timestamp_seconds{} 1700000000`,
		`rsswarden_limit_ratio{,limit="cgroup",scope="job"} 0.5`, `rsswarden_limit_ratio{,limit="maps",scope="process"} 0.25`, `rsswarden_limit_ratio{,limit="slurm",scope="step"} 0.7`,
		`rsswarden_memory_charged_bytes{,scope="job"} 90`,
		`rsswarden_memory_freed_bytes_total{,action="recycle"} 42`, `rsswarden_memory_freed_bytes_total{,action="trim"} 0`,
		`rsswarden_memory_limit_bytes{,limit="cgroup",scope="job"} 100`, `rsswarden_memory_limit_bytes{,limit="slurm",scope="step"} 100`,
		`rsswarden_memory_rss_bytes{,role="other"} 1`, `rsswarden_memory_rss_bytes{,role="trainer"} 5`, `rsswarden_memory_rss_bytes{,role="worker"} 7`,
		`rsswarden_memory_unreclaimable_bytes{,scope="job"} 50`,
		`rsswarden_memory_used_bytes{,limit="cgroup",scope="job"} 50`, `rsswarden_memory_used_bytes{,limit="slurm",scope="step"} 70`,
		`rsswarden_oom_kills_total{} 0`,
		`rsswarden_oom_unheard_steps{} 0`,
		`rsswarden_processes{,role="other"} 1`, `rsswarden_processes{,role="trainer"} 1`, `rsswarden_processes{,role="worker"} 2`,
		`rsswarden_ranks{} 1`,
		`rsswarden_time_to_limit_seconds{,limit="cgroup",scope="job"} 90.5`, `rsswarden_time_to_limit_seconds{,limit="time",scope="job"} 90.5`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPromtool has Prometheus's own linter look at the names.
func TestPromtool(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool of the package prometheus is not installed")
	}
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = bytes.NewReader(full().Text())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestResultOf(t *testing.T) {
	for _, c := range []struct {
		event.Outcome
		want Result
	}{
		{event.Outcome{OK: true, Reason: event.ReasonDone}, Done},
		{event.Outcome{OK: true}, Done},
		{event.Outcome{Reason: event.ReasonTooLittle}, Failed},
		{event.Outcome{Reason: event.ReasonTimeout}, Failed},
		{event.Outcome{Reason: event.ReasonDryRun}, Refused},
		{event.Outcome{Reason: event.ReasonNoWorker}, Refused},
		{event.Outcome{Reason: event.ReasonVanished}, Refused},
	} {
		if got := ResultOf(&c.Outcome); got != c.want {
			t.Errorf("%v %q is %s, want %s", c.OK, c.Reason, got, c.want)
		}
	}
}

// FuzzText: whatever stands in a label, what is written parses, and says the same.
func FuzzText(f *testing.F) {
	f.Add("46", "batch", "n1", "v1", 1.5)
	f.Add("", "", "", "", math.NaN())
	f.Add("a\"b", "c\\", "\n", "\xff\x00", math.Inf(-1))
	f.Add("{", "}", "# EOF", "\\n", math.Copysign(0, -1))
	f.Fuzz(func(t *testing.T, job, step, node, version string, v float64) {
		at := Place{JobID: job, Step: step, Node: node}
		s := NewSet()
		s.Put(&BuildInfo, at, v, version)
		s.Put(&LastLook, at, v)
		text := s.Text()
		if text[len(text)-1] != '\n' || !utf8.Valid(text) {
			t.Errorf("%q", text)
		}
		families := parse(t, text)
		if len(families) != 2 {
			t.Fatalf("%d families in\n%s", len(families), text)
		}
		read := families[BuildInfo.Name].Metric[0]
		if got := read.Gauge.GetValue(); got != v && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Errorf("%v reads as %v", v, got)
		}
		got := map[string]string{}
		for _, p := range read.Label {
			got[p.GetName()] = p.GetValue()
		}
		want := map[string]string{}
		for name, value := range map[string]string{"jobid": job, "step": step, "node": node, "version": version} {
			if value != "" {
				want[name] = strings.ToValidUTF8(value, "\uFFFD")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("labels differ:\n%s", diff)
		}
	})
}

func parse(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return families
}
