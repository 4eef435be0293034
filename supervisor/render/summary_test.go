package render

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// TestSummaries: how a run may end, by how near it came to its limit and by what helped: each
// pair is a summary of five lines of 80 columns at most.
func TestSummaries(t *testing.T) {
	gib := func(n float64) rss.Bytes { return rss.Bytes(n * float64(rss.GiB)) }
	limit := func(name event.LimitName, share float64) *event.Limit {
		l := &event.Limit{Name: name, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Limit: gib(3)}
		if name == event.LimitUser {
			l.Scope, l.Accounting = event.ScopeTree, event.AccountingRSS
		}
		l.Used = l.Limit.Scale(share)
		return l
	}
	trimmed := event.Saved{Helped: 1, Recycled: 7, WorkerTrims: 30, Dropped: gib(2), Actions: []event.ActionSum{
		{Action: event.ActionTrim, Fired: 9, Worked: 9, Freed: gib(1), PeakUsed: gib(2.7)},
		{Action: event.ActionRecycle, Fired: 8, Worked: 7, Freed: gib(1.5), Paused: 0.35, PeakUsed: gib(2.8)},
	}}
	skipped := event.Saved{Actions: []event.ActionSum{
		{Action: event.ActionTrim, Skipped: 2, Reasons: map[event.Reason]int{event.ReasonNoWorker: 2}},
		{Action: event.ActionRecycle, Skipped: 1, Reasons: map[event.Reason]int{event.ReasonNoWorker: 1}},
	}}
	ends := []struct {
		name string
		set  func(*analysis.RunFacts)
	}{
		{"exit 0", func(*analysis.RunFacts) {}},
		{"exit 3", func(f *analysis.RunFacts) { f.Code = 3 }},
		{"exit 137", func(f *analysis.RunFacts) { f.Code = 137 }},
		{"SIGKILL", func(f *analysis.RunFacts) { f.Signal = "SIGKILL" }},
		{"SIGTERM from outside", func(f *analysis.RunFacts) { f.Signal, f.Met = "SIGTERM", event.RunCancelled }},
		{"time limit", func(f *analysis.RunFacts) { f.Signal, f.Met = "SIGTERM", event.RunTimeout }},
		{"stop rule", func(f *analysis.RunFacts) { f.Code, f.Met = 137, event.RunStopped }},
		{"requeue", func(f *analysis.RunFacts) { f.Signal, f.Met, f.Again = "SIGTERM", event.RunRequeued, gib(3.75) }},
		{"OverMemoryKill", func(f *analysis.RunFacts) { f.Signal, f.Met = "SIGTERM", event.RunSlurmKill }},
		{"none left", func(f *analysis.RunFacts) { f.Code, f.Met = 1, event.RunExhausted }},
		{"not known", func(f *analysis.RunFacts) { f.Met = event.RunUnknown }},
		{"running", func(f *analysis.RunFacts) { f.Met = event.RunRunning }},
	}
	const oomKill = "the kernel counted an OOM kill"
	memories := []struct {
		name string
		set  func(*analysis.RunFacts)
	}{
		{"fine", func(f *analysis.RunFacts) { f.Peak = limit(event.LimitCgroup, 0.53) }},
		{"tight, nothing helped", func(f *analysis.RunFacts) { f.Peak, f.Saved = limit(event.LimitCgroup, 0.92), &skipped }},
		{"tight, helped", func(f *analysis.RunFacts) {
			f.Peak, f.Saved = limit(event.LimitCgroup, 0.94), &trimmed
			f.Without = map[event.LimitID]rss.Bytes{f.Peak.ID(): gib(5.2)}
		}},
		{"over --limit, growing", func(f *analysis.RunFacts) {
			f.Peak, f.Saved = limit(event.LimitUser, 1.52), &skipped
			f.Growing = map[event.LimitID]rss.Bytes{f.Peak.ID(): 66 * rss.MiB}
		}},
		{oomKill, func(f *analysis.RunFacts) {
			f.Peak = limit(event.LimitCgroup, 1)
			f.Meet(event.RunOOM, true)
		}},
		{"no limit", func(*analysis.RunFacts) {}},
	}
	var all strings.Builder
	for _, end := range ends {
		for _, memory := range memories {
			f := analysis.RunFacts{Saved: &event.Saved{}}
			end.set(&f)
			ended := f.Met != event.RunUnknown && f.Met != event.RunRunning
			memory.set(&f)
			if f.Ends = f.Peak; f.Peak != nil && f.Peak.Name == event.LimitUser {
				f.Ends = nil
			}
			b := analysis.Brief{
				Brief: f.Brief(2*time.Hour + 5*time.Minute), Peak: f.Peak, Command: []string{"python", "train.py"}, Job: "4711", Recorded: true,
				Most: gib(1.2), At: time.Date(2026, 11, 20, 17, 55, 16, 0, time.UTC),
			}
			b.Rule, b.Cancelled = "95%:rule", f.Signal
			switch {
			case f.Signal != "":
				b.Signal = &f.Signal
			case ended:
				b.Code = &f.Code
			}
			if memory.name == oomKill {
				b.Kills = 1
			}
			if b.Outcome == event.RunExhausted {
				b.Lacked, b.LackedLimit = event.LimitFDs, &event.Limit{Name: event.LimitFDs, Used: 1019, Limit: 1024}
			}
			fmt.Fprintf(&all, "== %s, memory %s: %s\n", end.name, memory.name, b.Outcome)
			lines := Summary(&b, values.Style{})
			if len(lines) == 0 || len(lines) > 5 {
				t.Errorf("%s, %s: %d lines", end.name, memory.name, len(lines))
			}
			for _, line := range lines {
				line = programPrefix + line
				if n := values.Columns(line); n > 80 || strings.Contains(line, "--mem=?") {
					t.Errorf("%d columns: %s", n, line)
				}
				all.WriteString(line + "\n")
			}
			lines = Short(&b, values.Style{})
			if n := len(lines); n != 0 && n != 3 {
				t.Errorf("%s, %s: %d lines in short", end.name, memory.name, n)
			}
			for _, line := range lines {
				line = programPrefix + line
				if n := values.Columns(line); n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
				all.WriteString("by the site: " + line + "\n")
			}
			if Headline(&b) == "" || (f.Code != 0 || f.Signal != "") && strings.Contains(Summary(&b, values.Style{})[0], "finished") {
				t.Errorf("%s, %s: %q", end.name, memory.name, lines)
			}
		}
	}
	golden.Check(t, "testdata/summaries.txt", all.String())
}

// TestEnough: what is enough is so with rsswarden alone where it freed what the run needed.
func TestEnough(t *testing.T) {
	limit := func(used, size rss.Bytes) *event.Limit {
		return &event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: used * rss.MiB, Limit: size * rss.MiB}
	}
	recycled := event.Saved{Helped: 1, Recycled: 8, Actions: []event.ActionSum{{Action: event.ActionRecycle, Fired: 8, Worked: 8, Freed: rss.GiB}}}
	for want, f := range map[string]analysis.RunFacts{
		"--limit 416M with rsswarden, up to 1.2 GiB without":      {Peak: limit(366, 360), Saved: &recycled, Without: map[event.LimitID]rss.Bytes{limit(0, 0).ID(): 1200 * rss.MiB}},
		"--limit 416M is enough (peak + 10 %, rounded up)":        {Peak: limit(366, 360), Saved: &event.Saved{}},
		"#SBATCH --mem=64M is enough (the least that is advised)": {Peak: limit(2, 900), Ends: limit(2, 900), Saved: &event.Saved{}},
	} {
		b := analysis.Brief{Brief: f.Brief(time.Hour), Peak: f.Peak}
		if got := NextWords(&b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWhoKillsAbove: --limit kills nothing, Slurm may have looked while use was lower.
func TestWhoKillsAbove(t *testing.T) {
	for name, want := range map[event.LimitName]string{event.LimitUser: "; nothing kills there", event.LimitSlurm: "; Slurm may kill there"} {
		b := analysis.Brief{Brief: event.Brief{Outcome: event.RunOver}, Peak: &event.Limit{Name: name, Used: 2162, Limit: 2150}}
		if got := headTail(&b, true); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestSummaryHasEveryAction: whatever a rule may do is counted, but for what the headline says.
func TestSummaryHasEveryAction(t *testing.T) {
	for _, a := range event.Actions {
		b := analysis.Brief{Brief: event.Brief{Saved: event.Saved{Actions: []event.ActionSum{{Action: a, Worked: 2}}}}}
		r := a.Row()
		if r.Single {
			b.Saved.Recycled = 2
		}
		if text := didWords(&b); (text == "") != r.Ends || !r.Ends && !strings.HasPrefix(text, "2 ") {
			t.Errorf("%s: did %q", a, text)
		}
	}
}

// TestRunList draws the list, its sums and single rows, on streams of several kinds.
func TestRunList(t *testing.T) {
	zone := time.Local
	time.Local = time.UTC
	defer func() { time.Local = zone }()
	now := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	var entries []record.IndexEntry
	for i, o := range append(event.RunOutcomes, "later") {
		at := now.Add(-time.Duration(1+i*i*i) * 7 * time.Hour)
		e := record.IndexEntry{
			V: 1, ID: record.NewID(at, nil, "n1", 100+i), Start: at, Outcome: o, Seconds: []float64{0.2, 19, 754, 29000, 400000}[i%5],
			Limit: []event.LimitName{event.LimitCgroup, event.LimitUser, "", event.LimitSlurm}[i%4], Peak: []float64{0.9975, 1.52, 0, 0.01}[i%4],
			Size: []rss.Bytes{400 << 20, 1100 << 20, 0, 30 << 30}[i%4], User: "alice", Node: "n1", Command: "python3 train.py --epochs 4",
		}
		if o != event.RunRunning && o != event.RunUnknown {
			e.Exit = &[]int{0, 3, 137}[i%3]
		}
		if i%3 == 0 {
			e.Job = fmt.Sprint(4711 + i)
		}
		entries = append(entries, e)
	}
	entries[2].Command = "\x1b[31mred“\n name"
	entries[3].Command = strings.Repeat("very/long/path/", 20)
	rows := analysis.ListRuns(entries)
	rows[1].Ranks = 8
	for i := range rows {
		rows[i].Short = fmt.Sprintf("%03da", i)
	}
	list := analysis.RunList{V: 1, Total: 212, Runs: rows}

	var all bytes.Buffer
	wide := func(columns int, name string, draw func(style values.Style) error, style values.Style) {
		before := all.Len()
		style.Width = columns
		fmt.Fprintf(&all, "== %s\n", name)
		if err := draw(style); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(all.Bytes()[before:])) {
			if l = strings.TrimSuffix(l, "\n"); !style.Color && (values.Columns(l) > max(columns, 20) || values.Plain(l) != l || strings.TrimRight(l, " ") != l) {
				t.Errorf("too wide, blanks at the end or control characters: %q", l)
			}
		}
	}
	draw := func(s values.Style) error { return RunList(&all, list, s, now) }
	wide(80, "80 columns", draw, values.Style{})
	wide(120, "120 columns", draw, values.Style{})
	wide(60, "60 columns, ASCII", draw, values.Style{ASCII: true})
	wide(20, "20 columns", draw, values.Style{})
	list.Runs, list.Total = rows[:2], 2
	wide(80, "colour", draw, values.Style{Color: true})
	list.Runs, list.Total = nil, 0
	wide(80, "none", draw, values.Style{})
	for _, r := range rows[1:4] {
		wide(80, "one", func(s values.Style) error { return Listed(&all, r, s) }, values.Style{})
	}
	golden.Check(t, "testdata/run_list.txt", all.String())
}

// TestUnwrapped draws what Slurm says of jobs without a record.
func TestUnwrapped(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	job := slurm.EndedJob{
		Source: "sacct", ID: "4711", Name: "train.sh", NodeList: "n2", State: "OUT_OF_MEMORY", ExitCode: "0:125", ReqMem: "3000M",
		Start: start, End: start.Add(191 * time.Minute), Steps: []slurm.EndedStep{{ID: "4711.batch", MaxRSS: 2881 << 20}},
	}
	failed, bare := job, job
	failed.State, failed.ExitCode, failed.ReqMem, failed.Name = "FAILED", "3:0", "1000Mc", strings.Repeat("name ", 20)+"\x1b[31m"
	bare.Source, bare.State, bare.Steps, bare.End, bare.Name = "scontrol show job", "RUNNING", nil, time.Time{}, ""
	var all bytes.Buffer
	overMemory, lost := failed, job
	overMemory.ExitCode, overMemory.Reason, overMemory.ReqMem = "0:9", "JobLaunchFailure", "8Gn"
	lost.State = "NODE_FAIL"
	jobs := []slurm.EndedJob{job, failed, bare, overMemory, lost}
	for _, state := range []string{"COMPLETED", "TIMEOUT", "CANCELLED"} {
		lost.State = state
		jobs = append(jobs, lost)
	}
	crashed, killed := failed, failed
	crashed.ExitCode, killed.ExitCode = "0:11", "0:9"
	killed.Steps = []slurm.EndedStep{{ID: "4711.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 2881 << 20}}
	jobs = append(jobs, crashed, killed)
	steps := job
	steps.State, steps.ExitCode, steps.Steps = "TIMEOUT", "0:0", []slurm.EndedStep{
		{ID: "4711.batch", State: "CANCELLED", ExitCode: "0:15"}, {ID: "4711.extern", State: "COMPLETED", ExitCode: "0:0", MaxRSS: 1 << 20},
		{ID: "4711.0", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 3100 << 20}, {ID: "4711.1", State: "OUT_OF_MEMORY", ExitCode: "0:125", MaxRSS: 2 << 30},
		{ID: "4711.2", State: "CANCELLED", By: "1000", ExitCode: "0:15"}, {ID: "4711.3", State: "FAILED", ExitCode: "3:0"}, {ID: "4711.4", State: "RUNNING"},
	}
	for _, step := range steps.Steps {
		_, name, _ := strings.Cut(step.ID, ".")
		u, ok := analysis.OfSlurm(steps, name)
		fmt.Fprintf(&all, "== step %s, %v\n", name, ok)
		if err := Unwrapped(&all, u, []string{"/home/u/.rsswarden"}, values.Style{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := analysis.OfSlurm(steps, "7"); ok {
		t.Error("a step that is not there")
	}
	for _, j := range jobs {
		for _, style := range []values.Style{{}, {Width: 40, ASCII: true}} {
			fmt.Fprintf(&all, "== %s, %d columns\n", j.State, style.Columns())
			u, _ := analysis.OfSlurm(j, "")
			if err := Unwrapped(&all, u, []string{"/home/u/.rsswarden", "/tmp/rsswarden-1000/records"}, style); err != nil {
				t.Fatal(err)
			}
		}
	}
	for l := range strings.Lines(all.String()) {
		if l = strings.TrimSuffix(l, "\n"); values.Columns(l) > 80 || values.Plain(l) != l {
			t.Errorf("too wide, or control characters: %q", l)
		}
	}
	golden.Check(t, "testdata/unwrapped.txt", all.String())
}
