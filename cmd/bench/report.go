package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// Schema is the value of "schema" in a report. Fields are only ever added to
// one schema.
const Schema = 1

// Report is what one run of bench writes, as one JSON object.
type Report struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"` // git describe, or "unknown"
	Commit  string `json:"commit"`  // the full hash, or "unknown"
	// Dirty says that tracked files differed from the commit.
	Dirty bool      `json:"dirty,omitempty"`
	Time  time.Time `json:"time"` // when it began, RFC 3339
	// Seconds is how long it took.
	Seconds float64  `json:"seconds"`
	Kernel  string   `json:"kernel"` // uname -r
	CPU     string   `json:"cpu"`    // model name of /proc/cpuinfo
	CPUs    int      `json:"cpus"`
	Memory  uint64   `json:"memory_bytes"`
	Go      string   `json:"go"`
	Args    []string `json:"args"`
	// Quick says that runs were few and short: to be compared with nothing.
	Quick bool `json:"quick"`
	// LoadBefore and LoadAfter are the first field of /proc/loadavg at the
	// beginning and at the end: what the machine did beside, and at the end
	// also what was measured.
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
	// Rows is never null, and has the order of the table.
	Rows    []Row     `json:"rows"`
	Skipped []Skipped `json:"skipped"`
}

// Row is one quantity, of ours and of its peers, measured in turns. Group and
// Name together name it across reports.
type Row struct {
	Group string `json:"group"` // "a" to "k", "go"
	Name  string `json:"name"`
	Unit  string `json:"unit"` // of all runs; smaller is better
	// Series has ours first.
	Series []Series `json:"series"`
	Checks []Check  `json:"checks"`
	// Notes are sentences for people.
	Notes []string `json:"notes,omitempty"`
}

// Series is the runs of one program.
type Series struct {
	Who  string `json:"who"`
	Ours bool   `json:"ours"`
	// Runs is every run in the order in which they were made; run i of one
	// series was made next to run i of the others.
	Runs   []float64 `json:"runs"`
	Median float64   `json:"median"`
	P95    float64   `json:"p95"`
}

// Check is a number that follows from a row's series, with its goal if it has one.
type Check struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	// Op is "<=" or ">=", empty where there is no goal.
	Op   string  `json:"op,omitempty"`
	Goal float64 `json:"goal,omitempty"`
	Met  *bool   `json:"met,omitempty"` // nil where there is no goal
}

// Skipped is a group, or a peer in it, that was not measured.
type Skipped struct {
	Group string `json:"group"`
	Why   string `json:"why"`
}

// row begins a row of the current group.
func (b *bench) row(name, unit string) *Row {
	return &Row{Group: b.group, Name: name, Unit: unit, Checks: []Check{}}
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
	r.Checks = append(r.Checks, Check{What: what, Value: value, Unit: unit, Op: op, Goal: goal, Met: &met})
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

// finish fills in what is known at the end.
func (r *Report) finish() {
	r.Seconds = time.Since(r.Time).Seconds()
	r.LoadAfter = load()
}

func (r *Report) write(name string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("cannot encode the report: %w", err)
	}
	if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	return nil
}

func readReport(name string) (*Report, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("cannot read the report %s: %w", name, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("cannot read the report %s: its schema is %d, mine is %d", name, r.Schema, Schema)
	}
	return &r, nil
}
