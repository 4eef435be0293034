package bench

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
)

// BenchmarkBirth is how long a trainer of 1, 4 and 8 GiB stands still while one of its loader's
// workers is recycled: with a fork helper, and forking itself. A run is one recycle, every
// other one by swap and by drain. Memory is what trainer, workers and helper have together
// after the trainer has rewritten all of its own, which is the most that a helper can cost.
func BenchmarkBirth(b *testing.B) { run(b, measureBirth) }

func measureBirth(b *bench) {
	if b.lacks("a loader", "torch") {
		return
	}
	hook := must(command("git", "rev-parse", "--show-toplevel").Output())
	for _, size := range pick(b, []float64{1, 4, 8}, []float64{1}) {
		name := fmt.Sprintf("%v GiB", size)
		if available() < 2*size+1 {
			b.skip("recycling in a trainer of %s: %.1f GiB are available", name, available())
			continue
		}
		r, m := newRow("trainer of "+name+" stands still", "ms"), newRow("memory, trainer of "+name, "MiB")
		for _, how := range []string{"helper", "fork"} {
			var got struct {
				Pauses []float64
				Memory float64
			}
			line := []string{python, "-B", path("birth.py"), string(hook[:len(hook)-1]) + "/supervisor/loader/hook",
				strconv.FormatFloat(size, 'g', -1, 64), how, strconv.Itoa(pick(b, 24, 4))}
			check(json.Unmarshal(must(command(line...).Output()), &got))
			r.put(how, got.Pauses)
			m.put(how, []float64{got.Memory / (1 << 20)})
		}
		r.atMost("median with a helper", r.median("helper"), 5, "ms")
		r.tell("longest with a helper", quantile(r.of("helper").runs, 1), "ms")
		b.add(r)
		m.tell("a helper costs", m.median("helper")-m.median("fork"), "MiB")
		b.add(m)
	}
}
