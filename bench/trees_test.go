package bench

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
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

// measureGrowth has one row a size of the tree, and the exponent of the
// power of it that the cost grows by.
func measureGrowth(b *bench) {
	var at, cost []float64
	for _, size := range pick(b, []int{1, 4, 16, 64, 256, 1000, 4000}, []int{1, 16, 128}) {
		r := newRow(fmt.Sprintf("%d processes", size), "µs")
		r.put(full, treeCost(b, size, pick(b, 10, 2)))
		var files unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && int(files.Cur/4) < size {
			r.note("RLIMIT_NOFILE of %d leaves too few descriptors to keep one a process", files.Cur)
		}
		r.tell("each process", r.series[0].median()/float64(size), "µs")
		if size <= 1000 {
			at, cost = append(at, float64(size)), append(cost, r.series[0].median())
		}
		b.add(r)
	}
	n := len(at) - 1
	all := newRow("all sizes", "")
	all.atMost(fmt.Sprintf("exponent, 1 to %.0f processes", at[n]), exponent(at, cost), 1.25, "")
	// What is added from one size to the next tells more than the exponent
	// where the cost has a part that does not grow.
	all.tell("exponent of the last step", exponent(at[n-1:], cost[n-1:]), "")
	b.add(all)
}

// treeCost is the mean time of a full look, once a round.
func treeCost(b *bench, size, rounds int) (runs []float64) {
	b.scope(func() {
		_, pid := b.crowd(size, nil)
		readers := []*reader{goReader(full, "trees", pid, 64)}
		b.startReaders(readers, 3)
		runs = inTurns(rounds, readers, func(r *reader) float64 { return mean(r.read(r.batch, 0)) })[0]
	})
	return runs
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
