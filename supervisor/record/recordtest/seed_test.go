package recordtest

import (
	"fmt"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// TestSeedRun: the record has what was printed, to the digit.
func TestSeedRun(t *testing.T) {
	run, prints := SeedRun(), SeedPrints()
	gb := func(b rss.Bytes) string { return fmt.Sprintf("%.2f", float64(b)/float64(rss.GiB)) }
	i, peak := 0, rss.Bytes(0)
	var last record.Sample
	for s := range run.Samples() {
		p := prints[i]
		i++
		if s.At != p.At || gb(s.Limits[0].Used) != gb(p.Sum) {
			t.Errorf("at %v: %v, printed %v at %v", s.At, s.Limits[0].Used, p.Sum, p.At)
		}
		var sum rss.Bytes
		for _, u := range s.Procs {
			sum += u.RSS()
			size, printed := p.Procs[run.Procs[u.Proc].ID.PID]
			if off := float64(u.RSS()) - float64(size); printed && (off > 0.011*float64(rss.GiB) || off < -0.011*float64(rss.GiB)) {
				t.Errorf("at %v: process %v has %v, printed %v", s.At, run.Procs[u.Proc].ID, u.RSS(), size)
			}
		}
		if sum != s.Limits[0].Used {
			t.Errorf("at %v: the processes have %v, the limit says %v", s.At, sum, s.Limits[0].Used)
		}
		peak, last = max(peak, sum), *s
	}
	if i != 12 || len(last.Procs) != 5 || gb(peak) != "5.39" {
		t.Errorf("%d moments, %d processes, peak %s GB", i, len(last.Procs), gb(peak))
	}
}
