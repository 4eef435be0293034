package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

func TestBuild(t *testing.T) {
	r := carriedRun()
	rep := build([]*record.Run{r}, nil, noon)
	if rep.Job != "12" || rep.Outcome != event.VerdictCarried || rep.Duration != 600 || !rep.Start.Equal(noon) {
		t.Errorf("job %q, outcome %q, %v s from %v", rep.Job, rep.Outcome, rep.Duration, rep.Start)
	}
	want := Peaks{
		RSS:      &Peak{Bytes: 1020 * rss.MiB, At: noon, Run: r.Meta.ID},
		PSS:      &Peak{Bytes: 830 * rss.MiB, At: noon, Run: r.Meta.ID},
		NoShared: &Peak{Bytes: 710 * rss.MiB, At: noon, Run: r.Meta.ID},
		// The exit event has it; no sample reads so much, and one nearly.
		Cgroup: &Peak{Bytes: mem.Scale(0.951), At: noon.Add(119 * time.Second), Run: r.Meta.ID},
	}
	if diff := cmp.Diff(want, rep.Peaks); diff != "" {
		t.Errorf("peaks: %s", diff)
	}
	for _, a := range rep.Actions {
		if a.Action == event.ActionRecycle && (a.Fired != 5 || a.Worked != 4 || a.Freed != 4800*rss.MiB || a.Reasons[event.ReasonRecent] != 1 || a.PeakUsed != mem.Scale(0.94)) {
			t.Errorf("recycled: %+v", a)
		}
	}
	if len(rep.Advice) != 1 || rep.Advice[0].Line != "#SBATCH --mem=3000M" || rep.Advice[0].Mem != mem {
		t.Errorf("advice %+v", rep.Advice)
	}
	if n := len(rep.Limits[0].Spark); n != sparkStretches || slices.Min(rep.Limits[0].Spark) < 0.45 {
		t.Errorf("spark of %d: %v", n, rep.Limits[0].Spark)
	}
	if _, err := json.Marshal(rep); err != nil {
		t.Error(err)
	}
}

// TestPeakBetweenSamples: the most that a run told of at its end is what its limit tells
// of, though no sample has so much.
func TestPeakBetweenSamples(t *testing.T) {
	r := made{id: "a", limit: slurmRSS(8), trainer: steady(4, 0, 0), exit: ended(0, event.VerdictFine)}.run()
	r.Exit().Binding.Used = 5 * rss.GiB
	if l := build([]*record.Run{r}, nil, noon).Limits[0]; l.Used != 5*rss.GiB || l.UsedMax < l.Used {
		t.Errorf("%+v", l)
	}
}

// TestBuildOfRanks: what ended one ends the others, and it is the one that is told.
func TestBuildOfRanks(t *testing.T) {
	runs := ranks()
	slices.Reverse(runs)
	rep := build(append(runs, nil, asJournal(t, runs[0])), nil, noon)
	if len(rep.Runs) != 4 || rep.Runs[0].Node != "n1" || rep.Runs[3].Task != 3 {
		t.Errorf("runs %+v", rep.Runs)
	}
	if rep.Cause != event.CauseKernelOOM || !strings.HasPrefix(rep.Verdict, "n2, step 0, task 3: killed by the kernel") {
		t.Errorf("%s: %s", rep.Cause, rep.Verdict)
	}
	if rep.Peaks.Cgroup.Run != "run3" {
		t.Errorf("cgroup peak of %s", rep.Peaks.Cgroup.Run)
	}
	if rep.Runs[3].JournalOnly {
		t.Error("the journal was preferred to the record")
	}
	// Slurm's word is on the step, on all nodes.
	said := ofSlurm("FAILED", "1:0", "", "", "")
	said.Steps = []StepSays{{ID: "12.0", State: "OUT_OF_MEMORY", ExitCode: "0:125"}}
	rep = build(runs, said, noon)
	if rep.Certainty != Seen || rep.Runs[0].Cause != event.CauseCancelled || !strings.HasPrefix(rep.Verdict, "n2, step 0, task 3: killed by the kernel") {
		t.Errorf("%s %s: %s", rep.Certainty, rep.Runs[0].Cause, rep.Verdict)
	}
	rep = build(runs[1:2], said, noon)
	if rep.Cause != event.CauseKernelOOM || rep.Certainty != Slurm {
		t.Errorf("of one task alone: %s, %s: %s", rep.Cause, rep.Certainty, rep.Verdict)
	}
}

// TestBuildOfRequeued: Slurm speaks of the last time that a job ran.
func TestBuildOfRequeued(t *testing.T) {
	first := find(t, "kernel, watcher and all: memory.oom.group").scene.run()
	first.Meta.ID = "first"
	s := find(t, "ended").scene
	s.job = inJob()
	s.job.Restarts = 1
	second := s.run()
	second.Meta.ID, second.Meta.Start = "second", noon.Add(time.Hour)
	said := ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0")
	said.Start = noon.Add(time.Hour)
	rep := build([]*record.Run{first, second}, said, noon)
	if rep.Cause != event.CauseEnded || rep.Runs[0].Cause != event.CauseKernelOOM {
		t.Errorf("%s, the first time %s: %s", rep.Cause, rep.Runs[0].Cause, rep.Verdict)
	}
}

// TestForecasts judges forecasts of a limit that is reached 100 s in, or not at
// all.
func TestForecasts(t *testing.T) {
	for _, test := range []struct {
		name  string
		etas  map[int]float64 // seconds into the run: forecast
		reach int             // when the limit is reached, 0 for never
		freed int             // when an action frees memory, 0 for never
		kill  bool            // the limit ends the run after 200 s
		want  Forecast
	}{
		{name: "none"},
		{name: "right", etas: map[int]float64{50: 50, 60: 30, 70: 59}, reach: 100, want: Forecast{Made: 3, Right: 3}},
		{name: "too soon and too late", etas: map[int]float64{50: 20, 60: 100}, reach: 100, want: Forecast{Made: 2, False: 2}},
		{name: "never reached", etas: map[int]float64{50: 20, 190: 20}, want: Forecast{Made: 2, False: 1, Open: 1}},
		{name: "an action came first", etas: map[int]float64{50: 50, 90: 20}, freed: 80, reach: 100, want: Forecast{Made: 2, Right: 1, Open: 1}},
		{name: "it ended the run", etas: map[int]float64{150: 50, 199: 100}, kill: true, want: Forecast{Made: 2, Right: 1, False: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := record.NewBuilder(record.Meta{ID: "x", Start: noon})
			b.Limit(limitJob)
			for at := range 201 {
				r := record.Reading{Size: mem, Used: mem.Scale(0.95), ETA: -1}
				if e, ok := test.etas[at]; ok {
					r.ETA = e
				}
				if test.reach > 0 && at == test.reach {
					r.Used = mem
				}
				b.Sample(&record.Sample{At: time.Duration(at) * time.Second, Limits: []record.Reading{r}})
			}
			if test.freed > 0 {
				b.Event(record.Entry{At: time.Duration(test.freed) * time.Second, Value: &event.Outcome{OK: true, Freed: rss.MiB}})
			}
			if test.kill {
				b.Event(exits(200*time.Second, "SIGKILL", 0, kills(1)...))
			} else {
				b.Event(exits(200*time.Second, "", 0))
			}
			got := build([]*record.Run{b.Run()}, nil, noon).Forecast
			if got == nil {
				got = &Forecast{}
			}
			got.Note, got.RightShare = "", 0
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSpark(t *testing.T) {
	for _, length := range []time.Duration{time.Second, time.Minute, time.Hour, 1000 * time.Hour} {
		var s spark
		for i := range 1000 {
			s.add(time.Duration(i)*length/1000, float64(i)/1000)
		}
		got := s.stretches(length)
		for i := range got {
			want := float64(i+1) / sparkStretches
			if length >= time.Minute && (got[i] < want-0.03 || got[i] > want+0.003) {
				t.Fatalf("%v: stretch %d is %.3f, want %.3f", length, i, got[i], want)
			}
		}
	}
	var s spark
	s.add(0, 1)
	s.add(time.Hour, 0.5)
	if got := s.stretches(time.Hour); got[0] != 1 || got[20] != -1 || got[39] != 0.5 {
		t.Errorf("with a gap: %v", got)
	}
}

func TestWriteCSV(t *testing.T) {
	s := find(t, "maps").scene
	s.length = 2 * time.Second
	s.maps = func(time.Duration) int { return 1234 }
	r := s.run()
	r.Procs[1].Comm = "a,\"b\x1b\n"
	j := asJournal(t, r)
	j.Meta.ID = "journal"
	var b bytes.Buffer
	if err := WriteCSV(&b, []*record.Run{r, j}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), 0x1b) {
		t.Error("an escape in the table")
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(CSVHeader, rows[0]); diff != "" || len(CSVHeader) != columns {
		t.Fatalf("header: %s", diff)
	}
	count := map[string]int{}
	for _, row := range rows[1:] {
		count[row[colKind]]++
		if _, err := time.Parse(time.RFC3339, row[colTime]); err != nil {
			t.Fatal(err)
		}
	}
	// Three samples of four processes and one limit; the first of them again
	// from the journal, with two roles.
	if diff := cmp.Diff(map[string]int{"process": 12, "limit": 4, "role": 2}, count); diff != "" {
		t.Errorf("rows by kind: %s", diff)
	}
	want := map[int]string{
		colTime: "2026-11-20T12:00:00.000Z", colElapsed: "0.000", colKind: "process", colPID: "701", colStart: "9", colComm: "python", colRole: "trainer",
		colExtra: "0", colOurs: "0", colRSS: "681574400", colAnon: "524288000", colMaps: "1234", colFDs: "40", colLimit: "", colETA: "",
	}
	first := rows[slices.IndexFunc(rows, func(row []string) bool { return row[colKind] == "process" })]
	for c, v := range want {
		if first[c] != v {
			t.Errorf("%s is %q, want %q", CSVHeader[c], first[c], v)
		}
	}
}

func TestSays(t *testing.T) {
	got := Says(slurm.EndedJob{Source: "sacct", ID: "10", State: "FAILED", ExitCode: "0:9", ReqMem: "102400K",
		Steps: []slurm.EndedStep{{ID: "10.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 931340 << 10}}})
	if got.reqMem() != 100*rss.MiB || askedFor(&got) != "100M" || !got.killedBySlurmstepd(got.step("10", "batch")) {
		t.Errorf("%+v: %v", got, got.reqMem())
	}
	for text, want := range map[string]rss.Bytes{"400M": 400 * rss.MiB, "4G": 4 * rss.GiB, "400Mn": 400 * rss.MiB, "100Mc": 0, "": 0, "x": 0} {
		if b := (&SlurmSays{ReqMem: text}).reqMem(); b != want {
			t.Errorf("ReqMem %q is %v, want %v", text, b, want)
		}
	}
}

// BenchmarkBuild reports a day of 16 processes at a sample a second.
func BenchmarkBuild(b *testing.B) {
	builder := record.NewBuilder(record.Meta{ID: "day", Start: noon, Job: inJob(), MaxMapCount: 65530, MaxFDs: 1024})
	for i := range 16 {
		role := rss.RoleWorker
		if i < 4 {
			role = rss.RoleTrainer
		}
		builder.Proc(record.Proc{ID: rss.ProcID{PID: 700 + i}, Comm: "python", Role: role})
	}
	builder.Limit(limitJob)
	builder.Limit(limitStepd)
	const samples = 24 * 3600
	for at := range samples {
		s := &record.Sample{At: time.Duration(at) * time.Second}
		var sum rss.Bytes
		for i := range 16 {
			u := record.Usage{Proc: i, Anon: 200*rss.MiB + rss.Bytes((at*(i+7)*977)%(1<<24)), File: 90*rss.MiB + rss.Bytes((at*(i+3)*571)%(1<<22)), PSS: 200 * rss.MiB, Maps: 900, FDs: 60}
			sum += u.RSS()
			s.Procs = append(s.Procs, u)
		}
		s.Limits = []record.Reading{
			{Limit: 0, Used: sum, UsedMax: sum, Charged: sum + 100*rss.MiB, WorkingSet: sum, Size: 8 * rss.GiB, ETA: float64(at % 600), Binding: true},
			{Limit: 1, Used: sum, UsedMax: sum, Size: 8 * rss.GiB, ETA: -1},
		}
		builder.Sample(s)
	}
	builder.Event(exits(samples*time.Second, "", 0))
	r := builder.Run()
	b.ReportAllocs()
	for b.Loop() {
		if rep := build([]*record.Run{r}, nil, noon); rep.Cause != event.CauseEnded {
			b.Fatal(rep.Verdict)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
}

// TestCarriedByHand: what somebody asked for while there was room kept nothing inside a
// limit.
func TestCarriedByHand(t *testing.T) {
	for share, want := range map[float64]event.Verdict{0.5: event.VerdictFine, 0.9: event.VerdictCarried} {
		code := 0
		run := scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: standing([]rss.Bytes{mem}, share), events: []record.Entry{
			{At: time.Minute, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: event.AskedFor, By: 9, Action: event.ActionTrim, Limit: event.LimitCgroup, Used: mem.Scale(share), LimitSize: mem}},
			{At: time.Minute + time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.GiB}},
			{At: minutes, Name: event.NameExit, Value: &event.Exit{By: "command", Code: &code, Verdict: event.VerdictCarried}},
		}}.run()
		rep := build([]*record.Run{run}, nil, noon)
		if rep.Outcome != want || strings.Contains(rep.Verdict, "kept inside its limit") != (want == event.VerdictCarried) {
			t.Errorf("%v: %s: %s", share, rep.Outcome, rep.Verdict)
		}
	}
}

// BenchmarkPage is of a day of 64 processes at a sample a second, with what is drawn.
func BenchmarkPage(b *testing.B) {
	d := dayRun()
	d.workers = 61
	r := d.build()
	for b.Loop() {
		if rep := Analyze(Input{Runs: []*record.Run{r}, Now: noon, Timeline: true}); len(rep.Timeline.Runs) != 1 {
			b.Fatal(rep.Verdict)
		}
	}
}
