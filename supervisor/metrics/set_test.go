package metrics

import (
	"bytes"
	"math"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
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
	golden.Check(t, "testdata/text.txt", string(s.Text()))
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
	s.Put(&Runs, here, 1, "slurm-kill")
	s.Put(&LastLook, here, 1.7e9)
	s.Put(&BuildInfo, here, 1, "v0.9")
	for _, m := range All {
		if s.series[m] == nil { // those that their readers put one by one
			var labels []string
			for _, l := range m.Labels {
				labels = append(labels, l.Values[0])
			}
			s.Put(m, here, 1, labels...)
		}
	}
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
	place := regexp.MustCompile(`jobid="46",(step="0",)?node="n1",run="0a1b2c3d",?`)
	comments := regexp.MustCompile(`(?m)^#.*\n`)
	text := comments.ReplaceAllString(string(full().Text()), "")
	golden.Check(t, "testdata/fill.txt", strings.ReplaceAll(place.ReplaceAllString(text, ""), "rsswarden_", ""))
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
