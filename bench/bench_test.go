package bench

import (
	"bytes"
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
	rows := map[string]int{"Trees": 4, "Start": 1}
	for name, measure := range map[string]func(*bench){"Trees": measureTrees, "Start": measureStart} {
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
	for _, not := range []string{"where SumRSS reads", "not measured"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("the readers disagree, or one is missing:\n%s", &out)
		}
	}
	wardentest.Says(t, out.String(), "psutil to SumRSS", "added by us to added by tini")
	file := path("bench.txt")
	wardentest.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	if out, err := exec.Command("go", "tool", "benchstat", "-col", "/who", file).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("sec/op")) || !bytes.Contains(out, []byte("SumRSS")) {
		t.Errorf("benchstat: %v\n%s", err, out)
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
