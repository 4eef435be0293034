package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// gotests runs the benchmarks of the readers by go test, and leaves what they
// print in a file for benchstat, which compares two of them.
func (b *bench) gotests() error {
	count, length := "6", "1s"
	if b.quick {
		count, length = "1", "20ms"
	}
	out, err := b.goTest(nil, "-bench", ".", "-benchmem", "-count", count, "-benchtime", length, "./rss/...")
	if err != nil {
		return err
	}
	head := fmt.Sprintf("commit: %s\nkernel: %s\n", b.report.Commit, b.report.Kernel)
	if b.gotest != "" {
		if err := os.WriteFile(b.gotest, append([]byte(head), out...), 0o644); err != nil {
			return fmt.Errorf("cannot write the output of go test: %w", err)
		}
	}
	names, runs := benchmarks(out)
	for _, name := range names {
		r := b.row(name, "µs")
		r.ours("ours", runs[name])
		if b.gotest != "" && name == names[0] {
			r.note("for benchstat in %s", filepath.Base(b.gotest))
		}
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

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

// benchmarks reads the output of go test: names in the order in which they
// come, and the µs of each run.
func benchmarks(out []byte) (names []string, runs map[string][]float64) {
	runs = map[string][]float64{}
	for _, m := range benchmarkLine.FindAllSubmatch(bytes.TrimSpace(out), -1) {
		name := string(m[1])
		ns, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			continue
		}
		if runs[name] == nil {
			names = append(names, name)
		}
		runs[name] = append(runs[name], ns/1e3)
	}
	return names, runs
}

var (
	metricsLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	oneMetric   = regexp.MustCompile(`([\d.]+(?:e[+-]\d+)?) (\S+)`)
)

// metrics reads the output of go test: of each benchmark what it told by unit,
// a number a run.
func metrics(out []byte) map[string]map[string][]float64 {
	all := map[string]map[string][]float64{}
	for _, m := range metricsLine.FindAllSubmatch(out, -1) {
		name := string(m[1])
		if all[name] == nil {
			all[name] = map[string][]float64{}
		}
		for _, one := range oneMetric.FindAllSubmatch(m[2], -1) {
			if v, err := strconv.ParseFloat(string(one[1]), 64); err == nil {
				unit := string(one[2])
				all[name][unit] = append(all[name][unit], v)
			}
		}
	}
	return all
}
