package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A row is one quantity, of ours and of its peers, measured in turns.
type row struct {
	name, unit string   // of all runs; smaller is better
	series     []series // ours first
	lines      []string // what follows from them, for people
}

// series is the runs of one program in the order in which they were made; run i of one
// series was made next to run i of the others.
type series struct {
	who  string
	runs []float64
}

func (s series) median() float64 { return quantile(s.runs, 0.5) }

// newRow begins a row; add prints it.
func newRow(name, unit string) *row { return &row{name: name, unit: unit} }

// add prints the runs of a row in the format of Go benchmarks, and what follows from them.
func (b *bench) add(r *row) {
	for _, s := range r.series {
		for _, v := range s.runs {
			fmt.Fprintf(b.out, "%s/%s/who=%s 1 %s\n", b.name, field(r.name), field(s.who), inBase(v, r.unit))
		}
	}
	for _, l := range r.lines {
		fmt.Fprintf(b.out, "# %s: %s\n", r.name, l)
	}
}

// skip says that a peer, or all, was not measured.
func (b *bench) skip(format string, args ...any) {
	fmt.Fprintf(b.out, "# not measured: %s\n", fmt.Sprintf(format, args...))
}

// put adds the runs of one program, ours first.
func (r *row) put(who string, runs []float64) {
	if len(runs) > 0 {
		r.series = append(r.series, series{who, runs})
	}
}

func (r *row) note(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// tell adds a number that has no goal.
func (r *row) tell(what string, value float64, unit string) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.note("%s: %s %s", what, figure(value), unit)
	}
}

func (r *row) atMost(what string, value, goal float64, unit string) {
	r.check(what, value, "≤", goal, unit, value <= goal)
}

func (r *row) atLeast(what string, value, goal float64, unit string) {
	r.check(what, value, "≥", goal, unit, value >= goal)
}

func (r *row) check(what string, value float64, op string, goal float64, unit string, met bool) {
	verdict := "met"
	switch {
	case math.IsNaN(value), math.IsInf(value, 0):
		verdict = "cannot be told from these runs"
	case !met:
		verdict = "MISSED"
	}
	r.note("%s: %s %s, goal %s %s: %s", what, figure(value), unit, op, figure(goal), verdict)
}

// of returns the series of that name, an empty one where there is none.
func (r *row) of(who string) series {
	for _, s := range r.series {
		if s.who == who {
			return s
		}
	}
	return series{}
}

func (r *row) median(who string) float64 { return r.of(who).median() }

// times is how many times as long one takes as another.
func (r *row) times(slow, fast string) float64 { return r.median(slow) / r.median(fast) }

// quantile returns the value below which a share q of the runs lie, one of the
// runs itself but for the median of an even number; NaN where there are none.
func quantile(runs []float64, q float64) float64 {
	if len(runs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(runs))
	if q == 0.5 {
		return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
	}
	return s[max(int(math.Ceil(q*float64(len(s))))-1, 0)]
}

func mean(runs []float64) float64 {
	sum := 0.0
	for _, v := range runs {
		sum += v
	}
	return sum / float64(len(runs))
}

// field is text as one word.
func field(text string) string { return strings.Join(strings.Fields(text), "_") }

// inBase is a time in the unit that benchstat scales by itself, and another value as it is.
func inBase(v float64, unit string) string {
	if ns, ok := map[string]float64{"s": 1e9, "ms": 1e6, "µs": 1e3}[unit]; ok {
		return fmt.Sprint(v*ns, " ns/op")
	}
	return fmt.Sprint(v, " ", field(unit))
}

// figure prints a number with three digits that count, and no exponent.
func figure(v float64) string {
	if math.Abs(v) >= 999.5 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// printHead says what is measured, and where.
func printHead(w io.Writer) {
	var name unix.Utsname
	var info unix.Sysinfo_t
	check(unix.Uname(&name))
	check(unix.Sysinfo(&info))
	version, err := exec.Command("git", "describe", "--tags", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		version = []byte("of unknown version")
	}
	load := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &load)
	}
	fmt.Fprintf(w, "# rsswarden %s, %s\n", strings.TrimSpace(string(version)), time.Now().Format(time.RFC3339))
	fmt.Fprintf(w, "# %d CPUs, %.0f GiB, Linux %s, %s, load %.1f\n", runtime.NumCPU(), float64(info.Totalram*uint64(info.Unit))/(1<<30),
		unix.ByteSliceToString(name.Release[:]), runtime.Version(), load)
	if load > float64(runtime.NumCPU())/2 {
		fmt.Fprintln(w, "# the machine is busy: what follows shows that it works, not how fast it is")
	}
}
