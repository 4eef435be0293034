package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// ledFacts is what a leader's record tells of its node.
type ledFacts struct {
	led    bool
	from   time.Duration // when it began to record
	failed bool          // a rank is known to have failed
	ranks  []rankKey     // whom it tells of
	// handed says that another rank's watcher went on where the record breaks off:
	// what is missing of it is there. follows says that it went on so itself: what
	// was before it is in another record.
	handed, follows bool
	// line numbers the leaders that followed each other on one node, under one limit;
	// 0 for who led nobody; first is the first of them.
	line  int
	first *facts
}

func (f *facts) rank(at time.Duration, e *event.Rank) {
	f.led = true
	if e.What == event.RankLeads && f.from == 0 {
		f.from = at
	}
	f.failed = f.failed || e.Failed()
	if key := keyOf(e); !slices.Contains(f.ranks, key) && len(f.ranks) < mostRanks {
		f.ranks = append(f.ranks, key)
	}
}

// own is the rank of the record.
func (f *facts) own() rankKey {
	if j := f.run.Meta.Job; j != nil {
		return rankKey{step: j.Step, task: j.Task}
	}
	return rankKey{task: -1, holder: f.run.Meta.Holder}
}

// follow finds which of a job's records go on in others.
func follow(runs []*facts) {
	var led []*facts
	var all []tenure
	for _, f := range runs {
		if f.led {
			led = append(led, f)
			all = append(all, tenure{
				node: f.run.Meta.Node, start: f.run.Meta.Start, began: f.began(), ended: f.run.Wall(f.end), live: f.run.Live,
				ranks: append([]rankKey{f.own()}, f.ranks...),
			})
		}
	}
	before := successions(all)
	for i, f := range led {
		first := i
		for before[first] >= 0 {
			first = before[first]
		}
		f.line, f.first = first+1, led[first]
		if before[i] < 0 || all[i].began.Sub(all[before[i]].ended) > withIt {
			continue // what was between the two is in no record
		}
		f.follows = true
		if a := led[before[i]]; a.exit == nil {
			a.handed = true
		}
	}
}

// settle puts the run that came nearest to a limit last, where nodes have leaders.
func (j *job) settle() {
	if !slices.ContainsFunc(j.runs, func(f *facts) bool { return f.led }) {
		return
	}
	share := func(f *facts) float64 {
		if l := f.nearest(); l != nil {
			return l.Ratio()
		}
		return 0
	}
	slices.SortStableFunc(j.runs, func(a, b *facts) int { return cmp.Compare(share(a), share(b)) })
}

// began is when the record began.
func (f *facts) began() time.Time { return f.run.Wall(f.from) }
