package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// trained is what helpers/overhead.py says of one training.
type trained struct {
	Seconds     float64 `json:"seconds"`
	Work        float64 `json:"work"`
	CPU         float64 `json:"cpu"`
	Hook        float64 `json:"hook"`
	Hooked      bool    `json:"hooked"`
	Supervisors int     `json:"supervisors"`

	wall float64 // from start to end, in s
}

// measureTraining trains pairs of a bare and a wrapped run, the order of
// the two changing from pair to pair, and then longer ones with the hook timed,
// which would slow the pairs down. In a short one our start is most of what we
// take.
func measureTraining(b *bench) {
	if b.lacks("PyTorch", "torch, lmdb, numpy") {
		return
	}
	job := []string{must(filepath.Abs("../examples/train/train.py")), "--data", path("train.lmdb"),
		"--records", pick(b, "1500", "200"), "--record-bytes", "60000", "--workers", "2", "--persistent", "--epochs"}
	long := append([]string{"timed"}, append(slices.Clone(job), pick(b, "240", "4"))...)
	job = append(job, pick(b, "24", "2"))
	wrapped := func(args []string) trained {
		t := trainOnce(b, under("--quiet"), args)
		if !t.Hooked || t.Supervisors != 2 {
			check(fmt.Errorf("cannot see rsswarden at work: hook %v, %d processes of 2", t.Hooked, t.Supervisors))
		}
		return t
	}
	// The first makes the data, and reads all into the page cache.
	trainOnce(b, nil, job)
	pairs := pick(b, *pairsFlag, 2)
	var bare, ours, ratios, bareWork, oursWork, cpu, hook, start []float64
	for i := range pairs {
		var alone, t trained
		for j := range 2 {
			if (i+j)%2 == 0 {
				alone = trainOnce(b, nil, job)
			} else {
				t = wrapped(job)
			}
		}
		bare, ours = append(bare, alone.Seconds), append(ours, t.Seconds)
		bareWork, oursWork = append(bareWork, alone.Work), append(oursWork, t.Work)
		ratios = append(ratios, alone.Seconds/t.Seconds)
		start = append(start, 1000*t.CPU)
	}
	seconds := 0.0
	for range pick(b, 3, 1) {
		t := wrapped(long)
		cpu = append(cpu, 100*t.CPU/t.wall)
		hook = append(hook, 100*t.Hook/t.wall)
		seconds = t.wall
	}

	r := newRow("time of the training", "s")
	r.put("ours", ours)
	r.put("bare", bare)
	low, middle, high := interval(ratios)
	r.tell("throughput, wrapped to bare", middle, "times")
	r.atMost("its 95 % interval, from", low, 1, "times")
	r.atLeast("its 95 % interval, to", high, 1, "times")
	if pairs < 30 {
		r.note("%d pairs; 30 are asked for", pairs)
	}
	b.add(r)
	// It depends less on what else the machine does.
	r = newRow("processor time of trainer and workers", "s")
	r.put("ours", oursWork)
	r.put("bare", bareWork)
	r.tell("ours to bare", r.times("ours", "bare"), "times")
	b.add(r)
	r = newRow("what we take", "% of wall time")
	r.put("ours: CPU of holder and watcher", cpu)
	r.put("ours: time inside the hook, all processes", hook)
	r.atMost("both", quantile(cpu, 0.5)+quantile(hook, 0.5), 0.5, "%")
	r.note("trainings of %.0f s; in the short ones above our CPU was %.0f ms, most of it the start", seconds, quantile(start, 0.5))
	b.add(r)
}

func trainOnce(b *bench, wrap wrapper, args []string) (t trained) {
	line := append([]string{python, "-W", "ignore", path("overhead.py")}, args...)
	if wrap != nil {
		line = wrap(line...)
	}
	cmd := command(line...)
	cmd.WaitDelay = 10 * time.Second
	began := time.Now()
	out, err := cmd.Output()
	if end := (*exec.ExitError)(nil); errors.As(err, &end) {
		err = fmt.Errorf("%w: %s", err, end.Stderr)
	}
	if err != nil {
		check(fmt.Errorf("cannot train: %w", err))
	}
	t.wall = time.Since(began).Seconds()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &t); err != nil {
		check(fmt.Errorf("cannot understand what the training cost: %w", err))
	}
	return t
}

// interval returns the geometric mean of ratios and its 95 % interval by
// Student's t, on logarithms.
func interval(ratios []float64) (low, middle, high float64) {
	n := float64(len(ratios))
	var sum, squares float64
	for _, r := range ratios {
		sum += math.Log(r)
	}
	m := sum / n
	for _, r := range ratios {
		squares += (math.Log(r) - m) * (math.Log(r) - m)
	}
	if n < 2 {
		return math.NaN(), math.Exp(m), math.NaN()
	}
	half := student(n-1) * math.Sqrt(squares/(n-1)/n)
	return math.Exp(m - half), math.Exp(m), math.Exp(m + half)
}

// student is the 97.5 % quantile of Student's t, by the Cornish-Fisher
// expansion (Abramowitz and Stegun 26.7.5), and by the table where that is
// more than 1 % off.
func student(df float64) float64 {
	if few := []float64{12.706, 4.303, 3.182, 2.776}; int(df) <= len(few) {
		return few[int(df)-1]
	}
	const z = 1.959964
	g1 := (z*z*z + z) / 4
	g2 := (5*math.Pow(z, 5) + 16*z*z*z + 3*z) / 96
	return z + g1/df + g2/(df*df)
}
