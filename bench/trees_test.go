package bench

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

// measureTrees has every reader read the same tree, in turns.
func measureTrees(b *bench) {
	for _, tree := range []struct {
		size int
		// psutil is how many times as long it is to take.
		psutil float64
	}{{64, 60}, {1000, 30}} {
		b.scope(func() { measureTree(b, pick(b, tree.size, min(tree.size, 64+tree.size/10)), tree.psutil) })
	}
}

func measureTree(b *bench, size int, psutil float64) {
	_, pid := b.crowd(size, nil)
	readers := b.readers(pid)
	b.startReaders(readers, 3)
	rounds := pick(b, 20, 2)
	runs := [2][][]float64{
		inTurns(rounds, readers, func(r *reader) float64 { return mean(r.read(r.batch, 0)) }),
		inTurns(rounds, readers, func(r *reader) float64 { return r.read(1, pause)[0] }),
	}
	warm := newRow(fmt.Sprintf("%d processes, back to back", size), "µs")
	cold := newRow(fmt.Sprintf("%d processes, after 200 ms", size), "µs")
	for i, r := range readers {
		warm.put(r.name, runs[0][i])
		cold.put(r.name, runs[1][i])
		if off := math.Abs(float64(r.sum)/float64(readers[0].sum) - 1); off > 0.02 || math.IsNaN(off) {
			warm.note("%s reads %d bytes where SumRSS reads %d", r.name, r.sum, readers[0].sum)
		}
	}
	if !math.IsNaN(warm.median(seeds)) {
		warm.atLeast("psutil to SumRSS", warm.times(seeds, fast), psutil, "times")
		warm.tell("psutil to Trees", warm.times(seeds, full), "times")
		cold.tell("psutil to SumRSS", cold.times(seeds, fast), "times")
		cold.tell("psutil to Trees", cold.times(seeds, full), "times")
	}
	warm.atLeast("procfs (AllProcs) to SumRSS", warm.times(allProcs, fast), 15, "times")
	warm.tell("procfs (AllProcs) to Trees", warm.times(allProcs, full), "times")
	warm.atMost("SumRSS to C", warm.times(fast, preads), 1.5, "times")
	cold.atMost("SumRSS to C", cold.times(fast, preads), 2.5, "times")
	b.add(warm)
	b.add(cold)
}

// exponent fits y = c·x^k by least squares of the logarithms, and returns k.
func exponent(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range x {
		lx, ly := math.Log(x[i]), math.Log(y[i])
		sx, sy, sxx, sxy = sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	n := float64(len(x))
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// readerRole as first argument makes this program a reader written in Go.
const readerRole = "reader"

// A reader is one way to sum the RSS of a tree, in a process of its own that answers as
// helpers/statm.c does.
type reader struct {
	name  string
	args  []string
	batch int // readings back to back that are one run

	child *child
	sum   uint64 // what it read last
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

// pause is the time between two readings that makes them cold: what a reader
// needs has left the caches for what else the machine does.
const pause = 200 * time.Millisecond

// goReader is one of [goReaders].
func goReader(name, how string, pid, batch int) *reader {
	return &reader{name: name, args: []string{"/proc/self/exe", readerRole, how, strconv.Itoa(pid)}, batch: batch}
}

// readers lists the ways to sum the tree of pid; that which misses something is
// left out, and said.
func (b *bench) readers(pid int) []*reader {
	all := []*reader{
		goReader(fast, "sum", pid, 200),
		// Trees reads all of stat and status again every eighth time.
		goReader(full, "trees", pid, 64),
		{name: preads, args: []string{path("statm"), strconv.Itoa(pid)}, batch: 200},
		goReader(known, "known", pid, 8),
		goReader(allProcs, "procfs", pid, 4),
	}
	if b.lacks("psutil", "psutil") {
		return all
	}
	return append(all, &reader{name: seeds, args: []string{python, path("seed.py"), strconv.Itoa(pid)}, batch: 4})
}

// startReaders starts readers, and has each read so often: the first readings open what
// is kept open.
func (b *bench) startReaders(readers []*reader, first int) {
	for _, r := range readers {
		r.child = b.start(r.args...)
		r.read(first, 0)
	}
}

// inTurns has readers run in turns, and returns the runs of each.
func inTurns(rounds int, readers []*reader, run func(*reader) float64) [][]float64 {
	runs := make([][]float64, len(readers))
	for range rounds {
		for i, r := range readers {
			runs[i] = append(runs[i], run(r))
		}
	}
	return runs
}

// read has a reader read n times, each after a pause, and returns how many µs
// each took.
func (r *reader) read(n int, pause time.Duration) []float64 {
	r.child.say("%d %d", n, pause.Microseconds())
	words := strings.Fields(r.child.line())
	if len(words) != n+1 {
		check(fmt.Errorf("cannot understand %s: %d numbers, not %d", r.name, len(words), n+1))
	}
	took := make([]float64, n)
	for i := range took {
		took[i] = float64(must(strconv.ParseInt(words[i+1], 10, 64))) / 1e3
	}
	r.sum = must(strconv.ParseUint(words[0], 10, 64))
	return took
}

// goReaders are the readers written in Go: what one reads for the tree of a PID, and the
// clock that it is measured by.
var goReaders = map[string]struct {
	clock func() time.Duration
	open  func(pid int) func() uint64
}{
	"trees":       {wall, readTrees},
	"sum":         {wall, readSum},
	"procfs":      {wall, func(pid int) func() uint64 { return func() uint64 { return statuses(below(pid)) } }},
	"known":       {wall, func(pid int) func() uint64 { pids := below(pid); return func() uint64 { return statuses(pids) } }},
	"node-jobs":   {processorTime, readNode},
	"node-procfs": {processorTime, func(int) func() uint64 { return throughProcfs }},
}

var begun = time.Now()

func wall() time.Duration { return time.Since(begun) }

// processorTime is what all threads of this process have taken.
func processorTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	check(unix.ClockGettime(id, &t))
	return time.Duration(t.Nano())
}

// beReader is the reader process. It ends with its standard input.
func beReader(args []string) (status int) {
	if len(args) != 2 {
		return 2
	}
	how, ok := goReaders[args[0]]
	pid, err := strconv.Atoi(args[1])
	if err != nil || !ok {
		return 2
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			status = 1
		}
	}()
	defer catch(&err)
	sum := how.open(pid)
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
			began := how.clock()
			bytes = sum()
			took[i] = how.clock() - began
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

func readTrees(pid int) func() uint64 {
	tree, root := proctree.New("/proc"), []rss.ProcID{{PID: pid}}
	return func() uint64 {
		procs, _, err := tree.Trees(root)
		check(err)
		var sum rss.Bytes
		for i := range procs {
			sum += procs[i].RSS
		}
		return uint64(sum)
	}
}

func readSum(pid int) func() uint64 {
	tree := proctree.New("/proc")
	_, _, err := tree.Tree(rss.ProcID{PID: pid})
	check(err)
	return func() uint64 { return uint64(must(tree.SumRSS())) }
}

var procFS, _ = procfs.NewFS("/proc") // without one the first reading fails

// below lists root and all that descends from it, by the parents in the stat of
// all processes.
func below(root int) []int {
	children := map[int][]int{}
	for _, p := range must(procFS.AllProcs()) {
		if s, err := p.Stat(); err == nil {
			children[s.PPID] = append(children[s.PPID], p.PID)
		}
	}
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids
}

// statuses adds up VmRSS of those that live.
func statuses(pids []int) (sum uint64) {
	for _, pid := range pids {
		if p, err := procFS.Proc(pid); err == nil {
			if s, err := p.NewStatus(); err == nil {
				sum += s.VmRSS
			}
		}
	}
	return sum
}
