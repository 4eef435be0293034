package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

func TestAdviceOnLoaders(t *testing.T) {
	usage := func(anon, file, shmem, pss func(x float64) float64) func(float64) record.Usage {
		return func(x float64) record.Usage {
			return record.Usage{Anon: gb(anon(x)), File: gb(file(x)), Shmem: gb(shmem(x)), PSS: gb(pss(x))}
		}
	}
	is := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	rises := func(from, to float64) func(float64) float64 {
		return func(x float64) float64 { return from + (to-from)*x }
	}
	// levels is up after a tenth of the run.
	levels := func(to float64) func(float64) float64 { return func(x float64) float64 { return min(to, to*10*x) } }
	pss := func(size float64) event.Limit {
		l := slurmRSS(size)
		l.Accounting = event.AccountingPSS
		return l
	}
	fine, tight, oom := ended(0, event.VerdictFine), ended(0, event.VerdictTight), killedBy("SIGKILL", event.VerdictOOM)
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
		made made
		want []string // the lines beside --mem
	}{
		{"room for all", made{limit: slurmRSS(16), workers: 4, worker: usage(is(0.2), is(0.8), is(0), is(0)), exit: fine}, nil},
		{"four workers near the limit", made{limit: slurmRSS(5.5), workers: 4, worker: usage(is(0.25), is(0.75), is(0), is(0)), exit: tight}, []string{fewer + "3"}},
		{"killed by the kernel", made{limit: cgroupLimit(4), trainer: steady(1, 0, 0), workers: 4, worker: usage(rises(0.1, 0.75), is(0), is(0), is(0)), exit: oom}, []string{fewer + "3", fresh}},
		{"the workers are not what is large", made{limit: slurmRSS(9), trainer: steady(8, 0, 0), workers: 4, worker: usage(is(0.1), is(0.02), is(0), is(0)), exit: tight}, nil},
		{"one worker", made{limit: slurmRSS(4), trainer: steady(1, 0, 0), workers: 1, worker: usage(is(0.2), is(2.5), is(0), is(0)), exit: tight}, nil},
		{"PSS not read", made{limit: pss(2), workers: 4, worker: usage(is(0.2), is(0.8), is(0), is(0)), used: func(float64) rss.Bytes { return gb(1.9) }, exit: tight}, nil},
		{"mapped pages that grow on", made{limit: slurmRSS(16), workers: 4, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), exit: fine}, []string{fresh}},
		{"mapped pages that no limit counts", made{limit: cgroupLimit(16), workers: 4, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), used: func(float64) rss.Bytes { return gb(2) }, exit: fine}, nil},
		{"mapped pages that level off", made{limit: slurmRSS(16), workers: 4, worker: usage(is(0.2), levels(1.2), is(0), is(0)), exit: fine}, nil},
		{"a leak", made{limit: cgroupLimit(16), workers: 2, worker: usage(rises(0.3, 2), is(0.2), is(0), is(0)), exit: fine}, []string{fresh}},
		{"workers that end with the epoch", made{limit: slurmRSS(16), workers: 4, fresh: 5, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), exit: fine}, nil},
		{"born with the trainer's memory", made{limit: slurmRSS(16), trainer: steady(2, 0, 0), workers: 6, worker: usage(is(1.9), is(0.1), is(0), is(0)), exit: tight}, []string{fewer + "5", first}},
		{"born small", made{limit: slurmRSS(16), trainer: steady(2, 0, 0), workers: 6, worker: usage(is(0.9), is(1.1), is(0), is(0)), exit: tight}, []string{fewer + "5"}},
		{"copied on write, by PSS", made{limit: pss(4.2), trainer: usage(is(2), is(0), is(0), is(1)), workers: 4, worker: usage(is(1.9), is(0), is(0), rises(0.4, 0.75)), used: func(x float64) rss.Bytes { return gb(1 + 4*(0.4+0.35*x)) }, exit: tight}, []string{fewer + "3", arrays}},
		{"copied on write, by the charge", made{limit: cgroupLimit(6), trainer: steady(2, 0, 0), workers: 4, worker: usage(is(1.9), is(0), is(0), is(0)), used: func(x float64) rss.Bytes { return gb(2.2 + 3*x) }, exit: tight}, []string{arrays}},
		{"the charge rises with what the trainer has", made{limit: cgroupLimit(6), trainer: func(x float64) record.Usage { return record.Usage{Anon: gb(2 + 3*x)} }, workers: 4, worker: usage(is(1.9), is(0), is(0), is(0)), used: func(x float64) rss.Bytes { return gb(2.2 + 3*x) }, exit: tight}, nil},
		{"pinned batches that pile up", made{limit: cgroupLimit(16), trainer: func(x float64) record.Usage { return record.Usage{Anon: gb(1), Shmem: gb(0.5 + 4*x)} }, exit: fine}, []string{pinning}},
		{"pinned batches that level off", made{limit: cgroupLimit(16), trainer: func(x float64) record.Usage { return record.Usage{Anon: gb(1), Shmem: gb(min(2, 20*x))} }, exit: fine}, nil},
		{"too few samples", made{limit: slurmRSS(16), every: time.Hour, workers: 4, worker: usage(is(0.2), rises(0.2, 1.2), is(0), is(0)), exit: fine}, nil},
	} {
		lines := Advise([]*record.Run{c.made.run()})
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
	golden(t, "advice_loader.txt", []byte(said))
}

// TestAdviceOnTheSeed: the post's own conclusion, with its figures.
func TestAdviceOnTheSeed(t *testing.T) {
	lines := Advise([]*record.Run{recordtest.SeedRun()})
	mem := theMem(t, lines)
	if mem.Mem < gb(5.39) || mem.Mem > gb(6.5) || !strings.Contains(mem.Why, "5.39 GiB") {
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
	m := made{limit: slurmRSS(5.5), workers: 4, worker: steady(0.2, 0.8, 0), exit: ended(0, event.VerdictTight), journal: true}
	lines := Advise([]*record.Run{asJournal(t, m.run())})
	if l := named(lines, "num_workers=3"); l == nil || len(lines) != 2 {
		t.Errorf("lines %+v", lines)
	}
}

// BenchmarkAdvise is of a day at one sample a second with 16 processes.
func BenchmarkAdvise(b *testing.B) {
	run := made{limit: slurmRSS(16), lasts: 24 * time.Hour, every: time.Second, workers: 15, worker: func(x float64) record.Usage {
		return record.Usage{Anon: gb(0.2), File: gb(0.2 + 0.3*x)}
	}, exit: ended(0, event.VerdictFine)}.run()
	for b.Loop() {
		if lines := Advise([]*record.Run{run}); len(lines) == 0 {
			b.Fatal("no advice")
		}
	}
}

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
	said := ""
	for _, c := range []struct {
		what string
		runs []made
		mem  string // empty: not known
	}{
		{"one clean run", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}}, "exit"},
		{"one that grows on", []made{{limit: slurmRSS(8), trainer: linear(2, 4), exit: ended(0, event.VerdictFine)}}, "exit"},
		{"a short one that grows on", []made{{limit: slurmRSS(8), lasts: 5 * time.Minute, trainer: linear(2, 4), exit: ended(0, event.VerdictFine)}}, "exit"},
		{"one that slows down", []made{{limit: slurmRSS(8), trainer: slows, exit: ended(0, event.VerdictFine)}}, "exit"},
		{"a jump at the end", []made{{limit: slurmRSS(8), trainer: jumps, exit: ended(0, event.VerdictFine)}}, "exit"},
		{"killed by its limit", []made{died("a", 4)}, "6G"},
		{"the kernel", []made{{limit: cgroupLimit(4), trainer: steady(4, 0, 0), exit: killedBy("SIGKILL", event.VerdictOOM)}}, "6G"},
		{"no exit event, and full", []made{{limit: slurmRSS(4), trainer: steady(3.9, 0, 0)}}, "6G"},
		{"no exit event, full, after SIGTERM", []made{{limit: slurmRSS(4), trainer: steady(3.9, 0, 0), events: term}}, ""},
		{"no exit event, and room", []made{{limit: slurmRSS(8), trainer: steady(3.9, 0, 0)}}, ""},
		{"still going on", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), live: true}}, ""},
		{"crashed", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(1, event.VerdictFine)}}, "exit"},
		{"killed by somebody", []made{{limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: killedBy("SIGKILL", event.VerdictKilled)}}, ""},
		{"carried", []made{saved("a", 4)}, "4G"},
		{"carried inside --limit", []made{{limit: user, trainer: steady(3.8, 0, 0), exit: ended(0, event.VerdictCarried)}}, ""},
		{"trimmed by hand with room", []made{byHand(0.5)}, "4608M"},
		{"trimmed by hand where memory was short", []made{byHand(0.95)}, "8G"},
		{"the node's limit alone", []made{{limit: node, trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}}, ""},
		{"nothing used", []made{{limit: user, trainer: steady(0, 0, 0), exit: ended(0, event.VerdictFine)}}, ""},
		{"no limit", []made{{exit: ended(0, event.VerdictFine)}}, ""},
		{"killed, then enough", []made{died("a", 4), {id: "b", limit: slurmRSS(6), trainer: steady(4.5, 0, 0), exit: ended(0, event.VerdictFine)}}, "exit"},
		{"killed, then carried", []made{died("a", 4), saved("b", 4)}, "4G"},
		{"killed, then carried at less", []made{died("a", 4), saved("b", 3)}, "3G"},
		{"carried, then killed", []made{saved("a", 4), died("b", 5)}, "7680M"},
		{"carried, then enough without", []made{saved("a", 4), {id: "b", limit: slurmRSS(8), trainer: steady(5, 0, 0), exit: ended(0, event.VerdictFine)}}, "exit"},
		{"none tells all", []made{{id: "a", limit: slurmRSS(8), trainer: steady(4, 0, 0), live: true}, {id: "b", limit: slurmRSS(8), trainer: steady(3, 0, 0)}}, ""},
		{"an early end that had more", []made{{id: "a", limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}, {id: "b", limit: slurmRSS(8), trainer: steady(6, 0, 0), exit: ended(1, event.VerdictFine)}}, "6656M"},
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
		said += adviceText(c.what, lines)
		if l.Evidence == "" || l.Risk != nil {
			t.Errorf("%s: evidence %q, risk %v", c.what, l.Evidence, l.Risk)
		}
	}
	golden(t, "advice_mem.txt", []byte(said))
}

// adviceText is advice as golden files have it.
func adviceText(what string, lines []Line) string {
	text := "== " + what + "\n"
	for _, l := range lines {
		text += fmt.Sprintf("%s\n    %s\n    %s\n", l.Line, l.Why, l.Evidence)
	}
	return text
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

// named returns the line that begins so, nil where there is none.
func named(lines []Line, begin string) *Line {
	for i := range lines {
		if strings.HasPrefix(lines[i].Line, begin) {
			return &lines[i]
		}
	}
	return nil
}

// theMem is the one line on --mem.
func theMem(t *testing.T, lines []Line) Line {
	t.Helper()
	if len(lines) == 0 || !strings.HasPrefix(lines[0].Line, "#SBATCH --mem") {
		t.Fatalf("no line on --mem first: %+v", lines)
	}
	l := lines[0]
	if want := "#SBATCH --mem=" + policy.MemArg(l.Mem); l.Mem > 0 && l.Line != want || l.Mem == 0 && l.Line != noMem {
		t.Errorf("line %q for %v", l.Line, l.Mem)
	}
	return l
}

// TestFindingIsAdvisedOnce: advice from many runs names what the newest was found
// to do, and the report of one run, which has a place for it, does not twice.
func TestFindingIsAdvisedOnce(t *testing.T) {
	r := grownScene().run()
	lines := Advise([]*record.Run{r})
	last := lines[len(lines)-1]
	if last.Line != "write leak in worker otherwise" || last.Why != "leak in worker, certain: 900 MiB" || !strings.HasSuffix(last.Evidence, "("+r.Meta.ID+")") {
		t.Errorf("%+v", last)
	}
	var b bytes.Buffer
	if err := WriteText(&b, told([]*record.Run{r}, nil, noon), 80, false); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), last.Line); n != 1 {
		t.Errorf("the report tells it %d times", n)
	}
	mended := grownScene()
	mended.job.ID = "13"
	mended.events = mended.events[len(mended.events)-1:]
	later := mended.run()
	later.Meta.ID, later.Meta.Start = "later", noon.Add(time.Hour)
	if lines := Advise([]*record.Run{r, later}); slices.ContainsFunc(lines, func(l Line) bool { return l.Line == last.Line }) {
		t.Errorf("it was mended since: %+v", lines)
	}
}

// TestAdviseNodes: --mem is for each node, so it is the fullest that counts, and a
// record that breaks off where another goes on hides nothing.
func TestAdviseNodes(t *testing.T) {
	said := ""
	for _, test := range []struct {
		name string
		runs []*record.Run
		line string
	}{
		{"both ended well", built(onNode(2), onNode(1)), "#SBATCH --mem=3712M"},
		{"the lead moved", leadMoved(), "#SBATCH --mem=3712M"},
		{"n2 was killed", oomOnN2(), "#SBATCH --mem=6G"},
		{"requeued with more", secondLife(), "#SBATCH --mem=5632M"},
		{"64 nodes", sixtyFour(time.Minute), "#SBATCH --mem=68G"},
	} {
		lines := Advise(test.runs)
		if len(lines) == 0 || lines[0].Line != test.line {
			t.Errorf("%s: %+v", test.name, lines)
		}
		said += adviceText(test.name, lines)
	}
	failed := onNode(1)
	failed.Ends[0].Code = 1
	golden(t, "advice_nodes.txt", []byte(said+adviceText("a rank failed", Advise(built(failed)))))
}

// TestAdviseInTurn: what leaders had one after the other is not added up, and neither is
// their one limit; what two had at the same time, each under its own, is. A part of the
// job that is in no record leaves open what it needs.
func TestAdviseInTurn(t *testing.T) {
	least := func(runs ...*record.Run) []*record.Run { return runs }
	six := inTurn(6)
	others := inTurn(3)
	for i, r := range others {
		r.Meta.Command = []string{"sleep", fmt.Sprint(i)}
	}
	carried := inTurn(2)
	carried[1].Events = append([]record.Entry{
		{At: 70 * time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "85%:trim", Action: event.ActionTrim, Limit: event.LimitUser}},
		{At: 71 * time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.MiB}},
	}, carried[1].Events...)
	failed := inTurn(2)
	failed[1].Exit().Code = new(int)
	*failed[1].Exit().Code = 3
	other := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 2, First: 1, Count: 1, Leader: 1, Start: noon, User: true, Limit: rss.GiB, To: time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.VerdictFine),
	}.Run()
	said := ""
	for _, test := range []struct {
		name string
		runs []*record.Run
		line string
	}{
		{"one", inTurn(1), "#SBATCH --mem=448M"},
		{"two", inTurn(2), "#SBATCH --mem=448M"},
		{"six", six, "#SBATCH --mem=448M"},
		{"six, read in another order", least(six[4], six[0], six[5], six[2], six[1], six[3]), "#SBATCH --mem=448M"},
		{"each with another command", others, "#SBATCH --mem=448M"},
		{"two at the same time", least(inTurn(1)[0], other), "#SBATCH --mem=736M"},
		{"the second is not there", least(six[0], six[2]), noMem},
		{"the first is not there", inTurn(2)[1:], noMem},
		{"the second was carried", carried, noMem},
		{"the second failed", failed, noMem},
	} {
		lines := Advise(test.runs)
		if len(lines) != 1 || lines[0].Line != test.line {
			t.Errorf("%s: %+v", test.name, lines)
		}
		said += adviceText(test.name, lines)
	}
	golden(t, "advice_in_turn.txt", []byte(said))
}
