package report

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

func TestAdviceOnMem(t *testing.T) {
	linear := func(from, to float64) func(float64) record.Usage {
		return func(x float64) record.Usage { return record.Usage{Anon: gb(from + (to-from)*x)} }
	}
	slows := func(x float64) record.Usage { return record.Usage{Anon: gb(4 - 2/(1+6*x))} }
	jumps := func(x float64) record.Usage {
		if x > 0.9 {
			return record.Usage{Anon: gb(5)}
		}
		return record.Usage{Anon: gb(4)}
	}
	user := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Limit: gb(4), LimitSource: "--limit"}
	died := func(id string, size float64) made {
		return made{id: id, limit: slurmRSS(size), trainer: steady(size*0.99, 0, 0), exit: killedBy("SIGKILL", event.VerdictKilled)}
	}
	saved := func(id string, size float64) made {
		return made{id: id, limit: slurmRSS(size), trainer: steady(size*0.9, 0, 0), exit: ended(0, event.VerdictCarried)}
	}
	term := []record.Entry{{At: 2*time.Hour - time.Minute, Name: event.NameSignal, Value: &event.Signal{Signal: "SIGTERM"}}}
	byHand := func(share float64) made {
		d := &event.Decision{ID: 1, Rule: event.AskedFor, By: 9, Action: event.ActionTrim, Limit: event.LimitSlurm, Used: gb(8 * share), LimitSize: gb(8)}
		return made{limit: slurmRSS(8), trainer: steady(8*share, 0, 0), exit: killedBy("SIGTERM", event.VerdictCarried), events: []record.Entry{
			{At: time.Hour, Name: event.NameDecision, Value: d},
			{At: time.Hour + time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.GiB}},
		}}
	}
	node := event.Limit{Name: event.LimitNode, Scope: event.ScopeNode, Limit: gb(64)}
	for _, c := range []struct {
		what string
		runs []made
		mem  string // empty: not known
		says []string
		not  string
	}{
		{"one clean run", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}}, "exit", []string{"peak 4.00 GiB (summed RSS)"}, "growing"},
		{"one that grows on", []made{{limit: slurmRSS(8), trainer: linear(2, 4), exit: ended(0, event.VerdictFine)}}, "exit", []string{"growing still, by 1.00 GiB an hour", "so much more"}, ""},
		{"a short one that grows on", []made{{limit: slurmRSS(8), lasts: 5 * time.Minute, trainer: linear(2, 4), exit: ended(0, event.VerdictFine)}}, "exit", []string{"too short to say how much"}, "an hour"},
		{"one that slows down", []made{{limit: slurmRSS(8), trainer: slows, exit: ended(0, event.VerdictFine)}}, "exit", []string{"slower and slower", "a longer run may need some"}, "an hour"},
		{"a jump at the end", []made{{limit: slurmRSS(8), trainer: jumps, exit: ended(0, event.VerdictFine)}}, "exit", nil, "growing"},
		{"killed by its limit", []made{died("a", 4)}, "6G", []string{"what it needs is not known, half as much again, rounded up, is a guess"}, "growing"},
		{"the kernel", []made{{limit: cgroupLimit(4), trainer: steady(4, 0, 0), exit: killedBy("SIGKILL", event.VerdictOOM)}}, "6G", []string{"is a guess", "unreclaimable"}, ""},
		{"no exit event, and full", []made{{limit: slurmRSS(4), trainer: steady(3.9, 0, 0)}}, "6G", []string{"is a guess"}, ""},
		{"no exit event, full, after SIGTERM", []made{{limit: slurmRSS(4), trainer: steady(3.9, 0, 0), events: term}}, "", []string{"the record ends before the run did"}, ""},
		{"no exit event, and room", []made{{limit: slurmRSS(8), trainer: steady(3.9, 0, 0)}}, "", []string{"the most was 3.90 GiB of 8.00 GiB", "the record ends before"}, ""},
		{"still going on", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), live: true}}, "", []string{"it is still going on"}, ""},
		{"crashed", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(1, event.VerdictFine)}}, "exit", []string{"ended with exit status 1, so what it would have needed later is not known"}, ""},
		{"killed by somebody", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: killedBy("SIGKILL", event.VerdictKilled)}}, "", []string{"did not come from lack of memory"}, ""},
		{"carried", []made{saved("a", 4)}, "4G", []string{"enough with rsswarden", "without it more is needed"}, ""},
		{"carried inside --limit", []made{{limit: user, trainer: steady(3.8, 0, 0), exit: ended(0, event.VerdictCarried)}}, "", []string{"enough with rsswarden"}, ""},
		{"trimmed by hand with room", []made{byHand(0.5)}, "4608M", []string{"peak 4.00 GiB", "the peak and 10 % on top", "it was ended by SIGTERM"}, "enough with rsswarden"},
		{"trimmed by hand where memory was short", []made{byHand(0.95)}, "8G", []string{"enough with rsswarden"}, ""},
		{"the node's limit alone", []made{{limit: node, trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}}, "", []string{"no limit on memory but the node's own was found"}, ""},
		{"nothing used", []made{{limit: user, trainer: steady(0, 0, 0), exit: ended(0, event.VerdictFine)}}, "", []string{"nothing was seen to be used of the limit user of 4.00 GiB"}, "no limit"},
		{"no limit", []made{{exit: ended(0, event.VerdictFine)}}, "", []string{"no limit on memory was found, so nothing can be said about --mem"}, ""},
		{"killed, then enough", []made{died("a", 4), {id: "b", limit: slurmRSS(6), trainer: steady(4.5, 0, 0), exit: ended(0, event.VerdictFine)}}, "exit", []string{"peak 4.50 GiB", "1 run more do not tell"}, "guess"},
		{"killed, then carried", []made{died("a", 4), saved("b", 4)}, "4G", []string{"enough with rsswarden"}, "guess"},
		{"killed, then carried at less", []made{died("a", 4), saved("b", 3)}, "3G", []string{"enough with rsswarden"}, "guess"},
		{"carried, then killed", []made{saved("a", 4), died("b", 5)}, "7680M", []string{"one run was ended at", "is a guess"}, ""},
		{"carried, then enough without", []made{saved("a", 4), {id: "b", limit: slurmRSS(8), trainer: steady(5, 0, 0), exit: ended(0, event.VerdictFine)}}, "exit", []string{"peak 5.00 GiB"}, "enough with rsswarden"},
		{"none tells all", []made{{id: "a", limit: slurmRSS(8), trainer: steady(4, 0, 0), live: true}, {id: "b", limit: slurmRSS(8), trainer: steady(3, 0, 0)}}, "", []string{"no run tells all that it needs: the most was 4.00 GiB of 8.00 GiB (50 %), summed RSS, and it is still going on"}, ""},
		{"an early end that had more", []made{{id: "a", limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}, {id: "b", limit: slurmRSS(8), trainer: steady(6, 0, 0), exit: ended(1, event.VerdictFine)}}, "6656M", []string{"had no more than 6.00 GiB"}, ""},
	} {
		var runs []*record.Run
		for i, m := range c.runs {
			m.start = time.Duration(i) * 3 * time.Hour
			runs = append(runs, m.run())
		}
		lines := Advise(runs)
		l := theMem(t, lines)
		want := noMem
		switch {
		case c.mem == "exit":
			e := runs[len(runs)-1].Exit()
			want = "#SBATCH --mem=" + policy.MemArg(e.Advice)
			if !strings.HasPrefix(l.Why, e.AdviceWhy) {
				t.Errorf("%s: says %q, the exit event %q", c.what, l.Why, e.AdviceWhy)
			}
		case c.mem != "":
			want = "#SBATCH --mem=" + c.mem
		}
		if l.Line != want {
			t.Errorf("%s: %s, want %s (%s)", c.what, l.Line, want, l.Why)
		}
		for _, s := range c.says {
			if !strings.Contains(l.Why+" "+l.Evidence, s) {
				t.Errorf("%s: %q does not say %q", c.what, l.Why, s)
			}
		}
		if c.not != "" && strings.Contains(l.Why, c.not) {
			t.Errorf("%s: %q says %q", c.what, l.Why, c.not)
		}
		if l.Evidence == "" || l.Risk != nil {
			t.Errorf("%s: evidence %q, risk %v", c.what, l.Evidence, l.Risk)
		}
	}
}

// TestSeveralRuns: a risk is told, never less than the greatest is advised, and
// what differs more gets more.
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
		l := theMem(t, Advise(alike(c.peaks...)))
		if got := float64(l.Mem) / float64(rss.GiB); got < c.low || got > c.high {
			t.Errorf("%v: %v advised, want %v to %v GiB: %s", c.peaks, l.Mem, c.low, c.high, l.Why)
		}
		if l.Mem < gb(slices.Max(c.peaks)) {
			t.Errorf("%v: %v is less than the greatest", c.peaks, l.Mem)
		}
		if l.Risk == nil || *l.Risk > c.risk || *l.Risk < leastRisk || !strings.Contains(l.Why, c.says) {
			t.Errorf("%v: risk %v: %q", c.peaks, l.Risk, l.Why)
		}
	}
}

// TestAdviceHolds: of jobs rerun with what three runs advise nearly all live, and
// half of them leave at most 15 % unused.
func TestAdviceHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials = 2000
	died := 0
	var waste []float64
	for range trials {
		size, scatter := 0.2+100*random.Float64(), 0.02*random.Float64()
		draw := func() rss.Bytes { return gb(size * (1 + scatter*random.NormFloat64())) }
		s := scatterOf([]rss.Bytes{draw(), draw(), draw()})
		mem, next := policy.NeatMem(s.enough()), draw()
		if next > mem {
			died++
		}
		waste = append(waste, float64(mem.Sub(next))/float64(mem))
	}
	slices.Sort(waste)
	if median := waste[trials/2]; died > trials/50 || median > 0.15 {
		t.Errorf("%d of %d died, median waste %.3f", died, trials, median)
	}
}

func TestStudentTail(t *testing.T) {
	for _, c := range []struct {
		t    float64
		n    int
		want float64
	}{
		{6.314, 1, 0.05}, {2.920, 2, 0.05}, {2.353, 3, 0.05}, {2.132, 4, 0.05}, {2.015, 5, 0.05}, {1.833, 9, 0.05},
		{3.365, 5, 0.01}, {0, 7, 0.5}, {-2.015, 5, 0.95}, {1.6449, 100000, 0.05}, {1e9, 3, 0},
	} {
		if got := studentTail(c.t, c.n); got < c.want-0.0005 || got > c.want+0.0005 {
			t.Errorf("beyond %v with %d: %.4f, want %.4f", c.t, c.n, got, c.want)
		}
	}
}

// TestKindsAndJobs: other scripts are told apart, other arguments are not; ranks
// of a job are one observation, nodes do not add up.
func TestKindsAndJobs(t *testing.T) {
	runs := alike(2, 2, 2)
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
		return made{id: id, node: node, job: &record.Job{ID: "7", Step: "0", Task: task}, limit: l, trainer: steady(peak, 0, 0), exit: ended(0, event.VerdictFine)}.run()
	}
	l := theMem(t, Advise([]*record.Run{rank("a", "n1", 0, 2, cgroupLimit(8)), rank("b", "n1", 1, 2, cgroupLimit(8)), rank("c", "n2", 2, 3, cgroupLimit(8))}))
	if l.Mem < gb(3) || l.Mem > gb(3.6) || l.Risk != nil {
		t.Errorf("ranks under one limit: %+v", l)
	}
	user := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Limit: gb(4), LimitSource: "--limit"}
	if l = theMem(t, Advise([]*record.Run{rank("a", "n1", 0, 2, user), rank("b", "n1", 1, 2, user)})); l.Mem < gb(4) || l.Mem > gb(5) {
		t.Errorf("ranks with a limit each: %+v", l)
	}
	twice := alike(4)
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
	r := made{id: "a", limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}.run()
	e := r.Exit()
	e.Binding = &event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingPSS, Used: gb(1.9), Limit: gb(2)}
	e.AdviceWhy = ""
	l := theMem(t, Advise([]*record.Run{r}))
	if l.Line != "#SBATCH --mem=4608M" || !strings.Contains(l.Why, "peak 4.00 GiB (summed RSS)") || !strings.Contains(l.Evidence, "limit slurm") {
		t.Errorf("%+v", l)
	}
}
