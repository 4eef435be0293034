package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func measureRecord(b *bench) {
	b.scope(func() { recordSize(b) })
	b.scope(func() { recordTime(b) })
	b.scope(func() { recordWeight(b) })
	b.scope(func() { recordReport(b) })
	b.scope(func() { recordList(b) })
}

// recordPackage has the benchmarks that see into a record.
const recordPackage = "./supervisor/record/store"

// recordSize is how many bytes a process takes in a sample.
func recordSize(b *bench) {
	sizes := []int{16, 64}
	kept := keptRecords(b, sizes)
	_, hours := goTest("", recordPackage, "-bench", "^BenchmarkHour$", "-benchtime", "1x")
	for i, procs := range sizes {
		hour, real := hours["Hour/"+strconv.Itoa(procs)], kept[i]
		r := newRow(fmt.Sprintf("%d processes, a process in a sample", procs), "bytes")
		r.put("ours: an hour of a training, made up", hour["B/record"])
		r.put("as lines of JSON", hour["B/json"])
		r.put("as lines of time, PID, RSS", hour["B/text"])
		r.atMost("the hour, by its file", r.series[0].median(), 24, r.unit)
		r.atMost("loaders over an LMDB, by their samples", only(real["B/blocks"]), 24, r.unit)
		r.note("the real run: %.0f samples of %.0f processes, ours among them; its file is larger by its events", only(real["samples"]), only(real["processes"]))
		b.add(r)
	}
}

func only(runs []float64) float64 {
	if len(runs) == 0 {
		return math.NaN()
	}
	return runs[0]
}

// keptRecords records trees of so many loaders, all at the same time, and tells
// what their records are made of.
func keptRecords(b *bench, sizes []int) (kept []map[string][]float64) {
	load, data := goBuild("examples/lmdbload"), path("records.lmdb")
	output(command(load, "-data", data, "-create"))
	place := func(size int) string { return path("records-" + strconv.Itoa(size)) }
	var runs []*child
	for _, size := range sizes {
		// timeout(1) and lmdbload are in the tree too. A worker has 300 MB to map.
		workers := size - 2
		runs = append(runs, b.start(under("--quiet", "--at", "none", "--record", place(size))(
			"timeout", fmt.Sprint(b.idle().Seconds()), load, "-data", data, "-epochs", "1000",
			"-workers", strconv.Itoa(workers), "-growth", fmt.Sprint(2*workers))...))
	}
	for _, c := range runs {
		// 124, which timeout(1) ends with, is as it should be.
		if err := c.end(); c.cmd.ProcessState.ExitCode() != 124 {
			check(err)
		}
	}
	for _, size := range sizes {
		_, all := goTest("RSSWARDEN_BENCH_RECORDS="+place(size), recordPackage, "-bench", "^BenchmarkKept$", "-benchtime", "1x")
		for name, m := range all {
			if strings.Contains(name, "/") {
				kept = append(kept, m)
			}
		}
	}
	if len(kept) != len(sizes) {
		check(fmt.Errorf("cannot find the records: %d, not %d", len(kept), len(sizes)))
	}
	return kept
}

// recordTime is what one sample of 64 processes takes.
func recordTime(b *bench) {
	count := pick(b, "6", "2")
	looks := treeCost(b, 64, 6)
	_, all := goTest("", recordPackage, "-bench", "^BenchmarkSample$/.*/64/.*", "-count", count, "-benchtime", pick(b, "4000x", "200x"))
	loop := func(name string) []float64 { return all["Sample/"+name]["µs/sample"] }
	r := newRow("64 processes, a sample in the watcher's loop", "µs")
	r.put("ours: all that can change has", loop("record/64/moving"))
	r.put("ours: nothing has", loop("record/64/still"))
	r.put("a line of JSON into a file", loop("json/64/moving"))
	r.put("lines of time, PID, RSS into a file", loop("text/64/moving"))
	r.put("the look itself (Trees)", looks)
	look := quantile(looks, 0.5)
	r.tell("recording", quantile(loop("record/64/moving"), 0.5)/look, "of the look")
	r.tell("JSON", quantile(loop("json/64/moving"), 0.5)/look, "of the look")
	r.tell("allocations where nothing has changed", quantile(all["Sample/record/64/still"]["allocs/op"], 0.5), "a sample")
	b.add(r)

	_, all = goTest("", recordPackage, "-bench", "^BenchmarkCommit$", "-count", count, "-benchtime", pick(b, "400x", "40x"))
	for _, disk := range []struct{ key, name string }{{"idle", ""}, {"busy", ", while a large file is written"}} {
		ours, peer := all["Commit/record/64/"+disk.key], all["Commit/json/64/"+disk.key]
		r := newRow("64 processes, a sample in the writer"+disk.name, "µs")
		r.put("ours: median commit", ours["p50-µs"])
		r.put("ours: 99 of 100 are shorter than", ours["p99-µs"])
		r.put("a line of JSON, median", peer["p50-µs"])
		r.put("a line of JSON, 99 of 100", peer["p99-µs"])
		r.note("the writer is a goroutine of its own: nothing waits for it")
		b.add(r)
	}
}

// recordWeight is what recording adds to holder and watcher of 64 sleeping
// processes, watched at the same time.
func recordWeight(b *bench) {
	var subjects []*subject
	for _, w := range []struct{ name, record string }{{"recording", path("weight")}, {"not recording", "none"}} {
		holder, watcher := b.crowdUnder("--quiet", "--record", w.record)
		subjects = append(subjects,
			&subject{name: "ours: watcher, " + w.name, pids: []int{watcher}},
			&subject{name: "ours: holder, " + w.name, pids: []int{holder}})
	}
	// What the watcher's start has needed it gives back after a while.
	b.watch(subjects, pick(b, 15*time.Second, time.Second), pick(b, 6, 2))
	for _, m := range quantities {
		if !slices.Contains([]string{"CPU, by schedstat", "RSS", "anonymous memory"}, m.name) {
			continue
		}
		r := b.watched("64 processes that sleep: ", m, subjects)
		with, without := r.series[0].median(), r.series[2].median()
		switch m.name {
		case "RSS":
			r.atMost("watcher, recording", with, 12, r.unit)
		case "CPU, by schedstat":
			// The watcher's looks come in no step with the runs.
			with, without = mean(r.series[0].runs), mean(r.series[2].runs)
			r.atMost("watcher and holder, recording", with+mean(r.series[1].runs), 0.1, r.unit)
		}
		r.tell("recording adds", with-without, r.unit)
		b.add(r)
	}
}

// recordReport is the time and the memory of a report of three days of 64 ranks.
func recordReport(b *bench) {
	dir, page := path("full"), path("full.html")
	_, told := goTest("RSSWARDEN_BENCH_FULL="+pick(b, "72 ", "1 ")+dir, recordPackage, "-bench", "^BenchmarkFull$", "-benchtime", "1x")
	ours := []string{program(), "report", "--no-slurm", dir}
	ways := []struct {
		name       string
		args       []string
		goal       float64 // seconds
		took, most []float64
	}{
		{name: "ours: text", args: ours, goal: 1},
		{name: "ours: --json", args: slices.Concat(ours, []string{"--json"}), goal: 1},
		{name: "ours: --html", args: slices.Concat(ours, []string{"--html", page}), goal: 3},
		{name: "sha256sum of the record's file", args: []string{"sha256sum", path("full/data.mdb")}},
	}
	for range pick(b, 5, 2) {
		for i := range ways {
			w, cmd := &ways[i], command(ways[i].args...)
			began := time.Now()
			output(cmd)
			w.took = append(w.took, time.Since(began).Seconds())
			if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
				w.most = append(w.most, float64(u.Maxrss)/1024)
			}
		}
	}
	took, most := newRow("report of 3 days of 64 ranks", "s"), newRow("report of 3 days of 64 ranks, most RSS", "MiB")
	for _, w := range ways {
		took.put(w.name, w.took)
		most.put(w.name, w.most)
		if option, ok := strings.CutPrefix(w.name, "ours: "); ok {
			took.atMost(option, quantile(w.took, 0.5), w.goal, took.unit)
			most.atMost(option, quantile(w.most, 0.5), 200, most.unit)
		}
	}
	full := told["Full"]
	took.note("320 processes, %.0f samples, %.0f MiB of the 64 MiB that bound it: from there on it is thinned", only(full["samples"]), only(full["MiB"]))
	most.note("of the larger of two processes: one opens the record, the other reads it")
	b.add(took)
	b.add(most)
	size := newRow("page of 3 days of 64 ranks", "MiB")
	info, err := os.Stat(page)
	check(err)
	size.put("ours", []float64{float64(info.Size()) / (1 << 20)})
	size.atMost("the page", size.series[0].median(), 3, size.unit)
	b.add(size)
}

// recordList is the time of the list of 10,000 runs: from the index of a node, with a journal
// of each beside it, and summed up.
func recordList(b *bench) {
	const runs = 10000
	dir := path("state/rsswarden/journals")
	check(os.MkdirAll(dir, 0o700))
	var index strings.Builder
	for n := range runs {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * 13 * time.Minute)
		id := fmt.Sprintf("%s-%d.0.0-n1-%d", start.Format("20060102T150405Z"), 100000+n, 1000+n)
		fmt.Fprintf(&index, `{"v":1,"id":%q,"start":%q,"job":"%d","outcome":"kept","exit":0,"seconds":7200,"limit":"cgroup","peak":0.94,`+
			`"limit_bytes":1153433600,"user":"user%d","node":"n1","command":"python3 train.py --epochs 4 --data /data/images.lmdb"}`+"\n",
			id, start.Format(time.RFC3339), 100000+n, n%40)
		check(os.WriteFile(filepath.Join(dir, id+".jsonl"), nil, 0o600))
	}
	file := filepath.Join(dir, "index-n1.jsonl")
	check(os.WriteFile(file, []byte(index.String()), 0o600))
	ways := []struct {
		name string
		args []string
		took []float64
	}{
		{name: "ours: the newest 15", args: []string{program(), "report"}},
		{name: "ours: all, as JSON", args: []string{program(), "report", "--since", "520w", "--json"}},
		{name: "ours: by user", args: []string{program(), "report", "--by", "user"}},
		{name: "Python's json, the index alone", args: []string{python, "-c", "import json, sys; print(sorted((json.loads(l) for l in open(sys.argv[1])), key=lambda r: r['start'])[-15:])", file}},
	}
	for range pick(b, 10, 2) {
		for i := range ways {
			cmd := command(ways[i].args...)
			cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+path("state"), "RSSWARDEN_RUNTIME="+path("state"))
			began := time.Now()
			output(cmd)
			ways[i].took = append(ways[i].took, time.Since(began).Seconds())
		}
	}
	r := newRow("list of 10,000 runs", "s")
	for _, w := range ways {
		r.put(w.name, w.took)
		if what, ok := strings.CutPrefix(w.name, "ours: "); ok {
			r.atMost(what, quantile(w.took, 0.5), 0.3, r.unit)
		}
	}
	r.note("an index of %.1f MiB, and a journal of each run beside it", float64(index.Len())/(1<<20))
	b.add(r)
}
