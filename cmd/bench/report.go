package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// Report is what one run of bench measured, and where.
type Report struct {
	Version string // git describe, or "unknown"
	Commit  string // the full hash, or "unknown"
	Dirty   bool   // tracked files differed from the commit
	Began   time.Time
	Kernel  string // uname -r
	CPU     string // model name of /proc/cpuinfo
	CPUs    int
	Memory  uint64  // bytes
	Quick   bool    // runs were few and short: to be compared with nothing
	Load    float64 // the first field of /proc/loadavg when it began
	Rows    []Row   // in the order of the table
	Skipped []Skipped
}

// Row is one quantity, of ours and of its peers, measured in turns. Group and
// Name together name it across reports.
type Row struct {
	Group  string // "a" to "k", "go"
	Name   string
	Unit   string   // of all runs; smaller is better
	Series []Series // ours first
	Checks []Check
	Notes  []string // sentences for people
}

// Series is the runs of one program.
type Series struct {
	Who  string
	Ours bool
	// Runs is every run in the order in which they were made; run i of one
	// series was made next to run i of the others.
	Runs        []float64
	Median, P95 float64
}

// Check is a number that follows from a row's series, with its goal if it has one.
type Check struct {
	What  string
	Value float64
	Unit  string
	Op    string // "<=" or ">=", empty where there is no goal
	Goal  float64
	Met   bool
}

// Skipped is a group, or a peer in it, that was not measured.
type Skipped struct{ Group, Why string }

// row begins a row of the current group.
func (b *bench) row(name, unit string) *Row {
	return &Row{Group: b.group, Name: name, Unit: unit}
}

// add puts a row into the report; one without runs has nothing to say.
func (b *bench) add(r *Row) {
	r.Series = slices.DeleteFunc(r.Series, func(s Series) bool { return len(s.Runs) == 0 })
	if len(r.Series) > 0 {
		b.report.Rows = append(b.report.Rows, *r)
	}
}

func (b *bench) skip(why string) {
	b.report.Skipped = append(b.report.Skipped, Skipped{b.group, why})
}

func (r *Row) ours(who string, runs []float64) { r.put(who, true, runs) }
func (r *Row) peer(who string, runs []float64) { r.put(who, false, runs) }

func (r *Row) put(who string, ours bool, runs []float64) {
	r.Series = append(r.Series, Series{Who: who, Ours: ours, Runs: runs, Median: quantile(runs, 0.5), P95: quantile(runs, 0.95)})
}

func (r *Row) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// tell adds a number that has no goal.
func (r *Row) tell(what string, value float64, unit string) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.Checks = append(r.Checks, Check{What: what, Value: value, Unit: unit})
	}
}

func (r *Row) atMost(what string, value, goal float64, unit string) {
	r.check(what, value, "<=", goal, unit, value <= goal)
}

func (r *Row) atLeast(what string, value, goal float64, unit string) {
	r.check(what, value, ">=", goal, unit, value >= goal)
}

func (r *Row) check(what string, value float64, op string, goal float64, unit string, met bool) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		r.note("%s: cannot be told from these runs", what)
		return
	}
	r.Checks = append(r.Checks, Check{What: what, Value: value, Unit: unit, Op: op, Goal: goal, Met: met})
}

// median returns the median of the series of that name, NaN where there is none.
func (r *Row) median(who string) float64 {
	for _, s := range r.Series {
		if s.Who == who && len(s.Runs) > 0 {
			return s.Median
		}
	}
	return math.NaN()
}

// quantile returns the value below which a share q of the runs lie, one of the
// runs itself but for the median of an even number; 0 where there are none.
func quantile(runs []float64, q float64) float64 {
	if len(runs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(runs))
	if q == 0.5 {
		return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
	}
	return s[max(int(math.Ceil(q*float64(len(s))))-1, 0)]
}

// write writes all runs to a file in the format of Go benchmarks, a line a run and a
// check, for benchstat to compare.
func (r *Report) write(name string) error {
	var text bytes.Buffer
	w := benchfmt.NewWriter(&text)
	line := func(row *Row, who, unit string, v float64) error {
		res := benchfmt.Result{Name: benchfmt.Name(field(row.Group + "/" + row.Name + "/" + who)), Iters: 1, Values: []benchfmt.Value{inBase(v, unit)}}
		for _, c := range [][2]string{
			{"commit", r.Commit}, {"version", r.Version}, {"date", r.Began.Format(time.RFC3339)}, {"kernel", r.Kernel},
			{"cpu", r.CPU}, {"cpus", strconv.Itoa(r.CPUs)}, {"load", figure(r.Load)}, {"quick", strconv.FormatBool(r.Quick)},
		} {
			res.Config = append(res.Config, benchfmt.Config{Key: c[0], Value: []byte(c[1]), File: true})
		}
		return w.Write(&res)
	}
	var err error
	for i := range r.Rows {
		row := &r.Rows[i]
		for _, s := range row.Series {
			for _, v := range s.Runs {
				err = errors.Join(err, line(row, s.Who, row.Unit, v))
			}
		}
		for _, c := range row.Checks {
			err = errors.Join(err, line(row, "check "+c.What, cmp.Or(c.Unit, "ratio"), c.Value))
		}
	}
	if err == nil {
		err = os.WriteFile(name, text.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the report %s: %w", name, err)
	}
	return nil
}

// field is text as one word.
func field(text string) string { return strings.Join(strings.Fields(text), "_") }

// inBase is a time in the unit that benchstat scales by itself, and another value as it is.
func inBase(v float64, unit string) benchfmt.Value {
	if ns, ok := map[string]float64{"s": 1e9, "ms": 1e6, "µs": 1e3}[unit]; ok {
		return benchfmt.Value{Value: v * ns, Unit: "ns/op"}
	}
	return benchfmt.Value{Value: v, Unit: field(unit)}
}
