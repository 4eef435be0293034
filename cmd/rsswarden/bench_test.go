package main_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkStart measures how long it takes until a command runs: bare, under
// tini and under rsswarden, turn about, so that all three meet the same
// machine. date(1) says when it ran. The added time is that above bare, and
// x-tini is ours over tini's.
func BenchmarkStart(b *testing.B) {
	tini, err := exec.LookPath("tini")
	if err != nil {
		b.Skip(err)
	}
	wraps := map[string][]string{"bare": nil, "tini": {tini, "-s", "--"}, "ours": {binary, "run", "--quiet", "--"}}
	took := map[string][]float64{}
	for b.Loop() {
		for name, wrap := range wraps {
			args := append(slices.Clone(wrap), "date", "+%s%N")
			begin := time.Now().UnixNano()
			out, err := exec.Command(args[0], args[1:]...).Output()
			if err != nil {
				b.Fatal(err)
			}
			ran, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], float64(ran-begin)/1e6)
		}
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return took[name][len(took[name])/2]
	}
	bare, under, ours := median("bare"), median("tini"), median("ours")
	b.ReportMetric(bare, "bare-ms")
	b.ReportMetric(under-bare, "tini-added-ms")
	b.ReportMetric(ours-bare, "ours-added-ms")
	if under > bare {
		b.ReportMetric((ours-bare)/(under-bare), "x-tini")
	}
}
