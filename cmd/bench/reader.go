package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

// readerRole as first argument makes this program a reader written in Go.
const readerRole = "reader"

// A reader is one way to sum the RSS of a tree, or to count what its processes
// have, in a process of its own that answers as helpers/statm.c does.
type reader struct {
	name  string
	ours  bool
	args  []string
	batch int // readings back to back that are one run

	child *child
	sum   uint64 // what it read last
	warm  []float64
	cold  []float64
}

// The names of the readers.
const (
	fast     = "ours: SumRSS"
	full     = "ours: Trees"
	preads   = "C, preads of kept statm"
	known    = "procfs, PIDs known"
	allProcs = "procfs, AllProcs"
	seeds    = "psutil, as in the seeds"
)

// readers lists the ways to sum the tree of pid; that which misses something is
// left out, and said.
func (b *bench) readers(pid int) []*reader {
	id := strconv.Itoa(pid)
	all := []*reader{
		{name: fast, ours: true, args: []string{"/proc/self/exe", readerRole, "sum", id}, batch: 200},
		// Trees reads all of stat and status again every eighth time.
		{name: full, ours: true, args: []string{"/proc/self/exe", readerRole, "trees", id}, batch: 64},
		{name: preads, args: []string{b.path("statm"), id}, batch: 200},
		{name: known, args: []string{"/proc/self/exe", readerRole, "known", id}, batch: 8},
		{name: allProcs, args: []string{"/proc/self/exe", readerRole, "procfs", id}, batch: 4},
	}
	if why := b.missing("psutil"); why != "" {
		b.skip("psutil: " + why)
		return all
	}
	return append(all, &reader{name: seeds, args: []string{python, b.path("seed.py"), id}, batch: 4})
}

// read has a reader read n times, each after a pause, and returns how many µs
// each took.
func (r *reader) read(n int, pause time.Duration) ([]float64, error) {
	if _, err := fmt.Fprintf(r.child.in, "%d %d\n", n, pause.Microseconds()); err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", r.name, err)
	}
	line, err := r.child.line()
	if err != nil {
		return nil, err
	}
	words := strings.Fields(line)
	if len(words) != n+1 {
		return nil, fmt.Errorf("cannot understand %s: %d numbers, not %d", r.name, len(words), n+1)
	}
	took := make([]float64, n)
	for i := range took {
		ns, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cannot understand %s: %w", r.name, err)
		}
		took[i] = float64(ns) / 1e3
	}
	r.sum, err = strconv.ParseUint(words[0], 10, 64)
	return took, err
}

var begun = time.Now()

func wall() time.Duration { return time.Since(begun) }

// beReader is the reader process. It ends with its standard input.
func beReader(args []string) int {
	if len(args) != 2 {
		return 2
	}
	pid, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	clock, means := wall, summer
	if strings.Contains(args[0], "-") {
		clock, means = processorTime, counter
	}
	if strings.HasPrefix(args[0], "node-") {
		means = func(how string, _ int) (func() (uint64, error), error) { return nodeReader(how), nil }
	}
	sum, err := means(args[0], pid)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	out := bufio.NewWriter(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var n, pause int
		if _, err := fmt.Sscan(lines.Text(), &n, &pause); err != nil || n < 1 {
			return 2
		}
		took := make([]time.Duration, n)
		var bytes uint64
		for i := range took {
			if pause > 0 {
				time.Sleep(time.Duration(pause) * time.Microsecond)
			}
			began := clock()
			bytes, err = sum()
			took[i] = clock() - began
			if err != nil {
				fmt.Fprintln(os.Stderr, "error:", err)
				return 1
			}
		}
		fmt.Fprint(out, bytes)
		for _, t := range took {
			fmt.Fprint(out, " ", t.Nanoseconds())
		}
		fmt.Fprintln(out)
		if out.Flush() != nil {
			return 0
		}
	}
	return 0
}

// summer returns what sums the RSS of a tree in the way named.
func summer(how string, pid int) (func() (uint64, error), error) {
	tree := proctree.New("/proc")
	root := []rss.ProcID{{PID: pid}}
	trees := func() (uint64, error) {
		procs, _, err := tree.Trees(root)
		var sum rss.Bytes
		for i := range procs {
			sum += procs[i].RSS
		}
		return uint64(sum), err
	}
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot open /proc: %w", err)
	}
	switch how {
	case "trees":
		return trees, nil
	case "sum":
		_, err := trees()
		return func() (uint64, error) {
			n, err := tree.SumRSS()
			return uint64(n), err
		}, err
	case "procfs":
		return func() (uint64, error) {
			pids, err := below(fs, pid)
			if err != nil {
				return 0, err
			}
			return statuses(fs, pids)
		}, nil
	case "known":
		pids, err := below(fs, pid)
		return func() (uint64, error) { return statuses(fs, pids) }, err
	}
	return nil, fmt.Errorf("no reader %q", how)
}

// below lists root and all that descends from it, by the parents in the stat of
// all processes.
func below(fs procfs.FS, root int) ([]int, error) {
	all, err := fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	children := map[int][]int{}
	for _, p := range all {
		if s, err := p.Stat(); err == nil {
			children[s.PPID] = append(children[s.PPID], p.PID)
		}
	}
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids, nil
}

// statuses adds up VmRSS of those that live.
func statuses(fs procfs.FS, pids []int) (uint64, error) {
	var sum uint64
	for _, pid := range pids {
		p, err := fs.Proc(pid)
		if err != nil {
			continue
		}
		if s, err := p.NewStatus(); err == nil {
			sum += s.VmRSS
		}
	}
	return sum, nil
}
