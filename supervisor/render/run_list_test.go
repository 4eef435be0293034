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
	for _, by := range analysis.FleetBy {
		wide(80, "by "+by, func(s values.Style) error { return Fleet(&all, analysis.FleetOf(rows, by), s) }, values.Style{})
	}
	wide(30, "narrow", func(s values.Style) error { return Fleet(&all, analysis.FleetOf(rows, "command"), s) }, values.Style{})
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
	for _, j := range jobs {
		for _, style := range []values.Style{{}, {Width: 40, ASCII: true}} {
			fmt.Fprintf(&all, "== %s, %d columns\n", j.State, style.Columns())
			if err := Unwrapped(&all, analysis.OfSlurm(j), []string{"/home/u/.rsswarden", "/tmp/rsswarden-1000/records"}, style); err != nil {
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
