package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == readerRole {
		os.Exit(beReader(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestQuick runs the rows that take seconds, and checks that the report has
// them. How fast anything was is nobody's business here.
func TestQuick(t *testing.T) {
	if _, err := exec.LookPath("tini"); err != nil {
		t.Skip("tini is not there: ", err)
	}
	if out, err := exec.Command(python, "-c", "import psutil").CombinedOutput(); err != nil {
		t.Skipf("psutil is not there: %s", out)
	}
	file := filepath.Join(t.TempDir(), "bench.json")
	var stdout, stderr bytes.Buffer
	if status := run(context.Background(), []string{"-quick", "-rows", "a,c,f,j", "-out", file}, &stdout, &stderr); status != 0 {
		t.Fatalf("status %d\n%s%s", status, &stdout, &stderr)
	}
	r, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Quick || r.Kernel == "" || r.CPU == "" || r.CPUs < 1 || r.Commit == "" || r.Time.IsZero() || len(r.Skipped) > 0 {
		t.Errorf("head of the report: %+v", r)
	}
	want := map[string]int{"a": 4, "c": 1, "f": 3, "j": 7}
	for i := range r.Rows {
		row := &r.Rows[i]
		want[row.Group]--
		if !row.Series[0].Ours {
			t.Errorf("%s %s: ours is not the first", row.Group, row.Name)
		}
		runs := len(row.Series[0].Runs)
		for _, s := range row.Series {
			if len(s.Runs) != runs || runs < 2 || slices.Min(s.Runs) <= 0 {
				t.Errorf("%s %s, %s: runs %v", row.Group, row.Name, s.Who, s.Runs)
			}
			if !strings.Contains(stdout.String(), s.Who) {
				t.Errorf("%s is not in the table", s.Who)
			}
		}
		for _, n := range row.Notes {
			if strings.Contains(n, "where SumRSS reads") || strings.Contains(n, "where ours counts") {
				t.Errorf("%s %s: the readers disagree: %s", row.Group, row.Name, n)
			}
		}
	}
	for group, left := range want {
		if left != 0 {
			t.Errorf("group %s: %d rows are missing", group, left)
		}
	}

	stdout.Reset()
	if status := run(context.Background(), []string{"-compare", file, file}, &stdout, &stderr); status != 0 {
		t.Fatalf("compare: status %d\n%s", status, &stderr)
	}
	for _, part := range []string{"psutil to SumRSS", "added by us to added by tini", "exponent"} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("compare lacks %q:\n%s", part, &stdout)
		}
	}
	if strings.Contains(stdout.String(), "%\n") || strings.Contains(stdout.String(), "only in") {
		t.Errorf("a report differs from itself:\n%s", &stdout)
	}
}

// TestCounter: ours and procfs count the same.
func TestCounter(t *testing.T) {
	// A process that has started and maps nothing more: it has echoed what it read.
	still := exec.Command("cat")
	in, err := still.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := still.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := still.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); still.Wait() })
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"maps", "fds"} {
		var got [2]uint64
		for i, how := range []string{"ours-", "procfs-"} {
			count, err := counter(how+what, still.Process.Pid)
			if err == nil {
				got[i], err = count()
			}
			if err != nil || got[i] == 0 {
				t.Fatalf("%s%s: %d, %v", how, what, got[i], err)
			}
		}
		// procfs counts [vsyscall], which is no mapping of the process's.
		if off := int(got[1]) - int(got[0]); off < 0 || off > 1 {
			t.Errorf("%s: procfs counts %d, ours %d", what, got[1], got[0])
		}
	}
	if _, err := counter("ours-words", os.Getpid()); err == nil {
		t.Error("there is a reader of what cannot be counted")
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"-rows", "z"}, {"-rows", ""}, {"-unknown"}, {"word"}, {"-compare", "one.json"}, {"-pairs", "0"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(context.Background(), args, &stdout, &stderr); status != 2 || stderr.Len() == 0 {
			t.Errorf("%q: status %d, said %q", args, status, &stderr)
		}
	}
	var stdout, stderr bytes.Buffer
	other := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other, []byte(`{"schema":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if status := run(context.Background(), []string{"-compare", other, other}, &stdout, &stderr); status != 1 {
		t.Errorf("another schema: status %d, said %q", status, &stderr)
	}
}

// TestCompare: a change is told with its sign, and whether it may be chance.
func TestCompare(t *testing.T) {
	report := func(runs ...float64) *Report {
		b := &bench{report: &Report{Schema: Schema}, group: "a"}
		r := b.row("tree", "µs")
		r.ours("ours", runs)
		r.atMost("the goal", r.Series[0].Median, 12, "µs")
		b.add(r)
		return b.report
	}
	old := report(10, 11, 10, 9, 10, 11, 9, 10)
	for _, tt := range []struct {
		now  *Report
		want []string
	}{
		{report(20, 21, 20, 19, 20, 22, 18, 20), []string{"+100.0 % (p=0.00", "goal MISSED now"}},
		{report(11, 10, 10, 10, 9, 11, 10, 9), []string{"~ (p="}},
		{report(5, 5), []string{"-50.0 %"}},
	} {
		var out bytes.Buffer
		printCompare(&out, old, tt.now)
		for _, part := range tt.want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("lacks %q:\n%s", part, &out)
			}
		}
	}
}

func TestStatistics(t *testing.T) {
	near := func(what string, got, want, by float64) {
		t.Helper()
		if math.IsNaN(got) || math.Abs(got-want) > by {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("median of 4", quantile([]float64{4, 1, 3, 2}, 0.5), 2.5, 0)
	near("p95 of 20", quantile([]float64{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 0.95), 19, 0)
	near("exponent of x²", exponent([]float64{1, 10, 100}, []float64{3, 300, 30000}), 2, 1e-9)
	// Tables of Student's t.
	for df, want := range map[float64]float64{1: 12.706, 4: 2.776, 5: 2.571, 9: 2.262, 29: 2.045, 1000: 1.962} {
		near("Student's t", student(df), want, want/100)
	}
	low, middle, high := interval([]float64{0.5, 2, 1, 1})
	near("the middle of 1/2 and 2", middle, 1, 1e-9)
	near("bounds are as far off", low*high, 1, 1e-9)
	// By hand: z is 31.5/√(64·17/12), and 1.5/√(16·9/12).
	near("apart", chance([]float64{1, 2, 3, 4, 5, 6, 7, 8}, []float64{9, 10, 11, 12, 13, 14, 15, 16}), 0.0009391, 1e-5)
	near("alternating", chance([]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}), 0.6650, 1e-3)
	near("all the same", chance([]float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}), 1, 0)
	near("too few", chance([]float64{1, 2}, []float64{1, 2, 3, 4}), -1, 0)
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00123: "0.00123", 0.5: "0.5", 1: "1", 12.345: "12.3", 100: "100", 999.6: "1000", 12345.6: "12346", -3.14159: "-3.14"} {
		if got := figure(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestGoTestOutput(t *testing.T) {
	names, runs := benchmarks([]byte("goos: linux\nBenchmarkTree/Tree-2  100  12345 ns/op  10 B/op  1 allocs/op\n" +
		"BenchmarkTree/SumRSS-2  9  50.5 ns/op\nBenchmarkTree/Tree-2  100  22345 ns/op\nPASS\n"))
	if !slices.Equal(names, []string{"Tree/Tree", "Tree/SumRSS"}) || !slices.Equal(runs["Tree/Tree"], []float64{12.345, 22.345}) {
		t.Errorf("%v %v", names, runs)
	}
}
