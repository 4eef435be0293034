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
	cmd := exec.CommandContext(b.ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem",
		"-count", count, "-benchtime", length, "./rss/...")
	cmd.Dir = b.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run go test: %w\n%s", err, out)
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
