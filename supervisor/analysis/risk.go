package analysis

import (
	"math"

	"github.com/rsswarden/rsswarden/rss"
)

const (
	// wantedRisk is the share of jobs that may still need more than is advised,
	// where the runs tell how they differ.
	wantedRisk = 0.05
	// leastRisk is the least that is claimed: runs do not show what did not
	// happen in them.
	LeastRisk = 0.001
	// leastScatter is the least standard deviation of peaks that is believed, as
	// a share of their mean: two that are alike may be so by chance.
	leastScatter = 0.01
	// leastMargin and mostMargin bound what is put on top of the greatest peak of
	// several: what lies between two samples is not seen, and a scatter that asks
	// for more is of runs that have little in common.
	LeastMargin = 0.05
	mostMargin  = 0.25
)

// Spread is how the peaks of several runs differ, the next one's too.
type Spread struct {
	N              int
	Least, Most    rss.Bytes
	mean, standard float64 // of the next one: a little more than that of those seen
}

func SpreadOf(peaks []rss.Bytes) Spread {
	s := Spread{N: len(peaks)}
	for i, p := range peaks {
		if i == 0 || p < s.Least {
			s.Least = p
		}
		s.Most = max(s.Most, p)
		s.mean += float64(p) / float64(s.N)
	}
	var squares float64
	for _, p := range peaks {
		squares += (float64(p) - s.mean) * (float64(p) - s.mean)
	}
	deviation := leastScatter * s.mean
	if s.N > 1 {
		deviation = max(deviation, math.Sqrt(squares/float64(s.N-1)))
	}
	s.standard = deviation * math.Sqrt(1+1/float64(s.N))
	return s
}

// Enough is what the next run needs at most but for wantedRisk, by Student's
// distribution, within the bounds of a margin.
func (s *Spread) Enough() rss.Bytes {
	low, high := 0.0, 1e4
	for range 60 {
		mid := (low + high) / 2
		if studentTail(mid, s.N-1) > wantedRisk {
			low = mid
		} else {
			high = mid
		}
	}
	by := s.mean + high*s.standard
	most := float64(s.Most)
	return rss.Bytes(min(max(by, most*(1+LeastMargin)), most*(1+mostMargin)))
}

// Risk is the share of such runs that need more than mem, and that of those
// that need more than the greatest seen, which holds whatever the distribution:
// the next is as likely to be the greatest as any other.
func (s *Spread) Risk(mem rss.Bytes) (more, greatest float64) {
	greatest = 1 / float64(s.N+1)
	tail := studentTail((float64(mem)-s.mean)/s.standard, s.N-1)
	return max(min(tail, greatest), LeastRisk), greatest
}

// studentTail is the chance that a variable with Student's distribution of n
// degrees of freedom is greater than t (Abramowitz and Stegun 26.7.3, 26.7.4).
func studentTail(t float64, n int) float64 {
	if n < 1 {
		return math.NaN()
	}
	angle := math.Atan(t / math.Sqrt(float64(n)))
	sin, cos := math.Sincos(angle)
	// A is the chance that it lies within t of 0, with the sign of t.
	var a float64
	if n%2 == 1 {
		term, sum := cos, 0.0
		for k := 1; k < n; k += 2 {
			sum += term
			term *= cos * cos * float64(k+1) / float64(k+2)
		}
		a = 2 / math.Pi * (angle + sin*sum)
	} else {
		term, sum := 1.0, 0.0
		for k := 0; k < n; k += 2 {
			sum += term
			term *= cos * cos * float64(k+1) / float64(k+2)
		}
		a = sin * sum
	}
	return (1 - a) / 2
}
