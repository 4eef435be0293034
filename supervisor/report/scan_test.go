package report

import (
	"iter"
	"sync/atomic"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// TestOneDecode: each run is decoded once, for a text and for a page.
func TestOneDecode(t *testing.T) {
	of := samplesOf
	defer func() { samplesOf = of }()
	var times atomic.Int64
	samplesOf = func(r *record.Run) iter.Seq[*record.Sample] {
		times.Add(1)
		return of(r)
	}
	runs := ranks()
	for _, draw := range []bool{false, true} {
		times.Store(0)
		if rep := explained(Input{Runs: runs, Now: noon, Timeline: draw}); len(rep.Advice) == 0 || (rep.Timeline != nil) != draw {
			t.Errorf("advice %v, timeline %v", rep.Advice, rep.Timeline != nil)
		}
		if n := times.Load(); n != int64(len(runs)) {
			t.Errorf("timeline %v: %d runs were decoded %d times", draw, len(runs), n)
		}
	}
}
