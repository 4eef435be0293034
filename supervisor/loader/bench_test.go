package loader

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkHook prints what the hook costs where nothing is asked for: CPU
// time a batch in the trainer and in a worker, bare and with the hook, and the
// difference.
// Bare and hooked runs take turns; the least of each is taken. The lookups are
// the same cost read alone, without the noise of two processes: in a loop that
// takes batches faster than the control file is looked at, and with the stat of
// that file every time.
func BenchmarkHook(b *testing.B) {
	for _, s := range []*stand{torch113, torch26} {
		b.Run(s.Name, func(b *testing.B) {
			s.Need(b)
			script, err := filepath.Abs("testdata/percall.py")
			must(b, err)
			type cost struct {
				Trainer, Worker float64
				Poll, Fetch     float64
				PollEach        float64 `json:"poll_each"`
				FetchEach       float64 `json:"fetch_each"`
			}
			least := func(c *cost, env []string) {
				cmd := s.Command(b, python, script, "20000")
				cmd.Env, cmd.Stderr = env, os.Stderr
				out, err := cmd.Output()
				var got cost
				if err == nil {
					err = json.Unmarshal(out, &got)
				}
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				c.Trainer, c.Worker = min(c.Trainer, got.Trainer), min(c.Worker, got.Worker)
				c.Poll, c.Fetch = min(c.Poll, got.Poll), min(c.Fetch, got.Fetch)
				c.PollEach, c.FetchEach = min(c.PollEach, got.PollEach), min(c.FetchEach, got.FetchEach)
			}
			p := prepare(b, atHome(b, os.Environ()))
			inf := math.Inf(1)
			bare := cost{inf, inf, inf, inf, inf, inf}
			ours := bare
			for b.Loop() {
				for range 5 {
					least(&bare, os.Environ())
					least(&ours, p.Env)
				}
			}
			b.ReportMetric(bare.Trainer, "bare-trainer-µs/batch")
			b.ReportMetric(bare.Worker, "bare-worker-µs/batch")
			b.ReportMetric(ours.Trainer-bare.Trainer, "hook-trainer-µs/batch")
			b.ReportMetric(ours.Worker-bare.Worker, "hook-worker-µs/batch")
			b.ReportMetric(ours.Poll, "lookup-trainer-µs")
			b.ReportMetric(ours.Fetch, "lookup-worker-µs")
			b.ReportMetric(ours.PollEach, "lookup-trainer-stat-µs")
			b.ReportMetric(ours.FetchEach, "lookup-worker-stat-µs")
		})
	}
}
