package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"

	"golang.org/x/perf/benchfmt"
)

// gotests runs the benchmarks of the readers by go test.
func (b *bench) gotests() error {
	count, length := "6", "1s"
	if b.quick {
		count, length = "1", "20ms"
	}
	out, err := b.goTest(nil, "-bench", ".", "-benchmem", "-count", count, "-benchtime", length, "./rss/...")
	if err != nil {
		return err
	}
	names, told := metrics(out)
	for _, name := range names {
		var runs []float64
		for _, s := range told[name]["sec/op"] {
			runs = append(runs, s*1e6)
		}
		r := b.row(name, "µs")
		r.ours("ours", runs)
		b.add(r)
	}
	return nil
}

// goTest runs benchmarks and returns what they print.
func (b *bench) goTest(env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(b.ctx, "go", append([]string{"test", "-run", "^$"}, args...)...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("cannot run go test: %w\n%s", err, out)
	}
	return out, nil
}

// metrics reads the output of go test: the benchmarks in the order in which they come,
// and of each what it told by unit, a number a run; times as sec/op.
func metrics(out []byte) (names []string, told map[string]map[string][]float64) {
	told = map[string]map[string][]float64{}
	for r := benchfmt.NewReader(bytes.NewReader(out), "go test"); r.Scan(); {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := processors.ReplaceAllString(res.Name.String(), "")
		if told[name] == nil {
			names, told[name] = append(names, name), map[string][]float64{}
		}
		for _, v := range res.Values {
			told[name][v.Unit] = append(told[name][v.Unit], v.Value)
		}
	}
	return names, told
}

// processors is what go test appends to a name: GOMAXPROCS.
var processors = regexp.MustCompile(`-\d+$`)
