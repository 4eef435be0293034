package report

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Timeline is what is drawn: the samples of all runs on one wall clock, made so
// few that a page with them stays below 5 MB. No peak is lost to that; see
// [Level].
type Timeline struct {
	// Start is the earliest moment of all runs. Every other moment of a timeline
	// is told from there.
	Start  time.Time
	Length time.Duration
	Runs   []Strand
	// LeftOut counts runs that are not drawn because there are too many.
	LeftOut int
}

// Strand is one run of a timeline.
type Strand struct {
	ID string // of [record.Meta]
	// also are the IDs of all runs that it is made of, where ranks led in turn.
	also []string
	// Name tells the run from the others: "node7", "node7 · task 3".
	Name     string
	From, To time.Duration
	// JournalOnly says that only few samples were kept, Live that the run went
	// on when it was read, Thinned that early samples stand for up to a minute.
	JournalOnly, Live, Thinned bool
	Roles                      []Band
	Limits                     []Against
	// Levels are the whole run first, then its last minutes more finely where
	// that shows more.
	Levels []Level
	Marks  []Mark
	// MarksLeftOut counts marks that are not kept because there are too many.
	MarksLeftOut int
	Procs        []Trace
	// ProcsLeftOut counts processes that are not drawn: those with the lowest
	// peaks.
	ProcsLeftOut int
}

// Band is one layer of the stack: the processes of one role, added up.
type Band struct {
	// Role is one of package rss, or [Beside].
	Role rss.Role
}

// Beside is the band of what a limit counts beside the tree: the batch shell,
// other processes of the step, and rsswarden itself.
const Beside rss.Role = "beside"

// bandRoles is the order of the stack, from the bottom.
var bandRoles = [...]rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RoleShmManager, rss.RoleOther, Beside}

// Against is one limit in bytes that the run was held against. Limits that are
// counts are in tables alone.
type Against struct {
	event.Limit
	// Primary marks the limit that is shown first: the one that was forecast to
	// end the job, else the fullest.
	Primary bool
}

// Level is a run at one resolution. A point stands for Step, and keeps the
// highest and the lowest use of each limit in that time. Of the processes it
// keeps one sample whole, the one in which all of them together had most: so
// the roles of a point add up to a sum that there was.
//
// Sizes are in KiB. -1 says that there was no reading.
type Level struct {
	From, Step time.Duration
	// Stretches are the points that there are: where nothing was sampled for
	// long, there are none.
	Stretches []Stretch
	Bands     []BandPoints  // by Strand.Roles
	Sum       []int64       // of all bands
	Limits    []LimitPoints // by Strand.Limits
}

// Stretch is a number of points one after the other.
type Stretch struct{ First, Count int }

// BandPoints is one band of the stack, a value each point.
type BandPoints struct{ Anon, File, Shmem, Count []int64 }

// LimitPoints is one limit, a value each point.
type LimitPoints struct {
	Used, Low []int64
	Most      []int64 // Limit.UsedMax
	Charged   []int64
	Working   []int64
	Size      []int64 // the least in that time
}

// Trace is the RSS of one process, at most [tracePoints] values over its life,
// each the highest of Step.
type Trace struct {
	Proc record.Proc
	From time.Duration
	Step time.Duration
	RSS  []int64 // KiB, -1 where it was not there
	Peak rss.Bytes
	// PeakAt is when, and Anon, File and Shmem are the parts of Peak.
	PeakAt            time.Duration
	Anon, File, Shmem rss.Bytes
	Last              time.Duration // the last sample with it
}

const (
	mostRuns    = 32
	mostPoints  = 90000 // of all runs, before the budget
	tracePoints = 240
	mostTraces  = 96 // of all runs
	leastTraces = 6  // of each run
	// levelBudget is how much of a page the points of all runs may take.
	levelBudget = 3800 << 10
	// lastMinutes is what is kept more finely: how a run ended is what its user
	// looks at.
	lastMinutes = 10 * time.Minute
)

// drawing makes the timeline of runs, by node and task: one strand for each, and for
// a node whose ranks recorded it in turn one for all of them.
type drawing struct {
	line  Timeline
	runs  []nodeRun
	seen  []*strandSeen // of each of them
	ofRun map[*record.Run]*strandSeen
}

func newDrawing(runs []*record.Run) *drawing {
	all := perNode(runs)
	d := &drawing{runs: choose(all, mostRuns), ofRun: map[*record.Run]*strandSeen{}}
	d.line.LeftOut = len(all) - len(d.runs)
	for i, r := range d.runs {
		if i == 0 || r.Meta.Start.Before(d.line.Start) {
			d.line.Start = r.Meta.Start
		}
		o := newStrandSeen(r.Run, len(d.runs))
		d.seen, d.ofRun[r.Run] = append(d.seen, o), o
	}
	return d
}

// finish reads what was joined, and makes the timeline.
func (d *drawing) finish() *Timeline {
	t := &d.line
	t.Runs = make([]Strand, len(d.runs))
	several(len(d.runs), func(i int) {
		if d.runs[i].also != nil {
			scan(d.runs[i].Run, d.seen[i])
		}
		t.Runs[i] = d.seen[i].strand(d.runs[i].Meta.Start.Sub(t.Start))
		t.Runs[i].also = d.runs[i].also
	})
	for i := range t.Runs {
		t.Length = max(t.Length, t.Runs[i].To)
	}
	nameStrands(t.Runs, d.runs)
	return t
}

// nameStrands gives each run the shortest name that tells it from the others.
func nameStrands(strands []Strand, runs []nodeRun) {
	type life struct {
		node    string
		restart int
	}
	of := func(r nodeRun) life {
		if r.Meta.Job == nil {
			return life{node: r.Meta.Node}
		}
		return life{r.Meta.Node, r.Meta.Job.Restarts}
	}
	tasks, lives := map[life]int{}, map[int]bool{}
	for _, r := range runs {
		tasks[of(r)]++
		lives[of(r).restart] = true
	}
	seen := map[string]int{}
	for i, r := range runs {
		name := values.Plain(r.Meta.Node)
		if name == "" {
			name = "this node"
		}
		if tasks[of(r)] > 1 && r.Meta.Job != nil {
			name += fmt.Sprintf(" · task %d", r.Meta.Job.Task)
		}
		if len(lives) > 1 {
			name += fmt.Sprintf(" · life %d", of(r).restart+1)
		}
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" · run %d", seen[name])
		}
		strands[i].Name = name
	}
}

// share is the most that was used of the limit that is shown first, negative where
// there is none.
func (s *Strand) share() float64 {
	p, most := s.primary(), -1.0
	if p < 0 || len(s.Levels) == 0 {
		return most
	}
	x := &s.Levels[0].Limits[p]
	for k := range x.Used {
		if x.Size[k] > 0 {
			most = max(most, float64(x.Used[k])/float64(x.Size[k]))
		}
	}
	return most
}

// primary is the index of the limit that is shown first, -1 for none.
func (s *Strand) primary() int {
	for i := range s.Limits {
		if s.Limits[i].Primary {
			return i
		}
	}
	return -1
}
