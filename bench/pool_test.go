package bench

import (
	"encoding/json"
	"strconv"
	"testing"
)

// BenchmarkPool is what the hook takes between two tasks of 1 ms in a multiprocessing.Pool, with
// a limit that has workers look at what they have mapped: in turns of 50 tasks with a pool
// beside it that was made without the hook. A run is one program, with both.
func BenchmarkPool(b *testing.B) { run(b, measurePool) }

// poolTask is what a task of helpers/pool.py sleeps, in µs.
const poolTask = 1000

func measurePool(b *bench) {
	var of struct {
		Ours, Bare, Hook float64 // seconds a task
		Ratios           []float64
	}
	var bare, ours, ratios, inside []float64
	for i := range pick(b, *pairsFlag, 2) {
		// Which is made first is not to decide; without the hook in either, programs differ by 1 %.
		first := []string{"ours", "bare"}[i%2]
		line := under("--quiet", "--limit", "8G")(python, path("pool.py"), strconv.Itoa(pick(b, 60, 4)), first)
		check(json.Unmarshal(must(command(line...).Output()), &of))
		bare, ours = append(bare, of.Bare), append(ours, of.Ours)
		ratios, inside = append(ratios, quantile(of.Ratios, 0.5)), append(inside, 1e6*of.Hook)
	}
	r := newRow("time of a task", "s")
	r.put("ours", ours)
	r.put("bare", bare)
	low, middle, high := interval(ratios)
	r.atLeast("throughput, with the hook to bare", middle, 0.995, "times")
	r.note("its 95 %% interval, of the medians of %d programs: %.4f to %.4f", len(ratios), low, high)
	b.add(r)
	// Not all that a task takes longer, but what the hook itself runs for.
	r = newRow("processor time inside the hook, a task", "µs")
	r.put("ours", inside)
	r.tell("of a task of 1 ms", 100*quantile(inside, 0.5)/poolTask, "%")
	b.add(r)
}
