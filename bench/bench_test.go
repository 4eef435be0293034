package bench

import (
	"bytes"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"golang.org/x/perf/benchfmt"
)

// TestQuick runs what takes seconds, and checks that all has been measured. How fast
// anything was is not tested here.
func TestQuick(t *testing.T) {
	if _, err := exec.LookPath("tini"); err != nil {
		t.Skip("tini is not there: ", err)
	}
	if out, err := exec.Command(python, "-c", "import psutil").CombinedOutput(); err != nil {
		t.Skipf("psutil is not there: %s", out)
	}
	var out bytes.Buffer
	rows := map[string]int{"Trees": 4, "Start": 1, "Growth": 3, "Counts": 7}
	for name, measure := range map[string]func(*bench){"Trees": measureTrees, "Start": measureStart, "Growth": measureGrowth, "Counts": measureCounts} {
		if err := (&bench{name: "Benchmark" + name, quick: true, out: &out}).run(measure); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &out)
		}
	}
	runs := map[string]map[string]int{} // of each row, how many of each series
	r := benchfmt.NewReader(bytes.NewReader(out.Bytes()), "out")
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			t.Fatal(r.Result())
		}
		if res.Values[0].Value <= 0 {
			t.Errorf("%s: %+v", res.Name, res)
		}
		row, who, _ := strings.Cut(string(res.Name), "/who=")
		if runs[row] == nil {
			runs[row] = map[string]int{}
		}
		runs[row][who]++
	}
	for row, series := range runs {
		name, _, _ := strings.Cut(row, "/")
		rows[name]--
		counts := slices.Collect(maps.Values(series))
		if slices.Min(counts) < 2 || slices.Min(counts) != slices.Max(counts) {
			t.Errorf("%s: runs %v", row, series)
		}
	}
	for name, left := range rows {
		if left != 0 {
			t.Errorf("%s: %d rows are missing", name, left)
		}
	}
	for _, not := range []string{"where SumRSS reads", "where ours counts", "not measured"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("the readers disagree, or one is missing:\n%s", &out)
		}
	}
	for _, line := range []string{"psutil to SumRSS", "added by us to added by tini", "exponent"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("lacks %q:\n%s", line, &out)
		}
	}
	file := path("bench.txt")
	wardentest.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	if out, err := exec.Command("go", "tool", "benchstat", "-col", "/who", file).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("sec/op")) || !bytes.Contains(out, []byte("SumRSS")) {
		t.Errorf("benchstat: %v\n%s", err, out)
	}
}

// TestCounter: ours and procfs count the same.
func TestCounter(t *testing.T) {
	// A process that has started and maps nothing more: it has echoed what it read.
	still := exec.Command("cat")
	in, err := still.StdinPipe()
	wardentest.NoError(t, err)
	out, err := still.StdoutPipe()
	wardentest.NoError(t, err)
	wardentest.NoError(t, still.Start())
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
			if got[i] = goReaders[how+what].open(still.Process.Pid)(); got[i] == 0 {
				t.Fatalf("%s%s: none", how, what)
			}
		}
		// procfs counts [vsyscall], which is no mapping of the process's.
		if off := int(got[1]) - int(got[0]); off < 0 || off > 1 {
			t.Errorf("%s: procfs counts %d, ours %d", what, got[1], got[0])
		}
	}
	if status := beReader([]string{"ours-words", "1"}); status != 2 {
		t.Errorf("a reader of what cannot be counted: status %d", status)
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
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00123: "0.00123", 0.5: "0.5", 1: "1", 12.345: "12.3", 100: "100", 999.6: "1000", 12345.6: "12346", -3.14159: "-3.14"} {
		if got := figure(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestGoTestOutput(t *testing.T) {
	names, told := metrics([]byte("goos: linux\nBenchmarkTree/Tree-2  100  12345 ns/op  10 B/op  1 allocs/op\n" +
		"BenchmarkTree/SumRSS-2  9  50.5 ns/op  1.5e+03 MiB\nBenchmarkTree/Tree-2  100  22345 ns/op\nPASS\n"))
	if tree := told["Tree/Tree"]; !slices.Equal(names, []string{"Tree/Tree", "Tree/SumRSS"}) ||
		len(tree["sec/op"]) != 2 || math.Abs(tree["sec/op"][1]-22345e-9) > 1e-12 || !slices.Equal(tree["B/op"], []float64{10}) ||
		!slices.Equal(told["Tree/SumRSS"]["MiB"], []float64{1500}) {
		t.Errorf("%v %v", names, told)
	}
}
