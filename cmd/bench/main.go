// Bench measures what rsswarden costs and how fast it is, beside what else there
// is, and prints one table: ours and the peer's of the same run, every single
// run, and the ratio.
//
//	go run ./cmd/bench [-rows a,c,f] [-quick] [-out bench.txt]
//	go tool benchstat OLD.txt NEW.txt
//
// # What it measures, and how
//
// Ours and the peers take turns, a run each, so that all meet the same machine;
// what is watched for a minute is watched at the same time. Each run is told.
// The groups of rows:
//
//	a   the time of one sum of RSS over a tree of 64 and 1,000 sleeping processes,
//	    back to back (a run is the mean of a few) and after a pause of 200 ms (a run
//	    is one): ours twice, SumRSS as in a fast look and Trees as in a full one; psutil
//	    as in the scripts that we were asked to replace; prometheus/procfs; a C loop
//	    of preads, as the least it can cost. Each reader is a process of its own.
//	b   what holder and watcher take while 64 processes sleep, with the defaults and
//	    with a limit on summed RSS, beside earlyoom and a psutil loop
//	c   the time until a command runs, bare, under tini and under us
//	d   by how much a burst has passed a rung when our decision is made, and when a
//	    poll each second sees it; attached to a process that has not grown yet
//	e   what a PyTorch training loses, in pairs of a bare and a wrapped run
//	f   how the cost of Trees grows with the tree
//	g   the cost of a fork storm, and whether a process forked in it is found
//	h   the time for which ptrace has a process stand still while 1 GiB of its
//	    mapped file is given back, beside its own madvise, and what it reads meanwhile
//	i   the record: bytes a process and sample, of a real run and of an hour that was
//	    made up; the time of one sample in the watcher's loop and in its writer, beside
//	    lines of JSON and text, and a look at the same tree; what recording adds to
//	    holder and watcher; and a report of a record as full as one becomes
//	j   the limits on numbers: what it takes to count the mappings and descriptors of
//	    64 trainers with 2,000 mappings each, of nothing and of a file, beside procfs
//	    and psutil; and what holder and watcher take for them, beside 64 trainers with
//	    the mappings of any program, and 64 processes that are no trainers. What stands
//	    still is counted seldom: -idle 4m holds more counts
//	k   the node's daemon: one look at 100, 300 and 1,000 jobs of ten processes each, in
//	    real cgroups, beside the same through procfs; and what rsswardend takes for
//	    1,000 at 10 s, scraped and not: while all processes sleep, and while each takes
//	    16 pages or gives them back between two looks
//	go  the benchmarks of the readers, run by go test
//
// # What not to conclude
//
// SumRSS, procfs with PIDs known and the C loop do less than psutil does: they
// do not look for new processes. That is the point of a fast look, and a full one
// stands beside it. A full look, too, lists /proc only where something was forked,
// so that other work on the machine makes it dearer. earlyoom reads two numbers
// of the whole machine and knows no tree: it says what a daemon costs that does
// almost nothing. What grows in d and g is mapped and
// takes no memory: it counts in RSS, and in no cgroup's charge. The poll of d is the best of its
// kind, one read of one file. Ratios of added time, as in c, are of small
// differences: below twenty runs they say nothing. A loaded machine makes all
// figures larger, and not by one factor; -quick is to see that all works.
//
// A goal that is missed is marked, and is no error: figures of one machine prove
// nothing on another. The file of -out has all runs in the format of Go benchmarks.
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

// options is what the command line chooses.
type options struct {
	rows    string
	quick   bool
	out     string
	program string
	idle    time.Duration
	bursts  int
	pairs   int
	storm   time.Duration
}

// bench is one run of this program.
type bench struct {
	options
	ctx    context.Context
	report *Report
	dir    string // for what is built and written
	root   string // of the source tree
	group  string // in which rows are added
}

// A group is a set of rows that are measured together.
type group struct {
	name, title string
	run         func(*bench) error
}

var groups = []group{
	{"a", "one sum of RSS over a tree", (*bench).trees},
	{"b", "watching 64 sleeping processes", (*bench).idling},
	{"c", "start-up, until the command runs", (*bench).starting},
	{"d", "a burst of memory, until it is noticed", (*bench).bursting},
	{"e", "a PyTorch training that needs no help", (*bench).training},
	{"f", "a full look, by the size of the tree", (*bench).growth},
	{"g", "a fork storm", (*bench).storming},
	{"h", "a process shrunk by ptrace", (*bench).trimming},
	{"i", "what a record costs", (*bench).recording},
	{"j", "the limits on numbers", (*bench).counting},
	{"k", "a node full of jobs", (*bench).node},
	{"go", "go test -bench of the readers", (*bench).gotests},
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
func measure(ctx context.Context, o options, stdout io.Writer) error {
	root, err := sourceTree()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rsswarden-bench-")
	if err != nil {
		return fmt.Errorf("cannot make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, ctx: ctx, dir: dir, root: root}
	if err := b.build(); err != nil {
		return err
	}
	if b.report, err = newReport(root); err != nil {
		return err
	}
	b.report.Quick = o.quick
	printHead(stdout, b.report)
	var failed []error
	for _, g := range groups {
		if !slices.Contains(strings.Split(o.rows, ","), g.name) || ctx.Err() != nil {
			continue
		}
		b.group = g.name
		began, rows, skipped := time.Now(), len(b.report.Rows), len(b.report.Skipped)
		if err := g.run(b); err != nil {
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
