package analysis

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestAdviceHolds: of jobs rerun with what three runs advise nearly all live, and
// half of them leave at most 15 % unused.
func TestAdviceHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials = 2000
	died := 0
	var waste []float64
	for range trials {
		size, scatter := 0.2+100*random.Float64(), 0.02*random.Float64()
		draw := func() rss.Bytes { return scenetest.Gb(size * (1 + scatter*random.NormFloat64())) }
		s := SpreadOf([]rss.Bytes{draw(), draw(), draw()})
		mem, next := policy.NeatMem(s.Enough()), draw()
		if next > mem {
			died++
		}
		waste = append(waste, float64(mem.Sub(next))/float64(mem))
	}
	slices.Sort(waste)
	if median := waste[trials/2]; died > trials/50 || median > 0.15 {
		t.Errorf("%d of %d died, median waste %.3f", died, trials, median)
	}
}

func TestStudentTail(t *testing.T) {
	for _, c := range []struct {
		t    float64
		n    int
		want float64
	}{
		{6.314, 1, 0.05}, {2.920, 2, 0.05}, {2.353, 3, 0.05}, {2.132, 4, 0.05}, {2.015, 5, 0.05}, {1.833, 9, 0.05},
		{3.365, 5, 0.01}, {0, 7, 0.5}, {-2.015, 5, 0.95}, {1.6449, 100000, 0.05}, {1e9, 3, 0},
	} {
		if got := studentTail(c.t, c.n); got < c.want-0.0005 || got > c.want+0.0005 {
			t.Errorf("beyond %v with %d: %.4f, want %.4f", c.t, c.n, got, c.want)
		}
	}
}
