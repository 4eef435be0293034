package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/sys/unix"
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
	Ours   bool     // the first is
	Checks []Check
	Notes  []string // sentences for people
}

// Series is the runs of one program.
type Series struct {
	Who string
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
	r.Ours = len(r.Series) > 0 && len(r.Series[0].Runs) > 0
	r.Series = slices.DeleteFunc(r.Series, func(s Series) bool { return len(s.Runs) == 0 })
	if len(r.Series) > 0 {
		b.report.Rows = append(b.report.Rows, *r)
	}
}

func (b *bench) skip(why string) {
	b.report.Skipped = append(b.report.Skipped, Skipped{b.group, why})
}

// put adds the runs of one program, ours first.
func (r *Row) put(who string, runs []float64) {
	r.Series = append(r.Series, Series{Who: who, Runs: runs, Median: quantile(runs, 0.5), P95: quantile(runs, 0.95)})
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

// of returns the series of that name, an empty one where there is none.
func (r *Row) of(who string) Series {
	for _, s := range r.Series {
		if s.Who == who && len(s.Runs) > 0 {
			return s
		}
	}
	return Series{Median: math.NaN()}
}

func (r *Row) median(who string) float64 { return r.of(who).Median }

// times is how many times as long one takes as another.
func (r *Row) times(slow, fast string) float64 { return r.median(slow) / r.median(fast) }

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

// The widths of the table's columns: who, and each number.
const (
	wide   = 44
	number = 10
)

func printHead(w io.Writer, r *Report) {
	dirty := ""
	if r.Dirty {
		dirty = ", with changes"
	}
	fmt.Fprintf(w, "rsswarden %s (%.12s%s), %s\n", r.Version, r.Commit, dirty, r.Began.Format(time.RFC3339))
	fmt.Fprintf(w, "%d × %s, %.0f GiB, Linux %s, %s, load %.1f\n", r.CPUs, r.CPU, float64(r.Memory)/(1<<30), r.Kernel, runtime.Version(), r.Load)
	if r.Load > float64(r.CPUs)/2 {
		fmt.Fprintln(w, "the machine is busy: what follows shows that it works, not how fast it is")
	}
	if r.Quick {
		fmt.Fprintln(w, "quick: what follows shows that it works, not how fast it is")
	}
	fmt.Fprintf(w, "\n%-*s%*s%*s%*s  runs\n", wide, "", number, "median", number, "p95", number, "× ours")
}

// printGroup prints the rows of a group, and what was not measured in it.
func printGroup(w io.Writer, g group, rows []Row, skipped []Skipped, took time.Duration) {
	fmt.Fprintf(w, "\n%s  %s (%.0f s)\n", g.name, g.title, took.Seconds())
	for i := range rows {
		printRow(w, &rows[i])
	}
	for _, s := range skipped {
		fmt.Fprintf(w, "   not measured: %s\n", s.Why)
	}
}

func printRow(w io.Writer, r *Row) {
	fmt.Fprintf(w, "   %s, %s\n", r.Name, r.Unit)
	first := r.Series[0]
	for _, s := range r.Series {
		ratio := ""
		if r.Ours && first.Median > 0 && len(r.Series) > 1 {
			ratio = figure(s.Median / first.Median)
		}
		var runs []string
		for _, v := range s.Runs {
			runs = append(runs, figure(v))
		}
		fmt.Fprintf(w, "     %-*s%*s%*s%*s  %s\n", wide-5, s.Who, number, figure(s.Median), number, figure(s.P95), number, ratio, strings.Join(runs, " "))
	}
	for _, c := range r.Checks {
		fmt.Fprintf(w, "     %s\n", checkText(&c))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "     (%s)\n", n)
	}
}

// checkText is a check as a line of the table.
func checkText(c *Check) string {
	text := fmt.Sprintf("%-*s%*s", wide-5, "= "+c.What, number, figure(c.Value))
	if c.Unit != "" {
		text += " " + c.Unit
	}
	if c.Op == "" {
		return text
	}
	verdict := "met"
	if !c.Met {
		verdict = "MISSED"
	}
	op := map[string]string{"<=": "≤", ">=": "≥"}[c.Op]
	return fmt.Sprintf("%s  goal %s %s: %s", text, op, figure(c.Goal), verdict)
}

// printGoals sums up.
func printGoals(w io.Writer, r *Report) {
	met, missed := 0, []string{}
	for _, row := range r.Rows {
		for _, c := range row.Checks {
			switch {
			case c.Op == "":
			case c.Met:
				met++
			default:
				missed = append(missed, fmt.Sprintf("%s  %s: %s", row.Group, row.Name, strings.Join(strings.Fields(checkText(&c))[1:], " ")))
			}
		}
	}
	fmt.Fprintf(w, "\n%d goals met, %d missed, in %.0f s\n", met, len(missed), time.Since(r.Began).Seconds())
	for _, m := range missed {
		fmt.Fprintf(w, "  %s\n", m)
	}
}

// figure prints a number with three digits that count, and no exponent.
func figure(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 1000:
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	digits := max(2-int(math.Floor(math.Log10(a))), 0)
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// newReport says what is measured, and where.
func newReport(root string) *Report {
	var name unix.Utsname
	var info unix.Sysinfo_t
	check(unix.Uname(&name))
	check(unix.Sysinfo(&info))
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	return &Report{
		Version: git("describe", "--tags", "--always", "--dirty"),
		Commit:  git("rev-parse", "HEAD"),
		Dirty:   git("status", "--porcelain", "--untracked-files=no") != "",
		Began:   time.Now(),
		Kernel:  unix.ByteSliceToString(name.Release[:]),
		CPU:     cpu(),
		CPUs:    runtime.NumCPU(),
		Memory:  info.Totalram * uint64(info.Unit),
		Load:    load(),
	}
}

// load is the first average of /proc/loadavg.
func load() float64 {
	var v float64
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &v)
	}
	return v
}

// available is MemAvailable in GiB.
func available() float64 {
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		return 0
	}
	m, err := fs.Meminfo()
	if err != nil || m.MemAvailableBytes == nil {
		return 0
	}
	return float64(*m.MemAvailableBytes) / (1 << 30)
}

func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// sourceTree is the directory of go.mod, from which rsswarden is built.
func sourceTree() string {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err == nil && (mod == "" || mod == os.DevNull) {
		err = os.ErrNotExist
	}
	if err != nil {
		check(fmt.Errorf("cannot find the source tree: run me inside it (%w)", err))
	}
	return filepath.Dir(mod)
}

func mean(runs []float64) float64 {
	sum := 0.0
	for _, v := range runs {
		sum += v
	}
	return sum / float64(len(runs))
}
