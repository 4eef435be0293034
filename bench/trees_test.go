package bench

import (
	"fmt"
	"math"
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
