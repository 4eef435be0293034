package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/perf/benchfmt"
)

func measureRecord(b *bench) {
	b.scope(func() { recordSize(b) })
	b.scope(func() { recordReport(b) })
	b.scope(func() { recordList(b) })
}

// recordBenchmark runs a benchmark of the package that sees into a record, with a variable
// of the environment. It returns what each of its parts reports, by unit.
func recordBenchmark(name, env string) map[string]map[string]float64 {
	cmd := command("go", "test", "-run", "^$", "-bench", "^Benchmark"+name+"$", "-benchtime", "1x", "./supervisor/record/store")
	cmd.Dir = ".."
	cmd.Env = append(cmd.Env, env)
	told := map[string]map[string]float64{}
	for r := benchfmt.NewReader(bytes.NewReader(output(cmd)), "go test"); r.Scan(); {
		if res, ok := r.Result().(*benchfmt.Result); ok {
			values := map[string]float64{}
			for _, v := range res.Values {
				values[v.Unit] = v.Value
			}
			told[processors.ReplaceAllString(res.Name.String(), "")] = values
		}
	}
	return told
}

// processors is what go test appends to a name: GOMAXPROCS.
var processors = regexp.MustCompile(`-\d+$`)

// recordSize is how many bytes a process takes in a sample of loaders over an LMDB.
func recordSize(b *bench) {
	sizes := []int{16, 64}
	for i, real := range keptRecords(b, sizes) {
		r := newRow(fmt.Sprintf("%d processes, a process in a sample", sizes[i]), "bytes")
		r.put("ours", []float64{real["B/blocks"]})
		r.atMost("by the samples", real["B/blocks"], 24, r.unit)
		r.note("%.0f samples of %.0f processes, ours among them; the file is larger by its events", real["samples"], real["processes"])
		b.add(r)
	}
}

// keptRecords records trees of so many loaders, all at the same time, and tells
// what their records are made of.
func keptRecords(b *bench, sizes []int) (kept []map[string]float64) {
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
		for name, m := range recordBenchmark("Kept", "RSSWARDEN_BENCH_RECORDS="+place(size)) {
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

// recordReport is the time and the memory of a report of three days of 64 ranks.
func recordReport(b *bench) {
	dir, page := path("full"), path("full.html")
	told := recordBenchmark("Full", "RSSWARDEN_BENCH_FULL="+pick(b, "72 ", "1 ")+dir)
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
		{name: "sha256sum of the record's file", args: []string{"sh", "-c", "sha256sum " + path("full/*/data.mdb")}},
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
	took.note("320 processes, %.0f samples, %.0f MiB of the 64 MiB that bound it: from there on it is thinned", told["Full"]["samples"], told["Full"]["MiB"])
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
