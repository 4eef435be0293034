package report

import "time"

const (
	// sparkStretches is how many stretches a run is told in.
	sparkStretches = 40
	// sparkBare is for how many stretches without a sample the one before stands.
	sparkBare = 3
	// sparkCells are kept while the length of the run is not known yet: when
	// they are used up two become one. At least half of them are in use then, so
	// that a stretch is some eight cells or more.
	sparkCells = 16 * sparkStretches
)

// spark takes in shares of a limit over a run whose length nobody knows yet.
type spark struct {
	cell  time.Duration // how long one is; 0 before the first
	share []float32     // the greatest of each cell, negative for none
}

func (s *spark) add(at time.Duration, share float64) {
	if s.share == nil {
		s.cell = 100 * time.Millisecond
		s.share = make([]float32, sparkCells)
		for i := range s.share {
			s.share[i] = -1
		}
	}
	at = max(at, 0)
	for at >= s.cell*sparkCells {
		s.fold()
	}
	c := &s.share[at/s.cell]
	*c = max(*c, float32(share))
}

func (s *spark) fold() {
	for i := range s.share {
		if 2*i < len(s.share) {
			s.share[i] = max(s.share[2*i], s.share[2*i+1])
		} else {
			s.share[i] = -1
		}
	}
	s.cell *= 2
}

// stretches returns the greatest share of each of sparkStretches stretches from 0 to
// end; negative where nothing was seen.
func (s *spark) stretches(end time.Duration) []float64 {
	out := make([]float64, sparkStretches)
	for i := range out {
		out[i] = -1
	}
	if s.share == nil {
		return out
	}
	end = max(end, 1)
	for i, v := range s.share {
		if v < 0 {
			continue
		}
		n := min(int(time.Duration(i)*s.cell*sparkStretches/end), sparkStretches-1)
		out[n] = max(out[n], float64(v))
	}
	// Of a short run a stretch is shorter than from one sample to the next.
	for i, bare := 1, 0; i < len(out); i++ {
		if out[i] >= 0 {
			bare = 0
		} else if bare++; bare <= sparkBare {
			out[i] = out[i-1]
		}
	}
	return out
}
