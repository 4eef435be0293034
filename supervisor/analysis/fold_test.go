package analysis

import (
	"slices"
	"testing"
	"time"
)

func TestSpark(t *testing.T) {
	for _, length := range []time.Duration{time.Second, time.Minute, time.Hour, 1000 * time.Hour} {
		var s spark
		for i := range 1000 {
			s.add(time.Duration(i)*length/1000, float64(i)/1000)
		}
		got := s.stretches(length)
		for i := range got {
			want := float64(i+1) / sparkStretches
			if length >= time.Minute && (got[i] < want-0.03 || got[i] > want+0.003) {
				t.Fatalf("%v: stretch %d is %.3f, want %.3f", length, i, got[i], want)
			}
		}
	}
	var s spark
	s.add(0, 1)
	s.add(time.Hour, 0.5)
	if got := s.stretches(time.Hour); got[0] != 1 || got[20] != -1 || got[39] != 0.5 {
		t.Errorf("with a gap: %v", got)
	}
}

// TestRaiseCell: cells that are joined keep the higher value, and a hole stays one.
func TestRaiseCell(t *testing.T) {
	var cells []int64
	step := time.Second
	for _, c := range []struct {
		at   time.Duration
		v    int64
		want []int64
		step time.Duration
	}{
		{0, 5, []int64{5}, time.Second},
		{900 * time.Millisecond, 3, []int64{5}, time.Second},
		{3 * time.Second, 7, []int64{5, -1, -1, 7}, time.Second},
		{4 * time.Second, 1, []int64{5, 7, 1}, 2 * time.Second},
		{time.Second, 9, []int64{9, 7, 1}, 2 * time.Second},
		{6 * time.Second, 0, []int64{9, 7, 1, 0}, 2 * time.Second},
		{8 * time.Second, 2, []int64{9, 1, 2}, 4 * time.Second},
		{time.Minute, 4, []int64{9, -1, -1, 4}, 16 * time.Second},
	} {
		if cells, step = raiseCell(cells, step, c.at, 4, c.v); !slices.Equal(cells, c.want) || step != c.step {
			t.Errorf("at %v: %v each %v, want %v each %v", c.at, cells, step, c.want, c.step)
		}
	}
}
