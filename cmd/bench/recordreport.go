package main

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// recordReport is the time and the memory of a report of a record that is as
// full as one becomes.
func (b *bench) recordReport() error {
	dir := b.path("full")
	out, err := b.goTest([]string{"RSSWARDEN_BENCH_FULL=" + dir}, "-bench", "^BenchmarkFull$", "-benchtime", "1x", recordPackage)
	if err != nil {
		return err
	}
	_, told := metrics(out)
	full := told["Full"]
	rounds := 5
	if b.quick {
		rounds = 2
	}
	report := func(options ...string) []string {
		return append([]string{b.program, "report", "--no-slurm", dir}, options...)
	}
	ways := []struct {
		name       string
		ours       bool
		args       []string
		took, most []float64
	}{
		{name: "ours: text", ours: true, args: report()},
		{name: "ours: --json", ours: true, args: report("--json")},
		{name: "ours: --html", ours: true, args: report("--html", b.path("full.html"))},
		{name: "sha256sum of the record's file", args: []string{"sha256sum", b.path("full/data.mdb")}},
	}
	for range rounds {
		for i := range ways {
			w := &ways[i]
			cmd := exec.CommandContext(b.ctx, w.args[0], w.args[1:]...)
			cmd.Env = plain(cmd.Environ())
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("cannot run %s: %w\n%s", w.args[0], err, out)
			}
			w.took = append(w.took, time.Since(began).Seconds())
			if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
				w.most = append(w.most, float64(u.Maxrss)/1024)
			}
		}
	}
	took, most := b.row("report of a full record", "s"), b.row("report of a full record, most RSS", "MiB")
	for _, w := range ways {
		took.put(w.name, w.ours, w.took)
		most.put(w.name, w.ours, w.most)
		if w.ours {
			took.atMost(w.name[len("ours: "):], quantile(w.took, 0.5), 2, took.Unit)
		}
	}
	took.note("16 processes, %.0f samples, %.0f MiB of the 64 MiB that bound it: from there on it is thinned", only(full["samples"]), only(full["MiB"]))
	most.note("of the larger of two processes: one opens the record, the other reads it")
	b.add(took)
	b.add(most)
	return nil
}
