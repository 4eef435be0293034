package main

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recording measures group i.
func (b *bench) recording() error {
	for _, part := range []func() error{b.recordSize, b.recordTime, b.recordWeight, b.recordReport} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// recordPackage has the benchmarks that see into a record.
const recordPackage = "./supervisor/record/store"

// recordSize is how many bytes a process takes in a sample.
func (b *bench) recordSize() error {
	kept, err := b.keptRecords(16, 64)
	if err != nil {
		return err
	}
	out, err := b.goTest(nil, "-bench", "^BenchmarkHour$", "-benchtime", "1x", recordPackage)
	if err != nil {
		return err
	}
	_, hours := metrics(out)
	for i, procs := range []int{16, 64} {
		hour := hours["Hour/"+strconv.Itoa(procs)]
		r := b.row(fmt.Sprintf("%d processes, a process in a sample", procs), "bytes")
		r.ours("ours: an hour of a training, made up", hour["B/record"])
		r.peer("as lines of JSON", hour["B/json"])
		r.peer("as lines of time, PID, RSS", hour["B/text"])
		r.atMost("the hour, by its file", r.Series[0].Median, 24, r.Unit)
		real := kept[i]
		r.atMost("loaders over an LMDB, by their samples", only(real["B/blocks"]), 24, r.Unit)
		r.note("the real run: %.0f samples of %.0f processes, ours among them; its file is larger by its events", only(real["samples"]), only(real["processes"]))
		b.add(r)
	}
	return nil
}

func only(runs []float64) float64 {
	if len(runs) == 0 {
		return math.NaN()
	}
	return runs[0]
}

// keptRecords records trees of so many loaders, all at the same time, and tells
// what their records are made of.
func (b *bench) keptRecords(sizes ...int) ([]map[string][]float64, error) {
	cmd := exec.CommandContext(b.ctx, "go", "build", "-o", b.path("lmdbload"), "./examples/lmdbload")
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build lmdbload: %w\n%s", err, out)
	}
	data := b.path("records.lmdb")
	if out, err := exec.CommandContext(b.ctx, b.path("lmdbload"), "-data", data, "-create").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot make an LMDB: %w\n%s", err, out)
	}
	place := func(size int) string { return b.path("records-" + strconv.Itoa(size)) }
	var runs []*child
	for _, size := range sizes {
		// timeout(1) and lmdbload are in the tree too. A worker has 300 MB to map.
		workers := size - 2
		c, err := b.start(b.under([]string{"--quiet", "--at", "none", "--record", place(size)},
			"timeout", fmt.Sprint(b.idle.Seconds()), b.path("lmdbload"), "-data", data, "-epochs", "1000",
			"-workers", strconv.Itoa(workers), "-growth", fmt.Sprint(2*workers))...)
		if err != nil {
			return nil, err
		}
		runs = append(runs, c)
	}
	for _, c := range runs {
		// 124, which timeout(1) ends with, is as it should be.
		if err := c.end(); err != nil && c.cmd.ProcessState.ExitCode() != 124 {
			return nil, err
		}
	}
	var kept []map[string][]float64
	for _, size := range sizes {
		out, err := b.goTest([]string{"RSSWARDEN_BENCH_RECORDS=" + place(size)}, "-bench", "^BenchmarkKept$", "-benchtime", "1x", recordPackage)
		if err != nil {
			return nil, err
		}
		_, all := metrics(out)
		for name, m := range all {
			if strings.Contains(name, "/") {
				kept = append(kept, m)
			}
		}
	}
	if len(kept) != len(sizes) {
		return nil, fmt.Errorf("cannot find the records: %d, not %d", len(kept), len(sizes))
	}
	return kept, nil
}

// recordTime is what one sample of 64 processes takes.
func (b *bench) recordTime() error {
	count, samples, commits := "6", "4000x", "400x"
	if b.quick {
		count, samples, commits = "2", "200x", "40x"
	}
	looks, err := b.treeCost(64, 6)
	if err != nil {
		return err
	}
	out, err := b.goTest(nil, "-bench", "^BenchmarkSample$/.*/64/.*", "-count", count, "-benchtime", samples, recordPackage)
	if err != nil {
		return err
	}
	_, all := metrics(out)
	loop := func(name string) []float64 { return all["Sample/"+name]["µs/sample"] }
	r := b.row("64 processes, a sample in the watcher's loop", "µs")
	r.ours("ours: all that can change has", loop("record/64/moving"))
	r.ours("ours: nothing has", loop("record/64/still"))
	r.peer("a line of JSON into a file", loop("json/64/moving"))
	r.peer("lines of time, PID, RSS into a file", loop("text/64/moving"))
	r.peer("the look itself (Trees)", looks)
	look := quantile(looks, 0.5)
	r.tell("recording", quantile(loop("record/64/moving"), 0.5)/look, "of the look")
	r.tell("JSON", quantile(loop("json/64/moving"), 0.5)/look, "of the look")
	r.tell("allocations where nothing has changed", quantile(all["Sample/record/64/still"]["allocs/op"], 0.5), "a sample")
	b.add(r)

	out, err = b.goTest(nil, "-bench", "^BenchmarkCommit$", "-count", count, "-benchtime", commits, recordPackage)
	if err != nil {
		return err
	}
	_, all = metrics(out)
	for _, disk := range []struct{ key, name string }{{"idle", ""}, {"busy", ", while a large file is written"}} {
		ours, peer := all["Commit/record/64/"+disk.key], all["Commit/json/64/"+disk.key]
		r := b.row("64 processes, a sample in the writer"+disk.name, "µs")
		r.ours("ours: median commit", ours["p50-µs"])
		r.ours("ours: 99 of 100 are shorter than", ours["p99-µs"])
		r.peer("a line of JSON, median", peer["p50-µs"])
		r.peer("a line of JSON, 99 of 100", peer["p99-µs"])
		r.note("the writer is a goroutine of its own: nobody waits for it")
		b.add(r)
	}
	return nil
}

// recordWeight is what recording adds to holder and watcher of 64 sleeping
// processes, watched at the same time.
func (b *bench) recordWeight() error {
	var subjects []*subject
	for _, w := range []struct{ name, record string }{{"recording", b.path("weight")}, {"not recording", "none"}} {
		c, _, err := b.crowd(64, func(command ...string) []string {
			return b.under([]string{"--quiet", "--record", w.record}, command...)
		})
		if err != nil {
			return err
		}
		defer c.end()
		watcher, err := watcherOf(c.pid())
		if err != nil {
			return err
		}
		subjects = append(subjects,
			&subject{name: "ours: watcher, " + w.name, ours: true, pids: []int{watcher}},
			&subject{name: "ours: holder, " + w.name, ours: true, pids: []int{c.pid()}})
	}
	// What the watcher's start has needed it gives back after a while.
	settle, runs := 15*time.Second, 6
	if b.quick {
		settle, runs = time.Second, 2
	}
	if err := b.sleep(settle); err != nil {
		return err
	}
	for range runs {
		if err := b.idleRun(subjects, b.idle/time.Duration(runs)); err != nil {
			return err
		}
	}
	for _, m := range measures {
		if !slices.Contains([]string{"CPU, by schedstat", "RSS", "anonymous memory"}, m.name) {
			continue
		}
		r := b.row("64 processes that sleep: "+m.name, m.unit)
		for _, s := range subjects {
			r.put(s.name, s.ours, s.runs[m.name])
		}
		with, without := r.Series[0].Median, r.Series[2].Median
		switch m.name {
		case "RSS":
			r.atMost("watcher, recording", with, 12, r.Unit)
		case "CPU, by schedstat":
			// The watcher's looks come in no step with the runs.
			with, without = mean(r.Series[0].Runs), mean(r.Series[2].Runs)
			r.atMost("watcher and holder, recording", with+mean(r.Series[1].Runs), 0.1, r.Unit)
		}
		r.tell("recording adds", with-without, r.Unit)
		b.add(r)
	}
	return nil
}
