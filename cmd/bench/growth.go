package main

import (
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// growth measures group f: one row a size of the tree, and the exponent of the
// power of it that the cost grows by.
func (b *bench) growth() error {
	sizes, rounds := []int{1, 4, 16, 64, 256, 1000, 4000}, 10
	if b.quick {
		sizes, rounds = []int{1, 16, 128}, 2
	}
	var at, cost []float64
	for _, size := range sizes {
		took, err := b.treeCost(size, rounds)
		if err != nil {
			return fmt.Errorf("cannot read %d processes: %w", size, err)
		}
		r := b.row(fmt.Sprintf("%d processes", size), "µs")
		r.ours(full, took)
		var files unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && int(files.Cur/4) < size {
			r.note("RLIMIT_NOFILE of %d leaves too few descriptors to keep one a process", files.Cur)
		}
		r.tell("each process", r.Series[0].Median/float64(size), "µs")
		if size <= 1000 {
			at, cost = append(at, float64(size)), append(cost, r.Series[0].Median)
		}
		b.add(r)
	}
	last := &b.report.Rows[len(b.report.Rows)-1]
	last.atMost(fmt.Sprintf("exponent, 1 to %.0f processes", at[len(at)-1]), exponent(at, cost), 1.25, "")
	// What is added from one size to the next tells more than the exponent
	// where the cost has a part that does not grow.
	n := len(at) - 1
	last.tell("exponent of its last step", math.Log(cost[n]/cost[n-1])/math.Log(at[n]/at[n-1]), "")
	return nil
}

// treeCost is the mean time of a full look, once a round.
func (b *bench) treeCost(size, rounds int) ([]float64, error) {
	crowd, pid, err := b.crowd(size, nil)
	if err != nil {
		return nil, err
	}
	defer crowd.end()
	r := &reader{name: full}
	if r.child, err = b.start("/proc/self/exe", readerRole, "trees", strconv.Itoa(pid)); err != nil {
		return nil, err
	}
	defer r.child.end()
	if _, err := r.read(3, 0); err != nil {
		return nil, err
	}
	var runs []float64
	for range rounds {
		took, err := r.read(64, 0)
		if err != nil {
			return nil, err
		}
		runs = append(runs, mean(took))
	}
	return runs, nil
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
