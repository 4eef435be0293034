package main

import (
	"fmt"
	"math"
	"time"
)

// trees measures group a: every reader reads the same tree, in turns.
func (b *bench) trees() error {
	for _, tree := range []struct {
		size int
		// psutil is how many times as long it is to take.
		psutil float64
	}{{64, 60}, {1000, 30}} {
		size := tree.size
		if b.quick {
			size = min(size, 64+size/10)
		}
		if err := b.tree(size, tree.psutil); err != nil {
			return fmt.Errorf("cannot read %d processes: %w", size, err)
		}
	}
	return nil
}

// pause is the time between two readings that makes them cold: what a reader
// needs has left the caches for what else the machine does.
const pause = 200 * time.Millisecond

func (b *bench) tree(size int, psutil float64) error {
	crowd, pid, err := b.crowd(size, nil)
	if err != nil {
		return err
	}
	defer crowd.end()
	readers := b.readers(pid)
	defer func() {
		for _, r := range readers {
			if r.child != nil {
				r.child.end()
			}
		}
	}()
	rounds := 20
	if b.quick {
		rounds = 2
	}
	for _, r := range readers {
		if r.child, err = b.start(r.args...); err != nil {
			return err
		}
		// The first readings open what is kept open.
		if _, err := r.read(3, 0); err != nil {
			return err
		}
	}
	for range rounds {
		for _, r := range readers {
			took, err := r.read(r.batch, 0)
			if err != nil {
				return err
			}
			r.warm = append(r.warm, mean(took))
		}
	}
	for range rounds {
		for _, r := range readers {
			took, err := r.read(1, pause)
			if err != nil {
				return err
			}
			r.cold = append(r.cold, took[0])
		}
	}

	warm := b.row(fmt.Sprintf("%d processes, back to back", size), "µs")
	cold := b.row(fmt.Sprintf("%d processes, after 200 ms", size), "µs")
	for _, r := range readers {
		warm.put(r.name, r.ours, r.warm)
		cold.put(r.name, r.ours, r.cold)
		if off := math.Abs(float64(r.sum)/float64(readers[0].sum) - 1); off > 0.02 || math.IsNaN(off) {
			warm.note("%s reads %d bytes where SumRSS reads %d", r.name, r.sum, readers[0].sum)
		}
	}
	times := func(r *Row, slow, quick string) float64 { return r.median(slow) / r.median(quick) }
	if !math.IsNaN(warm.median(seeds)) {
		warm.atLeast("psutil to SumRSS", times(warm, seeds, fast), psutil, "times")
		warm.tell("psutil to Trees", times(warm, seeds, full), "times")
		cold.tell("psutil to SumRSS", times(cold, seeds, fast), "times")
		cold.tell("psutil to Trees", times(cold, seeds, full), "times")
	}
	warm.atLeast("procfs (AllProcs) to SumRSS", times(warm, allProcs, fast), 15, "times")
	warm.tell("procfs (AllProcs) to Trees", times(warm, allProcs, full), "times")
	warm.atMost("SumRSS to C", times(warm, fast, preads), 1.5, "times")
	cold.atMost("SumRSS to C", times(cold, fast, preads), 2.5, "times")
	b.add(warm)
	b.add(cold)
	return nil
}

func mean(runs []float64) float64 {
	sum := 0.0
	for _, v := range runs {
		sum += v
	}
	return sum / float64(len(runs))
}
