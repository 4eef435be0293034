package report

import (
	"testing"
	"time"
)

// TestLeft: when the job ends, by how much it had left at moments of the run.
func TestLeft(t *testing.T) {
	type reading struct {
		at   time.Duration
		left float64
	}
	for name, test := range map[string]struct {
		readings []reading
		want     time.Duration // after the start; negative for not known
	}{
		"not known":                {[]reading{{0, -1}, {time.Second, -1}}, -1},
		"known":                    {[]reading{{0, -1}, {10 * time.Second, 50}}, time.Minute},
		"moved":                    {[]reading{{10 * time.Second, 50}, {20 * time.Second, 100}}, 2 * time.Minute},
		"the run outlives it":      {[]reading{{10 * time.Second, 50}, {70 * time.Second, 0}, {90 * time.Second, 0}}, time.Minute},
		"moved to before the look": {[]reading{{10 * time.Second, 500}, {70 * time.Second, 0}, {90 * time.Second, 0}}, 70 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			k := &look{run: scene{}.run()}
			for _, r := range test.readings {
				k.left(r.at, r.left)
			}
			want := noon.Add(test.want)
			if test.want < 0 {
				want = time.Time{}
			}
			if !k.jobEnd.Equal(want) {
				t.Errorf("the job ends at %v, want %v", k.jobEnd, want)
			}
		})
	}
}
