package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestAdviceOnLoaders(t *testing.T) {
	usage := func(anon, file, shmem, pss func(x float64) float64) func(float64) record.Usage {
		return func(x float64) record.Usage {
			return record.Usage{Anon: scenetest.Gb(anon(x)), File: scenetest.Gb(file(x)), Shmem: scenetest.Gb(shmem(x)), PSS: scenetest.Gb(pss(x))}
		}
	}
	is := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	rises := func(from, to float64) func(float64) float64 {
		return func(x float64) float64 { return from + (to-from)*x }
	}
	// levels is up after a tenth of the run.
	levels := func(to float64) func(float64) float64 { return func(x float64) float64 { return min(to, to*10*x) } }
	pss := func(size float64) event.Limit {
		l := scenetest.SlurmRSS(size)
		l.Accounting = event.AccountingPSS
		return l
	}
	fine, tight, oom := scenetest.Ended(0, event.RunOK), scenetest.Ended(0, event.RunTight), scenetest.KilledBy("SIGKILL", event.RunOOM)
	const (
		fewer   = "num_workers="
		fresh   = "persistent_workers=False"
		first   = "persistent_workers=True, and the first iter(loader) before the model is made"
		arrays  = "dataset: arrays"
		pinning = "pin_memory=False"
	)
	said := ""
	for _, c := range []struct {
		what string
		made scenetest.Made
		want []string // the lines beside --mem
	}{
		{"room for all", scenetest.Made{Limit: scenetest.SlurmRSS(16), Workers: 4, Worker: usage(is(0.2), is(0.8), is(0), is(0)), Exit: fine}, nil},
		{"four workers near the limit", scenetest.Made{Limit: scenetest.SlurmRSS(5.5), Workers: 4, Worker: usage(is(0.25), is(0.75), is(0), is(0)), Exit: tight}, []string{fewer + "3"}},
		{"killed by the kernel", scenetest.Made{Limit: scenetest.CgroupLimit(4), Trainer: scenetest.Steady(1, 0, 0), Workers: 4, Worker: usage(rises(0.1, 0.75), is(0), is(0), is(0)), Exit: oom}, []string{fewer + "3", fresh}},
		{"the workers are not what is large", scenetest.Made{Limit: scenetest.SlurmRSS(9), Trainer: scenetest.Steady(8, 0, 0), Workers: 4, Worker: usage(is(0.1), is(0.02), is(0), is(0)), Exit: tight}, nil},
		{"one worker", scenetest.Made{Limit: scenetest.SlurmRSS(4), Trainer: scenetest.Steady(1, 0, 0), Workers: 1, Worker: usage(is(0.2), is(2.5), is(0), is(0)), Exit: tight}, nil},
		{"PSS not read", scenetest.Made{Limit: pss(2), Workers: 4, Worker: usage(is(0.2), is(0.8), is(0), is(0)), Used: func(float64) rss.Bytes { return scenetest.Gb(1.9) }, Exit: tight}, nil},
		{"mapped pages that grow on", scenetest.Made{Limit: scenetest.SlurmRSS(16), Workers: 4, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Exit: fine}, []string{fresh}},
		{"mapped pages that no limit counts", scenetest.Made{Limit: scenetest.CgroupLimit(16), Workers: 4, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Used: func(float64) rss.Bytes { return scenetest.Gb(2) }, Exit: fine}, nil},
		{"mapped pages that level off", scenetest.Made{Limit: scenetest.SlurmRSS(16), Workers: 4, Worker: usage(is(0.2), levels(1.2), is(0), is(0)), Exit: fine}, nil},
		{"a leak", scenetest.Made{Limit: scenetest.CgroupLimit(16), Workers: 2, Worker: usage(rises(0.3, 2), is(0.2), is(0), is(0)), Exit: fine}, []string{fresh}},
		{"workers that end with the epoch", scenetest.Made{Limit: scenetest.SlurmRSS(16), Workers: 4, Fresh: 5, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Exit: fine}, nil},
		{"born with the trainer's memory", scenetest.Made{Limit: scenetest.SlurmRSS(16), Trainer: scenetest.Steady(2, 0, 0), Workers: 6, Worker: usage(is(1.9), is(0.1), is(0), is(0)), Exit: tight}, []string{fewer + "5", first}},
		{"born small", scenetest.Made{Limit: scenetest.SlurmRSS(16), Trainer: scenetest.Steady(2, 0, 0), Workers: 6, Worker: usage(is(0.9), is(1.1), is(0), is(0)), Exit: tight}, []string{fewer + "5"}},
		{"copied on write, by PSS", scenetest.Made{Limit: pss(4.2), Trainer: usage(is(2), is(0), is(0), is(1)), Workers: 4, Worker: usage(is(1.9), is(0), is(0), rises(0.4, 0.75)), Used: func(x float64) rss.Bytes { return scenetest.Gb(1 + 4*(0.4+0.35*x)) }, Exit: tight}, []string{fewer + "3", arrays}},
		{"copied on write, by the charge", scenetest.Made{Limit: scenetest.CgroupLimit(6), Trainer: scenetest.Steady(2, 0, 0), Workers: 4, Worker: usage(is(1.9), is(0), is(0), is(0)), Used: func(x float64) rss.Bytes { return scenetest.Gb(2.2 + 3*x) }, Exit: tight}, []string{arrays}},
		{"the charge rises with what the trainer has", scenetest.Made{Limit: scenetest.CgroupLimit(6), Trainer: func(x float64) record.Usage { return record.Usage{Anon: scenetest.Gb(2 + 3*x)} }, Workers: 4, Worker: usage(is(1.9), is(0), is(0), is(0)), Used: func(x float64) rss.Bytes { return scenetest.Gb(2.2 + 3*x) }, Exit: tight}, nil},
		{"pinned batches that pile up", scenetest.Made{Limit: scenetest.CgroupLimit(16), Trainer: func(x float64) record.Usage {
			return record.Usage{Anon: scenetest.Gb(1), Shmem: scenetest.Gb(0.5 + 4*x)}
		}, Exit: fine}, []string{pinning}},
		{"pinned batches that level off", scenetest.Made{Limit: scenetest.CgroupLimit(16), Trainer: func(x float64) record.Usage {
			return record.Usage{Anon: scenetest.Gb(1), Shmem: scenetest.Gb(min(2, 20*x))}
		}, Exit: fine}, nil},
		{"too few samples", scenetest.Made{Limit: scenetest.SlurmRSS(16), Every: time.Hour, Workers: 4, Worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), Exit: fine}, nil},
	} {
		lines := Advise([]*record.Run{c.made.Run()})
		theMem(t, lines)
		var got []string
		for _, l := range lines[1:] {
			got = append(got, l.Line)
			if l.Evidence == "" || l.Mem != 0 || l.Risk != nil {
				t.Errorf("%s: %+v", c.what, l)
			}
		}
		good := len(got) == len(c.want)
		for i := range c.want {
			good = good && strings.HasPrefix(got[i], c.want[i])
		}
		if !good {
			t.Errorf("%s: lines %q, want %q\n%+v", c.what, got, c.want, lines[1:])
		}
		said += adviceText(c.what, lines)
	}
	golden.Check(t, "testdata/advice_loader.txt", said)
}

// TestAdviceOnTheSeed: the post's own conclusion, with its figures.
func TestAdviceOnTheSeed(t *testing.T) {
	lines := Advise([]*record.Run{recordtest.SeedRun()})
	mem := theMem(t, lines)
	if mem.Mem < scenetest.Gb(5.39) || mem.Mem > scenetest.Gb(6.5) || !strings.Contains(mem.Why, "5.4 of 16.0 GiB") {
		t.Errorf("%+v", mem)
	}
	if !strings.Contains(mem.Why, "slower and slower") {
		t.Errorf("of growth over epochs: %q", mem.Why)
	}
	fresh := named(lines, "persistent_workers=False")
	if fresh == nil || !strings.Contains(fresh.Why, "4 workers") || !strings.Contains(fresh.Why, "mapped file pages") {
		t.Errorf("of workers that stay: %+v", lines)
	}
	if len(lines) != 2 {
		t.Errorf("lines %+v", lines)
	}
	for _, l := range lines {
		t.Logf("%s\n  %s\n  %s", l.Line, l.Why, l.Evidence)
	}
}

// TestAdviceOfAJournal: roles tell less than processes, and nothing wrong.
func TestAdviceOfAJournal(t *testing.T) {
	m := scenetest.Made{Limit: scenetest.SlurmRSS(5.5), Workers: 4, Worker: scenetest.Steady(0.2, 0.8, 0), Exit: scenetest.Ended(0, event.RunTight)}
	lines := Advise([]*record.Run{scenetest.AsJournal(t, m.Run())})
	if l := named(lines, "num_workers=3"); l == nil || len(lines) != 2 {
		t.Errorf("lines %+v", lines)
	}
}

// BenchmarkAdvise is of a day at one sample a second with 16 processes.
func BenchmarkAdvise(b *testing.B) {
	run := scenetest.Made{Limit: scenetest.SlurmRSS(16), Lasts: 24 * time.Hour, Every: time.Second, Workers: 15, Worker: func(x float64) record.Usage {
		return record.Usage{Anon: scenetest.Gb(0.2), File: scenetest.Gb(0.2 + 0.3*x)}
	}, Exit: scenetest.Ended(0, event.RunOK)}.Run()
	for b.Loop() {
		if lines := Advise([]*record.Run{run}); len(lines) == 0 {
			b.Fatal("no advice")
		}
	}
}

func TestAdviceOnMem(t *testing.T) {
	linear := func(from, to float64) func(float64) record.Usage {
		return func(x float64) record.Usage { return record.Usage{Anon: scenetest.Gb(from + (to-from)*x)} }
	}
	slows := func(x float64) record.Usage { return record.Usage{Anon: scenetest.Gb(4 - 2/(1+6*x))} }
	jumps := func(x float64) record.Usage {
		if x > 0.9 {
			return record.Usage{Anon: scenetest.Gb(5)}
		}
		return record.Usage{Anon: scenetest.Gb(4)}
	}
	user := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Limit: scenetest.Gb(4), LimitSource: "--limit"}
	died := func(id string, size float64) scenetest.Made {
		return scenetest.Made{ID: id, Limit: scenetest.SlurmRSS(size), Trainer: scenetest.Steady(size*0.99, 0, 0), Exit: scenetest.KilledBy("SIGKILL", event.RunKilled)}
	}
	saved := func(id string, size float64) scenetest.Made {
		return scenetest.Made{ID: id, Limit: scenetest.SlurmRSS(size), Trainer: scenetest.Steady(size*0.9, 0, 0), Exit: scenetest.Ended(0, event.RunKept)}
	}
	term := []record.Entry{{At: 2*time.Hour - time.Minute, Name: event.NameSignal, Value: &event.Signal{Signal: "SIGTERM"}}}
	byHand := func(share float64) scenetest.Made {
		d := &event.Decision{ID: 1, Rule: event.AskedFor, By: 9, Action: event.ActionTrim, Limit: event.LimitSlurm, Used: scenetest.Gb(8 * share), LimitSize: scenetest.Gb(8)}
		return scenetest.Made{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(8*share, 0, 0), Exit: scenetest.Ended(0, map[bool]event.RunOutcome{false: event.RunOK, true: event.RunKept}[share > 0.85]), Events: []record.Entry{
			{At: time.Hour, Name: event.NameDecision, Value: d},
			{At: time.Hour + time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.GiB}},
		}}
	}
	node := event.Limit{Name: event.LimitNode, Scope: event.ScopeNode, Limit: scenetest.Gb(64)}
	said := ""
	for _, c := range []struct {
		what string
		runs []scenetest.Made
		mem  string // empty: not known
	}{
		{"one clean run", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}, "4608M"},
		{"one that grows on", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: linear(2, 4), Exit: scenetest.Ended(0, event.RunOK)}}, "4608M"},
		{"a short one that grows on", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Lasts: 5 * time.Minute, Trainer: linear(2, 4), Exit: scenetest.Ended(0, event.RunOK)}}, "4608M"},
		{"one that slows down", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: slows, Exit: scenetest.Ended(0, event.RunOK)}}, "4352M"},
		{"a jump at the end", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: jumps, Exit: scenetest.Ended(0, event.RunOK)}}, "5632M"},
		{"killed by its limit", []scenetest.Made{died("a", 4)}, "6G"},
		{"the kernel", []scenetest.Made{{Limit: scenetest.CgroupLimit(4), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.KilledBy("SIGKILL", event.RunOOM)}}, "6G"},
		{"no exit event, and full", []scenetest.Made{{Limit: scenetest.SlurmRSS(4), Trainer: scenetest.Steady(3.9, 0, 0)}}, "6G"},
		{"no exit event, full, after SIGTERM", []scenetest.Made{{Limit: scenetest.SlurmRSS(4), Trainer: scenetest.Steady(3.9, 0, 0), Events: term}}, ""},
		{"no exit event, and room", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(3.9, 0, 0)}}, ""},
		{"still going on", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Live: true}}, ""},
		{"crashed", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(1, event.RunFailed)}}, ""},
		{"killed from outside", []scenetest.Made{{Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.KilledBy("SIGKILL", event.RunKilled)}}, ""},
		{"carried", []scenetest.Made{saved("a", 4)}, "4G"},
		{"carried inside --limit", []scenetest.Made{{Limit: user, Trainer: scenetest.Steady(3.8, 0, 0), Exit: scenetest.Ended(0, event.RunKept)}}, ""},
		{"trimmed by hand with room", []scenetest.Made{byHand(0.5)}, "4608M"},
		{"trimmed by hand where memory was short", []scenetest.Made{byHand(0.95)}, "8G"},
		{"the node's limit alone", []scenetest.Made{{Limit: node, Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}, ""},
		{"nothing used", []scenetest.Made{{Limit: user, Trainer: scenetest.Steady(0, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}, ""},
		{"no limit", []scenetest.Made{{Exit: scenetest.Ended(0, event.RunOK)}}, ""},
		{"killed, then enough", []scenetest.Made{died("a", 4), {ID: "b", Limit: scenetest.SlurmRSS(6), Trainer: scenetest.Steady(4.5, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}, "5G"},
		{"killed, then carried", []scenetest.Made{died("a", 4), saved("b", 4)}, "4G"},
		{"killed, then carried at less", []scenetest.Made{died("a", 4), saved("b", 3)}, "3G"},
		{"carried, then killed", []scenetest.Made{saved("a", 4), died("b", 5)}, "7680M"},
		{"carried, then enough without", []scenetest.Made{saved("a", 4), {ID: "b", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(5, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}}, "5632M"},
		{"none tells all", []scenetest.Made{{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Live: true}, {ID: "b", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(3, 0, 0)}}, ""},
		{"an early end that had more", []scenetest.Made{{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}, {ID: "b", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(6, 0, 0), Exit: scenetest.Ended(1, event.RunFailed)}}, "6912M"},
	} {
		var runs []*record.Run
		for i, m := range c.runs {
			m.Start = time.Duration(i) * 3 * time.Hour
			runs = append(runs, m.Run())
		}
		lines := Advise(runs)
		l := theMem(t, lines)
		want := ""
		if c.mem != "" {
			want = "#SBATCH --mem=" + c.mem
		}
		if l.Line != want {
			t.Errorf("%s: %s, want %s (%s)", c.what, l.Line, want, l.Why)
		}
		said += adviceText(c.what, lines)
		if (l.Evidence == "") != (want == "") || l.Risk != nil {
			t.Errorf("%s: evidence %q, risk %v", c.what, l.Evidence, l.Risk)
		}
	}
	golden.Check(t, "testdata/advice_mem.txt", said)
}

// adviceText is advice as golden files have it.
func adviceText(what string, lines []analysis.AdviceLine) string {
	text := "== " + what + "\n"
	for _, l := range lines {
		text += fmt.Sprintf("%s\n    %s\n    %s\n", l.Line, l.Why, l.Evidence)
	}
	return text
}

// TestSeveralRuns: a risk is named, never less than the greatest is advised, and larger
// differences get more.
func TestSeveralRuns(t *testing.T) {
	for _, c := range []struct {
		peaks []float64
		low   float64 // bounds of what is advised, in GiB
		high  float64
		risk  float64 // at most
		says  string
	}{
		{[]float64{4, 4}, 4.2, 4.75, 0.1, "1 in 3"},
		{[]float64{0.001, 0.001}, 0.0625, 0.0625, 1, "1 in 3"}, // 64 MiB, whatever the peaks
		{[]float64{4, 4.01, 3.99, 4, 4.02}, 4.2, 4.6, 0.01, "1 in 6"},
		{[]float64{4, 4.4, 3.8, 4.1, 4.2}, 4.6, 5.1, 0.06, "1 in 6"},
		{[]float64{2, 4}, 4.9, 5.5, 0.4, "1 in 3"},
		{[]float64{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, 4.2, 4.6, 0.002, "1 in 13"},
	} {
		l := theMem(t, Advise(scenetest.Alike(c.peaks...)))
		if got := float64(l.Mem) / float64(rss.GiB); got < c.low || got > c.high {
			t.Errorf("%v: %v advised, want %v to %v GiB: %s", c.peaks, l.Mem, c.low, c.high, l.Why)
		}
		if l.Mem < scenetest.Gb(slices.Max(c.peaks)) {
			t.Errorf("%v: %v is less than the greatest", c.peaks, l.Mem)
		}
		if l.Risk == nil || *l.Risk > c.risk || *l.Risk < analysis.LeastRisk || !strings.Contains(l.Why, c.says) {
			t.Errorf("%v: risk %v: %q", c.peaks, l.Risk, l.Why)
		}
	}
}

// TestKindsAndJobs: other scripts are told apart, other arguments are not; ranks
// of a job are one observation, nodes do not add up.
func TestKindsAndJobs(t *testing.T) {
	runs := scenetest.Alike(2, 2, 2)
	runs[0].Meta.Command = []string{"python", "train.py", "--lr", "1"}
	runs[1].Meta.Command = []string{"python", "-u", "eval.py"}
	lines := Advise(runs)
	if len(lines) != 2 || !strings.Contains(lines[0].Why, "`python train.py`: ") || !strings.Contains(lines[1].Why, "`python -u eval.py`: ") {
		t.Errorf("lines %+v", lines)
	}
	if lines[0].Risk == nil || lines[1].Risk != nil {
		t.Errorf("risks %v, %v", lines[0].Risk, lines[1].Risk)
	}

	rank := func(id, node string, task int, peak float64, l event.Limit) *record.Run {
		return scenetest.Made{ID: id, Node: node, Job: &record.Job{ID: "7", Step: "0", Task: task}, Limit: l, Trainer: scenetest.Steady(peak, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	}
	l := theMem(t, Advise([]*record.Run{rank("a", "n1", 0, 2, scenetest.CgroupLimit(8)), rank("b", "n1", 1, 2, scenetest.CgroupLimit(8)), rank("c", "n2", 2, 3, scenetest.CgroupLimit(8))}))
	if l.Mem < scenetest.Gb(3) || l.Mem > scenetest.Gb(3.6) || l.Risk != nil {
		t.Errorf("ranks under one limit: %+v", l)
	}
	user := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Limit: scenetest.Gb(4), LimitSource: "--limit"}
	if l = theMem(t, Advise([]*record.Run{rank("a", "n1", 0, 2, user), rank("b", "n1", 1, 2, user)})); l.Mem < scenetest.Gb(4) || l.Mem > scenetest.Gb(5) {
		t.Errorf("ranks with a limit each: %+v", l)
	}
	twice := scenetest.Alike(4)
	if l = theMem(t, Advise(append(twice, twice[0]))); l.Risk != nil {
		t.Errorf("one run that was read twice: %+v", l)
	}
	if Advise(nil) != nil {
		t.Error("advice without a run")
	}
}

// TestAdviseByWhoKills: where --limit came nearer than the limit that kills, the advice
// is about the one that kills.
func TestAdviseByWhoKills(t *testing.T) {
	r := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	e := r.Exit()
	e.Binding = &event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingPSS, Used: scenetest.Gb(1.9), Limit: scenetest.Gb(2)}
	e.AdviceWhy = ""
	l := theMem(t, Advise([]*record.Run{r}))
	if l.Line != "#SBATCH --mem=4608M" || !strings.Contains(l.Why, "4.0 of 8.0 GiB (50 %), summed RSS") || !strings.Contains(l.Evidence, "limit slurm") {
		t.Errorf("%+v", l)
	}
}

// named returns the line that begins so, nil where there is none.
func named(lines []analysis.AdviceLine, begin string) *analysis.AdviceLine {
	for i := range lines {
		if strings.HasPrefix(lines[i].Line, begin) {
			return &lines[i]
		}
	}
	return nil
}

// theMem is the line on --mem, the first; empty where there is none.
func theMem(t *testing.T, lines []analysis.AdviceLine) analysis.AdviceLine {
	t.Helper()
	if len(lines) == 0 || lines[0].Mem == 0 {
		return analysis.AdviceLine{}
	}
	l := lines[0]
	if want := "#SBATCH --mem=" + policy.MemArg(l.Mem); l.Line != want {
		t.Errorf("line %q for %v", l.Line, l.Mem)
	}
	return l
}

// TestFindingIsAdvisedOnce: advice from many runs names what the newest was found
// to do, and the report of one run, which has a place for it, does not twice.
func TestFindingIsAdvisedOnce(t *testing.T) {
	r := scenetest.GrownScene().Run()
	lines := Advise([]*record.Run{r})
	last := lines[len(lines)-1]
	if last.Line != "write leak in worker otherwise" || last.Why != "leak in worker, certain: 900 MiB" || !strings.HasSuffix(last.Evidence, "("+r.Meta.ID+")") {
		t.Errorf("%+v", last)
	}
	var b bytes.Buffer
	wardentest.NoError(t, Text(&b, told([]*record.Run{r}, nil, scenetest.Noon), values.Style{}, false))
	if n := strings.Count(b.String(), last.Line); n != 1 {
		t.Errorf("the report tells it %d times", n)
	}
	fixed := scenetest.GrownScene()
	fixed.Job.ID = "13"
	fixed.Events = fixed.Events[len(fixed.Events)-1:]
	later := fixed.Run()
	later.Meta.ID, later.Meta.Start = "later", scenetest.Noon.Add(time.Hour)
	if lines := Advise([]*record.Run{r, later}); slices.ContainsFunc(lines, func(l analysis.AdviceLine) bool { return l.Line == last.Line }) {
		t.Errorf("it was fixed since: %+v", lines)
	}
}

// TestAdviseNodes: --mem is for each node, so it is the fullest that counts, and a
// record that ends where another goes on hides nothing.
func TestAdviseNodes(t *testing.T) {
	said := ""
	for _, test := range []struct {
		name string
		runs []*record.Run
		line string
	}{
		{"both ended well", scenetest.Built(scenetest.OnNode(2), scenetest.OnNode(1)), "#SBATCH --mem=3712M"},
		{"the lead moved", scenetest.LeadMoved(), "#SBATCH --mem=3712M"},
		{"n2 was killed", scenetest.OomOnN2(), "#SBATCH --mem=6G"},
		{"requeued with more", scenetest.SecondAttempt(), "#SBATCH --mem=5632M"},
		{"64 nodes", scenetest.SixtyFour(time.Minute), "#SBATCH --mem=68G"},
	} {
		lines := Advise(test.runs)
		if len(lines) == 0 || lines[0].Line != test.line {
			t.Errorf("%s: %+v", test.name, lines)
		}
		said += adviceText(test.name, lines)
	}
	failed := scenetest.OnNode(1)
	failed.Ends[0].Code = 1
	golden.Check(t, "testdata/advice_nodes.txt", said+adviceText("a rank failed", Advise(scenetest.Built(failed))))
}

// TestAdviseInTurn: what leaders had one after the other is not added up, and neither is
// their one limit; what two had at the same time, each under its own, is. A part of the
// job that is in no record leaves open what it needs.
func TestAdviseInTurn(t *testing.T) {
	least := func(runs ...*record.Run) []*record.Run { return runs }
	six := scenetest.InTurn(6)
	others := scenetest.InTurn(3)
	for i, r := range others {
		r.Meta.Command = []string{"sleep", fmt.Sprint(i)}
	}
	carried := scenetest.InTurn(2)
	carried[1].Events = append([]record.Entry{
		{At: 70 * time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "85%:trim", Action: event.ActionTrim, Limit: event.LimitUser}},
		{At: 71 * time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.MiB}},
	}, carried[1].Events...)
	carried[1].Exit().Outcome = event.RunKept
	failed := scenetest.InTurn(2)
	failed[1].Exit().Code = new(int)
	*failed[1].Exit().Code = 3
	other := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 2, First: 1, Count: 1, Leader: 1, Start: scenetest.Noon, User: true, Limit: rss.GiB, To: time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.RunOK),
	}.Run()
	said := ""
	for _, test := range []struct {
		name string
		runs []*record.Run
		line string
	}{
		{"one", scenetest.InTurn(1), "#SBATCH --mem=448M"},
		{"two", scenetest.InTurn(2), "#SBATCH --mem=448M"},
		{"six", six, "#SBATCH --mem=448M"},
		{"six, read in another order", least(six[4], six[0], six[5], six[2], six[1], six[3]), "#SBATCH --mem=448M"},
		{"each with another command", others, "#SBATCH --mem=448M"},
		{"two at the same time", least(scenetest.InTurn(1)[0], other), "#SBATCH --mem=736M"},
		{"the second is not there", least(six[0], six[2]), ""},
		{"the first is not there", scenetest.InTurn(2)[1:], ""},
		{"the second was kept under its limit", carried, ""},
		{"the second failed", failed, ""},
	} {
		lines := Advise(test.runs)
		if got := theMem(t, lines).Line; got != test.line {
			t.Errorf("%s: %+v", test.name, lines)
		}
		said += adviceText(test.name, lines)
	}
	golden.Check(t, "testdata/advice_in_turn.txt", said)
}
