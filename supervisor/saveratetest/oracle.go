package saveratetest

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
)

// innocentShare is the mildest rung of the default ladder: below it nothing is
// promised to happen but that nothing happens.
const innocentShare = 0.80

// freshWorkers is how many workers more there must be room for where workers are
// replaced: the design starts a replacement beside the old worker only where there
// is room for two.
const freshWorkers = 2

// Oracle is the least that the job can do with: the peak of what the limit counts
// of the job run bare without a limit, less what its workers leak or have mapped
// and can give back, plus fresh workers where they are replaced. A worker that is
// replaced has what it had when it was new; its copies of the trainer's heap are
// soon made again and stay in. Nothing can be given back of a leak in the trainer.
func (s *Spec) Oracle() rss.Bytes {
	return s.most(func(step int) rss.Bytes {
		m := s.Bare(step)
		for k := range m.Workers {
			w := &m.Workers[k]
			if s.CurableLeak() {
				w.Private = s.Fresh
			}
			if s.CurableMap() {
				w.Mapped = 0
			}
		}
		need := m.Sum(s.Accounting)
		if s.CurableLeak() {
			need += freshWorkers * s.fresh(m.Trainer)
		}
		return need
	})
}

// fresh is what the limit counts of a worker that was forked from a trainer with so
// much anonymous memory.
func (s *Spec) fresh(trainer rss.Bytes) rss.Bytes {
	if s.Accounting == SlurmRSS {
		return trainer + s.WorkerLibs + s.Fresh
	}
	return s.Fresh
}

// Label is what can be said of a job before it is run.
type Label struct {
	Spec         Spec
	Peak, Oracle rss.Bytes
	Fits         bool // it must complete
	Innocent     bool // nothing may be done to it
}

func (s *Spec) Label() Label {
	l := Label{Spec: *s, Peak: s.Peak(), Oracle: s.Oracle()}
	l.Fits = min(l.Oracle, l.Peak) <= s.Limit
	l.Innocent = l.Peak <= s.Limit.Scale(innocentShare)
	return l
}

// String is the label as it lies in testdata.
func (l Label) String() string {
	word := "does-not-fit"
	switch {
	case l.Innocent:
		word = "innocent"
	case l.Fits && l.Peak <= l.Spec.Limit:
		word = "fits-bare"
	case l.Fits:
		word = "fits"
	}
	return fmt.Sprintf("%d %s %s limit=%d peak=%d oracle=%d %s", l.Spec.Seed, l.Spec.Class, l.Spec.Accounting, l.Spec.Limit, l.Peak, l.Oracle, word)
}
