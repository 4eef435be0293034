package report

import (
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// stints cuts the record of a rank that led more than once where another rank led in
// between: each part is told as what it is, one of several that follow each other.
// Where nobody else is known to have led the record stays whole.
func stints(runs []*record.Run) (out []*record.Run) {
	for _, r := range runs {
		from := time.Duration(math.MinInt64)
		leads := r.Leads()
		for i, at := range leads {
			if i > 0 && slices.ContainsFunc(runs, func(o *record.Run) bool { return o != r && ledBetween(o, r, leads[i-1], at) }) {
				part := r.Part(from, at)
				part.Live = false
				out = append(out, part)
				from = at
			}
		}
		if from != math.MinInt64 {
			r = r.Part(from, math.MaxInt64)
		}
		out = append(out, r)
	}
	return out
}

// ledBetween says that another rank of the same node and life took the lead between
// two moments of a run.
func ledBetween(other, r *record.Run, from, to time.Duration) bool {
	if r.Meta.Job == nil || other.Meta.Job == nil || other.Meta.Node != r.Meta.Node || jobOf(other) != jobOf(r) {
		return false
	}
	return slices.ContainsFunc(other.Leads(), func(at time.Duration) bool {
		w := other.Wall(at)
		return w.After(r.Wall(from)) && w.Before(r.Wall(to))
	})
}

// jobOf is one life of one job.
func jobOf(r *record.Run) (j struct {
	cluster, id string
	restarts    int
}) {
	j.cluster, j.id, j.restarts = r.Meta.Job.Cluster, r.Meta.Job.ID, r.Meta.Job.Restarts
	return j
}
