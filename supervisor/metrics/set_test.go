package metrics

import (
	"bytes"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
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
	s.Put(&OfStep.Used, here, 3<<30, "slurm", "step")
	s.Put(&OfJob.Used, here, 1<<60, "cgroup")
	s.Add(&Processes, here, 1, "worker")
	s.Add(&Processes, here, 1, "worker")
	s.Put(&OfJob.Ratio, here, 0.8125, "maps")
	s.Put(&Former.TimeLeft, here, math.Inf(1), "maps", "process")
	s.Put(&LastLook, here, 1.7e9+0.25)
	s.Put(&Ranks, here, 4)
	s.Put(&Ranks, here, 5)
	head := func(m *Metric) string {
		return "# HELP " + m.Name + " " + m.Help + "\n# TYPE " + m.Name + " " + string(m.Type) + "\n"
	}
	want := head(&BuildInfo) + `rsswarden_build_info{node="a\\b\"c\nd",run="r",version="v1` + "\uFFFD" + `"} 1
` + head(&OfJob.Ratio) + `rsswarden_job_limit_ratio{jobid="46",node="n1",run="0a1b2c3d",limit="maps"} 0.8125
` + head(&OfJob.Used) + `rsswarden_job_memory_used_bytes{jobid="46",node="n1",run="0a1b2c3d",limit="cgroup"} 1.152921504606847e+18
` + head(&LastLook) + `rsswarden_last_look_timestamp_seconds{jobid="46",step="0",node="n1",run="0a1b2c3d"} 1.70000000025e+09
` + head(&OOMKills) + `rsswarden_oom_kills_total 2
` + head(&Processes) + `rsswarden_processes{jobid="46",step="0",node="n1",run="0a1b2c3d",role="worker"} 2
` + head(&Ranks) + `rsswarden_ranks{jobid="46",step="0",node="n1",run="0a1b2c3d"} 5
` + head(&OfStep.Used) + `rsswarden_step_memory_used_bytes{jobid="46",step="0",node="n1",run="0a1b2c3d",limit="slurm",level="step"} 3221225472
` + head(&Former.TimeLeft) + `rsswarden_time_to_limit_seconds{jobid="46",step="0",node="n1",run="0a1b2c3d",limit="maps",scope="process"} +Inf
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
	NewSet().Put(&OfStep.Used, here, 1, "slurm")
}

// full is all that a run has to say.
func full() *Set {
	eta, most := 90.5, 100.0
	s := NewSet()
	s.Limits(here, []event.Limit{
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/a/job_46", Used: 50, Charged: 90, Limit: 100, ETA: &eta, Outlook: event.Outlook{ETAHigh: &most}},
		{Name: event.LimitCgroup, Scope: event.ScopeCgroup, Level: "/a", Used: 60, Limit: 1000},
		{Name: event.LimitCgroup, Scope: event.ScopeStep, Level: "/a/job_46/step_0", Used: 20, Limit: 0},
		{Name: event.LimitCgroup, Scope: event.ScopeStep, Level: "/a/job_46/step_0/user", Used: 20, Charged: 30, Limit: 80},
		{Name: event.LimitCgroup, Scope: event.ScopeCgroup, Level: "/a/job_46/step_0/user/task_0", Used: 10, Charged: 15, Limit: 50},
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: 70, Limit: 100, ETA: &eta, Outlook: event.Outlook{ETAHigh: &most}},
		{Name: event.LimitUser, Scope: event.ScopeTree, Used: 80, Limit: 100, ETA: &eta}, // it may flatten before
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Used: 10, Limit: 40, PID: 4711},
		{Name: event.LimitTime, Scope: event.ScopeJob, ETA: &eta},
	})
	s.Processes(here, []rss.Proc{{Role: rss.RoleTrainer, RSS: 5}, {Role: rss.RoleWorker, RSS: 3}, {Role: rss.RoleWorker, RSS: 4}, {State: 'Z', Role: rss.RoleWorker}, {RSS: 1}})
	s.Actions(here, []event.Rule{{Action: event.ActionWarn}, {Action: event.ActionTrim}, {Action: event.ActionRecycle}}, ledger())
	s.Peak(here, &event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Used: 94, Limit: 100})
	s.Peak(here, &event.Limit{Name: event.LimitCgroup, Scope: event.ScopeJob, Used: 55, Limit: 100})
	s.Self(here, []event.Cost{{RSS: 20, CPU: 1.5}, {RSS: 7, CPU: 0.5}})
	s.Put(&OOMKills, here, 0)
	s.Put(&OOMUnheard, here, 0)
	s.Put(&Runs, here, 1, "slurm-kill")
	s.Put(&Ranks, here, 1)
	s.Put(&LastLook, here, 1.7e9)
	s.Put(&BuildInfo, here, 1, "v0.9")
	return s
}

// ledger is that of a run in which trims, recycles and a garbage collection were done, some
// not.
func ledger() *event.Saved {
	var s event.Ledger
	at, id := time.Unix(1.7e9, 0), uint64(0)
	act := func(a event.Action, o event.Outcome) {
		id++
		s.Decided(at, &event.Decision{ID: id, Action: a, Limit: event.LimitSlurm})
		o.Decision = id
		s.Finished(at, &o)
	}
	act(event.ActionTrim, event.Outcome{OK: true, Reason: event.ReasonDone, Freed: 80})
	act(event.ActionRecycle, event.Outcome{OK: true, Reason: event.ReasonDone, Freed: 42})
	act(event.ActionRecycle, event.Outcome{Reason: event.ReasonTimeout})
	act(event.ActionRecycle, event.Outcome{Reason: event.ReasonDeferred})
	s.Said(&event.LoaderSaid{What: event.LoaderRecycled, Reason: string(event.ReasonDeferred)})
	act(event.ActionGC, event.Outcome{OK: true, Reason: event.ReasonDone, Freed: 9})
	s.Finished(at, &event.Outcome{Action: event.ActionTrim, Reason: event.ReasonNoWorker})
	s.Decided(at, &event.Decision{ID: id + 1, Action: event.ActionWarn, Limit: event.LimitSlurm})
	s.Said(&event.LoaderSaid{What: event.LoaderTrimmed, Count: 30, Freed: 627})
	s.Said(&event.LoaderSaid{What: event.LoaderTrimmed, Count: 9, Freed: 80, Reason: event.TrimRequested})
	return &s.Saved
}

// TestFill: each number once. What a limit of a job counts is another metric than what one
// of a step does, and what a trim dropped is no memory that was freed.
func TestFill(t *testing.T) {
	var got []string
	for l := range strings.Lines(string(full().Text())) {
		if !strings.HasPrefix(l, "#") {
			l = strings.TrimPrefix(strings.TrimSpace(l), "rsswarden_")
			for _, place := range []string{`jobid="46",step="0",node="n1",run="0a1b2c3d"`, `jobid="46",node="n1",run="0a1b2c3d"`} {
				l = strings.Replace(l, place, "", 1)
			}
			got = append(got, strings.Replace(l, "{,", "{", 1))
		}
	}
	want := []string{
		`actions_total{action="gc",outcome="done"} 1`, `actions_total{action="gc",outcome="failed"} 0`, `actions_total{action="gc",outcome="refused"} 0`,
		`actions_total{action="recycle",outcome="done"} 2`, `actions_total{action="recycle",outcome="failed"} 1`, `actions_total{action="recycle",outcome="refused"} 1`,
		`actions_total{action="trim",outcome="done"} 1`, `actions_total{action="trim",outcome="failed"} 0`, `actions_total{action="trim",outcome="refused"} 1`,
		`actions_total{action="warn",outcome="done"} 1`,
		`actions_total{action="worker_trim",outcome="done"} 30`,
		`build_info{version="v0.9"} 1`,
		`job_limit_ratio{limit="cgroup"} 0.5`, `job_limit_ratio{limit="maps"} 0.25`, `job_limit_ratio{limit="user"} 0.8`,
		`job_memory_charged_bytes{} 90`,
		`job_memory_limit_bytes{limit="cgroup"} 100`, `job_memory_limit_bytes{limit="user"} 100`,
		`job_memory_peak_bytes{limit="cgroup"} 55`,
		`job_memory_unreclaimable_bytes{} 50`,
		`job_memory_used_bytes{limit="cgroup"} 50`, `job_memory_used_bytes{limit="user"} 80`,
		`job_time_to_limit_seconds{limit="cgroup"} 90.5`, `job_time_to_limit_seconds{limit="time"} 90.5`,
		`last_look_timestamp_seconds{} 1700000000`,
		`limit_ratio{limit="cgroup",scope="cgroup"} 0.2`, `limit_ratio{limit="cgroup",scope="job"} 0.5`, `limit_ratio{limit="cgroup",scope="step"} 0.25`,
		`limit_ratio{limit="maps",scope="process"} 0.25`, `limit_ratio{limit="slurm",scope="step"} 0.7`, `limit_ratio{limit="user",scope="tree"} 0.8`,
		`memory_charged_bytes{scope="cgroup"} 15`, `memory_charged_bytes{scope="job"} 90`, `memory_charged_bytes{scope="step"} 30`,
		`memory_freed_bytes_total{action="gc"} 9`, `memory_freed_bytes_total{action="recycle"} 42`,
		`memory_limit_bytes{limit="cgroup",scope="cgroup"} 50`, `memory_limit_bytes{limit="cgroup",scope="job"} 100`, `memory_limit_bytes{limit="cgroup",scope="step"} 80`,
		`memory_limit_bytes{limit="slurm",scope="step"} 100`, `memory_limit_bytes{limit="user",scope="tree"} 100`,
		`memory_rss_bytes{role="other"} 1`, `memory_rss_bytes{role="trainer"} 5`, `memory_rss_bytes{role="worker"} 7`,
		`memory_unreclaimable_bytes{scope="cgroup"} 10`, `memory_unreclaimable_bytes{scope="job"} 50`, `memory_unreclaimable_bytes{scope="step"} 20`,
		`memory_used_bytes{limit="cgroup",scope="cgroup"} 10`, `memory_used_bytes{limit="cgroup",scope="job"} 50`, `memory_used_bytes{limit="cgroup",scope="step"} 20`,
		`memory_used_bytes{limit="slurm",scope="step"} 70`, `memory_used_bytes{limit="user",scope="tree"} 80`,
		`oom_kills_total{} 0`,
		`oom_unheard_steps{} 0`,
		`pages_dropped_bytes_total{action="trim"} 80`, `pages_dropped_bytes_total{action="worker_trim"} 627`,
		`processes{role="other"} 1`, `processes{role="trainer"} 1`, `processes{role="worker"} 2`,
		`ranks{} 1`,
		`runs_total{outcome="slurm-kill"} 1`,
		`self_cpu_seconds_total{} 2`,
		`self_memory_bytes{} 27`,
		`step_limit_ratio{limit="cgroup",level="step"} 0.25`, `step_limit_ratio{limit="cgroup",level="task"} 0.2`, `step_limit_ratio{limit="slurm",level="step"} 0.7`,
		`step_memory_charged_bytes{level="step"} 30`, `step_memory_charged_bytes{level="task"} 15`,
		`step_memory_limit_bytes{limit="cgroup",level="step"} 80`, `step_memory_limit_bytes{limit="cgroup",level="task"} 50`, `step_memory_limit_bytes{limit="slurm",level="step"} 100`,
		`step_memory_peak_bytes{limit="slurm",level="step"} 94`,
		`step_memory_unreclaimable_bytes{level="step"} 20`, `step_memory_unreclaimable_bytes{level="task"} 10`,
		`step_memory_used_bytes{limit="cgroup",level="step"} 20`, `step_memory_used_bytes{limit="cgroup",level="task"} 10`, `step_memory_used_bytes{limit="slurm",level="step"} 70`,
		`step_time_to_limit_seconds{limit="slurm",level="step"} 90.5`,
		`time_to_limit_seconds{limit="cgroup",scope="job"} 90.5`, `time_to_limit_seconds{limit="slurm",scope="step"} 90.5`, `time_to_limit_seconds{limit="time",scope="job"} 90.5`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRunEnded: each run adds one to its outcome, whatever lay in the file before.
func TestRunEnded(t *testing.T) {
	at := Place{Node: "n1", Run: "user"}
	text := []byte("rsswarden_runs_total{outcome=\"no such\"} 3\nrsswarden_runs_total{outcome=\"ok\"} -1\nrubbish")
	for _, o := range []event.RunOutcome{event.RunOK, event.RunSlurmKill, event.RunOK} {
		text = RunEnded(text, at, o).Text()
	}
	family := parse(t, text)[Runs.Name]
	got := map[string]float64{}
	for _, m := range family.Metric {
		for _, l := range m.Label {
			if l.GetName() == "outcome" && m.Counter.GetValue() > 0 {
				got[l.GetValue()] = m.Counter.GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"ok": 2, "slurm-kill": 1}, got); diff != "" || len(family.Metric) != len(event.RunOutcomes)-1 {
		t.Errorf("%d series\n%s", len(family.Metric), diff)
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

// FuzzText: for any label the text parses, and says the same.
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
