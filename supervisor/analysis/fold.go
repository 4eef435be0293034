package analysis

import (
	"time"
)

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

// spark takes in shares of a limit over a run whose length is not known yet.
type spark struct {
	cell  time.Duration // how long one is; 0 before the first
	share []float32     // the greatest of each cell, negative for none
}

func (s *spark) add(at time.Duration, share float64) {
	if s.share == nil {
		s.cell = 100 * time.Millisecond
	}
	s.share, s.cell = raiseCell(s.share, s.cell, max(at, 0), sparkCells, float32(share))
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

// raiseCell puts a value into the cell of its time since the first cell began: a cell
// holds the highest value of one step of time, or -1 for none. There are at most so many;
// for a later one each two become one, and a step is twice as long. So a run whose length
// is not known before takes a bounded memory.
func raiseCell[T int64 | float32](cells []T, step, since time.Duration, most int, v T) ([]T, time.Duration) {
	for int(since/step) >= most {
		half := (len(cells) + 1) / 2
		for i := range half {
			cells[i] = max(cells[2*i], cells[min(2*i+1, len(cells)-1)])
		}
		cells, step = cells[:half], 2*step
	}
	at := int(since / step)
	for len(cells) <= at {
		cells = append(cells, -1)
	}
	cells[at] = max(cells[at], v)
	return cells, step
}
