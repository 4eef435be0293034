// Bench measures what rsswarden costs and how fast it is, beside its peers, and prints one
// table: ours and the peers' of the same run, every single run, and the ratio.
//
//	go run ./cmd/bench [-rows a,c,f] [-quick] [-out bench.txt]
//	go tool benchstat OLD.txt NEW.txt
//
// Ours and the peers take turns, a run each, so that all meet the same machine; what is
// watched for a minute is watched at the same time. The groups of rows:
//
//	a   one sum of RSS over a tree of 64 and of 1,000 sleeping processes, back to back
//	    (a run is the mean of a few) and after a pause of 200 ms (a run is one): SumRSS
//	    as in a fast look, Trees as in a full one, psutil as in the scripts that we
//	    replace, prometheus/procfs, and a C loop of preads, the least it can cost; each
//	    in a process of its own
//	b   what holder and watcher take while 64 processes sleep, with the defaults and with
//	    a limit on summed RSS, beside earlyoom and a psutil loop
//	c   the time until a command runs: bare, under tini, under us
//	d   by how much a burst has passed a rung when our decision is made, and when a poll
//	    each second sees it; attached to a process that has not grown yet
//	e   what a PyTorch training loses, in pairs of a bare and a wrapped run
//	f   how the cost of Trees grows with the tree
//	g   the cost of a fork storm, and whether a process forked in it is found
//	h   how long ptrace stops a process while 1 GiB of its mapped file is given back,
//	    beside its own madvise, and what the process reads meanwhile
//	i   the record: bytes a process and sample, of a real run and of a made-up hour; the
//	    time of a sample in the watcher's loop and in its writer, beside lines of JSON
//	    and text, and a look at the same tree; what recording adds to holder and
//	    watcher; a report of a full record
//	j   the limits on numbers: counting mappings and descriptors of 64 trainers with
//	    2,000 mappings each, of nothing and of a file, beside procfs and psutil; what
//	    holder and watcher take for it, beside trainers with few mappings and processes
//	    that are no trainers. Counts are rare: -idle 4m holds more of them
//	k   the node's daemon: a look at 100, 300 and 1,000 jobs of ten processes in real
//	    cgroups, beside procfs; what rsswardend takes for 1,000 at 10 s, scraped and not,
//	    while all processes sleep, and while each takes or gives back 16 pages
//	go  the benchmarks of the readers, run by go test
//
// What not to conclude: SumRSS, procfs with PIDs known and the C loop do less than psutil:
// they do not look for new processes. A full look lists /proc only where something was
// forked, so other work on the machine makes it dearer. earlyoom reads two numbers of the
// whole machine. What grows in d and g is mapped, not charged: it counts in RSS, in no
// cgroup. The poll of d is the best of its kind, one read of one file. Ratios of added
// time, as in c, are of small differences: below twenty runs they say nothing. A loaded
// machine makes all figures larger, and not by one factor; -quick only shows that all works.
//
// A missed goal is marked, and is no error: figures of one machine prove nothing on
// another. The file of -out has all runs in the format of Go benchmarks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var groups = []group{
	{"a", "one sum of RSS over a tree", measureTrees},
	{"b", "watching 64 sleeping processes", measureIdle},
	{"c", "start-up, until the command runs", measureStart},
	{"d", "a burst of memory, until it is noticed", measureBursts},
	{"e", "a PyTorch training that needs no help", measureTraining},
	{"f", "a full look, by the size of the tree", measureGrowth},
	{"g", "a fork storm", measureStorm},
	{"h", "a process shrunk by ptrace", measureTrim},
	{"i", "what a record costs", measureRecord},
	{"j", "the limits on numbers", measureCounts},
	{"k", "a node full of jobs", measureNode},
	{"go", "go test -bench of the readers", measureGoTests},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == readerRole {
		os.Exit(beReader(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status: 0, 1 where something could not be measured for
// another reason than that a peer is missing, 2 for bad usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := measure(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.rows, "rows", strings.Join(names, ","), "the `GROUPS` of rows to measure")
	f.BoolVar(&o.quick, "quick", false, "few and short runs: to see that all works")
	f.StringVar(&o.out, "out", "bench.txt", "write all runs to `FILE`, for benchstat; empty for none")
	f.StringVar(&o.program, "rsswarden", "", "measure this `FILE` rather than build the tree's own")
	f.DurationVar(&o.idle, "idle", time.Minute, "how long to watch what sleeps")
	f.IntVar(&o.bursts, "bursts", 20, "bursts of each rate")
	f.IntVar(&o.pairs, "pairs", 10, "pairs of trainings; an interval worth its name needs 30")
	f.DurationVar(&o.storm, "storm", 30*time.Second, "how long forks storm")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.bursts < 1 || o.pairs < 1 || o.idle < time.Second || o.storm < time.Second:
		err = errors.New("less than one run, or less than a second, cannot be measured")
	}
	for name := range strings.SplitSeq(o.rows, ",") {
		if !slices.Contains(names, name) {
			err = fmt.Errorf("no rows %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "error:", err)
	}
	if o.quick {
		o.idle, o.bursts, o.pairs, o.storm = min(o.idle, 4*time.Second), min(o.bursts, 2), min(o.pairs, 2), min(o.storm, 4*time.Second)
	}
	return o, err
}

// measure runs the groups, prints each as it is done, and writes the report.
func measure(ctx context.Context, o options, stdout io.Writer) (err error) {
	defer catch(&err)
	dir, err := os.MkdirTemp("", "rsswarden-bench-")
	if err != nil {
		return fmt.Errorf("cannot make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	root := sourceTree()
	b := &bench{options: o, ctx: ctx, dir: dir, root: root}
	b.build()
	b.report = newReport(root)
	b.report.Quick = o.quick
	printHead(stdout, b.report)
	var failed []error
	for _, g := range groups {
		if !slices.Contains(strings.Split(o.rows, ","), g.name) || ctx.Err() != nil {
			continue
		}
		b.group = g.name
		began, rows, skipped := time.Now(), len(b.report.Rows), len(b.report.Skipped)
		if err := runGroup(b, g); err != nil {
			err = fmt.Errorf("cannot measure %s (%s): %w", g.name, g.title, err)
			b.skip(err.Error())
			failed = append(failed, err)
		}
		printGroup(stdout, g, b.report.Rows[rows:], b.report.Skipped[skipped:], time.Since(began))
	}
	printGoals(stdout, b.report)
	if o.out != "" {
		if err := b.report.write(o.out); err != nil {
			failed = append(failed, err)
		} else {
			fmt.Fprintf(stdout, "all runs are in %s\n", filepath.Base(o.out))
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

func runGroup(b *bench, g group) (err error) {
	defer catch(&err)
	b.scope(func() { g.measure(b) })
	return nil
}
