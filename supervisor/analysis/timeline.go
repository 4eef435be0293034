package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Timeline is what is drawn: the samples of all runs on one wall clock, made so
// few that a page with them stays below 3 MiB. No peak is lost to that; see
// [Level].
type Timeline struct {
	// Start is the earliest moment of all runs. Every other moment of a timeline
	// counts from there.
	Start  time.Time
	Length time.Duration
	Runs   []RunSeries
	// LeftOut counts runs that are not drawn because there are too many.
	LeftOut int
}

// RunSeries is one run of a timeline.
type RunSeries struct {
	ID string // of [record.Meta]
	// also are the IDs of all runs that it is made of, where ranks led in turn.
	Also []string
	// Name tells the run from the others: "node7", "node7 · task 3".
	Name     string
	From, To time.Duration
	Roles    []rss.Role // the bands of the stack, from the bottom: of package rss, [Beside] or [Own]
	// Limits are those in bytes that the run was held against: those that are counts are in
	// tables alone. Primary is the one that is shown first, -1 for none: that which was
	// forecast to end the job, else the fullest.
	Limits  []event.Limit
	Primary int
	// Levels are the whole run first, then its last minutes more finely where
	// that shows more.
	Levels []Level
	Marks  []Mark
	// MarksLeftOut counts marks that are not kept because there are too many.
	MarksLeftOut int
	// Trims are what workers did by themselves to keep to their budgets, by time.
	Trims []TrimCount
	Procs []Trace
	// ProcsLeftOut counts processes that are not drawn: those with the lowest
	// peaks.
	ProcsLeftOut int
}

// The bands of what is not of the tree.
const (
	Beside rss.Role = "beside"    // what a limit counts beside it: the batch shell, other processes of the step
	Own    rss.Role = "rsswarden" // rsswarden itself
)

// layerRoles is the order of the stack, from the bottom.
var layerRoles = [...]rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RolePoolWorker, rss.RoleShmManager, rss.RoleOther, Beside, Own}

// Stack is the sum of the bands that a limit counts, a value each point in KiB; of all but
// [Own] for a limit of -1.
func (s *RunSeries) Stack(l *Level, limit int) []int64 {
	sum := make([]int64, len(l.Sum))
	for i, band := range l.Bands {
		if s.Stacks(limit, s.Roles[i]) {
			for k := range sum {
				sum[k] += band[BandAnon][k] + band[BandFile][k] + band[BandShmem][k]
			}
		}
	}
	return sum
}

// Stacks says that processes of a band are part of what a limit counts, and so of its stack.
// Use of /dev/shm is no process's.
func (s *RunSeries) Stacks(limit int, band rss.Role) bool {
	if limit < 0 {
		return band != Own
	}
	switch s.Limits[limit].Name {
	case event.LimitCgroup, event.LimitThrottle, event.LimitSlurm:
		return true
	case event.LimitUser:
		return band != Beside && band != Own
	case event.LimitSHM:
		return false
	}
	return band != Own
}

// TrimCount is how often workers trimmed themselves in one cell of a strip, and the pages
// that they dropped. A page that is read and dropped again counts twice.
type TrimCount struct {
	At, Step time.Duration
	Count    int
	Dropped  rss.Bytes
}

// trimCells bounds a strip of trims.
const trimCells = 2048

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
	Stretches []Segment
	Sum       []int64    // of all bands, a value each point
	Bands     [][]Column // by RunSeries.Roles, then by column
	Limits    [][]Column // by RunSeries.Limits, then by column
}

// Segment is a number of points one after the other.
type Segment struct{ First, Count int }

// Trace is the RSS of one process, at most [tracePoints] values over its life,
// each the highest of Step.
type Trace struct {
	Proc record.Proc
	From time.Duration
	Step time.Duration
	RSS  Column // KiB, -1 where it was not there
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
	levelBudget = 1300 << 10
	// lastMinutes is what is kept more finely: how a run ended is what its user
	// looks at.
	lastMinutes = 10 * time.Minute
)

// drawing makes the timeline of runs, by node and task: one strand for each, and for
// a node whose ranks recorded it in turn one for all of them.
type drawing struct {
	line  Timeline
	runs  []nodeRun
	seen  []*seriesScan // of each of them
	ofRun map[*record.Run]*seriesScan
}

func newDrawing(runs []*record.Run) *drawing {
	all := perNode(runs)
	d := &drawing{runs: Foremost(all, mostRuns, nodeRun.weight), ofRun: map[*record.Run]*seriesScan{}}
	d.line.LeftOut = len(all) - len(d.runs)
	for i, r := range d.runs {
		if i == 0 || r.Meta.Start.Before(d.line.Start) {
			d.line.Start = r.Meta.Start
		}
		o := newSeriesScan(r.Run, len(d.runs))
		d.seen, d.ofRun[r.Run] = append(d.seen, o), o
	}
	return d
}

// finish reads what was joined, and makes the timeline.
func (d *drawing) finish() *Timeline {
	t := &d.line
	t.Runs = make([]RunSeries, len(d.runs))
	parallel(len(d.runs), func(i int) {
		if d.runs[i].also != nil {
			scan(d.runs[i].Run, d.seen[i])
		}
		t.Runs[i] = d.seen[i].strand(d.runs[i].Meta.Start.Sub(t.Start))
		t.Runs[i].Also = d.runs[i].also
	})
	for i := range t.Runs {
		t.Length = max(t.Length, t.Runs[i].To)
	}
	nameSeries(t.Runs, d.runs)
	return t
}

// nameSeries gives each run the shortest name that tells it from the others.
func nameSeries(strands []RunSeries, runs []nodeRun) {
	type attempt struct {
		node    string
		restart int
	}
	of := func(r nodeRun) attempt {
		if r.Meta.Job == nil {
			return attempt{node: r.Meta.Node}
		}
		return attempt{r.Meta.Node, r.Meta.Job.Restarts}
	}
	tasks, attempts := map[attempt]int{}, map[int]bool{}
	for _, r := range runs {
		tasks[of(r)]++
		attempts[of(r).restart] = true
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
		if len(attempts) > 1 {
			name += fmt.Sprintf(" · attempt %d", of(r).restart+1)
		}
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" · run %d", seen[name])
		}
		strands[i].Name = name
	}
}

// Share is the most that was used of the limit that is shown first, negative where
// there is none.
func (s *RunSeries) Share() float64 {
	most := -1.0
	if s.Primary < 0 || len(s.Levels) == 0 {
		return most
	}
	x := s.Levels[0].Limits[s.Primary]
	for k, used := range x[LimitUsed] {
		if x[LimitSize][k] > 0 {
			most = max(most, float64(used)/float64(x[LimitSize][k]))
		}
	}
	return most
}

// leastStep is the shortest length of a point. Each other is twice as long as the one before,
// so that a point is a whole number of cells.
const leastStep = 125 * time.Millisecond

func stepAtLeast(d time.Duration) time.Duration {
	step := leastStep
	for step < d {
		step *= 2
	}
	return step
}

// seriesScan makes a [RunSeries] of a run in one pass. How long a point is, and which
// limits and roles are drawn, shows only at the end: until then samples are kept in
// cells, of which each point is a whole number.
type seriesScan struct {
	run    *record.Run
	n      int           // runs that share the page
	end    time.Duration // of the run
	column []int         // the first column of a limit, by index in run.Limits; -1 for a limit that is a count
	row    []int64       // the sample at hand
	whole  buckets
	tail   buckets // the last minutes, more finely
	traces *traces
	trims  []TrimCount

	samples int
	roles   [len(layerRoles)]bool
	binding []int // samples for which each limit was the binding one
	ratio   []float64
	read    []bool
	last    time.Duration   // the sample before, -1 for none
	every   int             // of how many samples one is in spacing
	spacing []time.Duration // between samples, a few thousand of them
	late    []time.Duration // in the last minutes
}

// tailSlack is how much more than the last minutes is kept: their first point may begin
// earlier.
const tailSlack = time.Hour

func newSeriesScan(r *record.Run, n int) *seriesScan {
	limits := len(r.Limits)
	o := &seriesScan{
		run: r, n: n, end: r.End(), last: -1, every: 1, late: make([]time.Duration, 0, 1024),
		column: make([]int, limits), binding: make([]int, limits), ratio: make([]float64, limits), read: make([]bool, limits),
	}
	width := limitsFrom
	for i := range r.Limits {
		if o.column[i] = -1; r.Limits[i].Name.Row().Amount {
			o.column[i] = width
			width += limitColumns
		}
	}
	o.row = make([]int64, width)
	o.whole.width = stepAtLeast(o.end / time.Duration(mostPoints/n))
	o.traces = newTraces(r, o.end)
	return o
}

func (o *seriesScan) entry(e *record.Entry) {
	l, ok := e.Value.(*event.LoaderSaid)
	if !ok || l.What != event.LoaderTrimmed || l.Count == 0 || l.Reason == event.TrimRequested {
		return
	}
	step := stepAtLeast(o.end / trimCells)
	at := e.At / step * step
	if n := len(o.trims) - 1; n < 0 || o.trims[n].At != at {
		o.trims = append(o.trims, TrimCount{At: at, Step: step})
	}
	last := &o.trims[len(o.trims)-1]
	last.Count, last.Dropped = last.Count+l.Count, last.Dropped+l.Freed
}

func (o *seriesScan) sample(s *record.Sample) {
	o.samples++
	if o.last >= 0 {
		if o.samples%o.every == 0 {
			o.spacing = append(o.spacing, s.At-o.last)
		}
		if len(o.spacing) == 4096 {
			o.spacing, o.every = o.spacing[:2048], o.every*2
		}
		if len(o.late) == cap(o.late) {
			o.late = append(o.late[:0], o.late[cap(o.late)/2:]...)
		}
		o.late = append(o.late, s.At-o.last)
	}
	o.last = s.At
	clear(o.row[:limitsFrom])
	for i := range o.row[limitsFrom:] {
		o.row[limitsFrom+i] = -1
	}
	for i := range s.Procs {
		if u := &s.Procs[i]; u.Proc >= 0 && u.Proc < len(o.run.Procs) {
			o.band(LayerOf(&o.run.Procs[u.Proc]), u.Anon, u.File, u.Shmem, 1)
		}
	}
	for _, b := range s.Roles {
		// A journal has the sum where it has no parts.
		o.band(LayerOfRole(b.Role), max(b.Anon, b.RSS.Sub(b.File+b.Shmem)), b.File, b.Shmem, b.Count)
	}
	for i := range s.Limits {
		if x := &s.Limits[i]; x.Limit >= 0 && x.Limit < len(o.read) {
			o.limit(x)
		}
	}
	o.whole.add(s.At, o.row)
	o.tail.width = leastStep
	if s.At < o.end-lastMinutes-tailSlack {
		o.tail.width = longest // all in one: its last sample may reach into the tail
	}
	o.tail.add(s.At, o.row)
	o.traces.add(s)
}

func (o *seriesScan) band(role rss.Role, anon, file, shmem rss.Bytes, count int) {
	i := slices.Index(layerRoles[:], role)
	o.roles[i] = true
	row := o.row[i*bandColumns:]
	row[BandAnon] += int64(anon / rss.KiB)
	row[BandFile] += int64(file / rss.KiB)
	row[BandShmem] += int64(shmem / rss.KiB)
	row[BandCount] += int64(count)
}

func (o *seriesScan) limit(x *record.Reading) {
	o.read[x.Limit] = true
	o.ratio[x.Limit] = max(o.ratio[x.Limit], x.Ratio())
	if x.Binding {
		o.binding[x.Limit]++
	}
	c := o.column[x.Limit]
	if c < 0 {
		return
	}
	for i, v := range [limitColumns]rss.Bytes{x.Used, x.Used, max(x.Used, x.UsedMax), x.Charged, x.WorkingSet, x.Size} {
		o.row[c+i] = int64(v / rss.KiB)
	}
}

// strand makes what is drawn, on a clock that began offset before the run.
func (o *seriesScan) strand(offset time.Duration) RunSeries {
	r := o.run
	s := RunSeries{ID: r.Meta.ID, From: offset, To: offset + o.end}
	slices.Sort(o.spacing)
	slices.Sort(o.late)
	bands, limits := o.choose(&s)
	step, gap := o.step(), o.gap()
	s.Levels = []Level{*fold(&o.whole, 0, o.end, step, gap).level(bands, limits, offset, levelBudget/8*7/o.n)}
	if fine := o.tailStep(step); fine < step {
		s.Levels = append(s.Levels, *fold(&o.tail, max(0, o.end-lastMinutes), o.end, fine, gap).level(bands, limits, offset, levelBudget/8/o.n))
	}
	s.Marks, s.MarksLeftOut = marks(r, offset, o.n)
	for _, t := range o.trims {
		t.At += offset
		s.Trims = append(s.Trims, t)
	}
	s.Procs, s.ProcsLeftOut = o.traces.top(r, offset, max(leastTraces, mostTraces/o.n))
	return s
}

// choose lists the bands and limits that are drawn, and returns where their columns begin
// in a row.
func (o *seriesScan) choose(s *RunSeries) (bands, limits []int) {
	for i, role := range layerRoles {
		if o.roles[i] {
			s.Roles, bands = append(s.Roles, role), append(bands, i*bandColumns)
		}
	}
	best := -1
	s.Primary = -1
	for i, x := range o.run.Limits {
		if o.column[i] < 0 || !o.read[i] {
			continue
		}
		if best < 0 || o.binding[i] > o.binding[best] || o.binding[i] == o.binding[best] && o.ratio[i] > o.ratio[best] {
			best, s.Primary = i, len(s.Limits)
		}
		s.Limits, limits = append(s.Limits, x), append(limits, o.column[i])
	}
	return bands, limits
}

// step is the length of a point.
func (o *seriesScan) step() time.Duration {
	least := o.end / time.Duration(mostPoints/o.n)
	if k := len(o.spacing); k > 0 {
		least = max(least, o.spacing[k/2]*9/10) // timers are not exact
	}
	return stepAtLeast(least)
}

// tailStep is the length of a point in the last minutes: not above step.
func (o *seriesScan) tailStep(step time.Duration) time.Duration {
	if o.end <= lastMinutes/2 || len(o.late) == 0 {
		return step
	}
	return min(step, stepAtLeast(o.late[len(o.late)/10]*9/10))
}

// gap is how long a sample stands for at most. Beyond it nothing is drawn: a
// line there would be made up.
func (o *seriesScan) gap() time.Duration {
	switch {
	case o.run.JournalOnly || len(o.spacing) == 0:
		return math.MaxInt64
	case o.run.Thinned:
		return 150 * time.Second // what was thinned most is a minute apart
	}
	return max(late, 5*o.spacing[len(o.spacing)/2])
}

func LayerOf(p *record.Proc) rss.Role {
	switch {
	case p.Ours:
		return Own
	case p.Extra:
		return Beside
	}
	return LayerOfRole(p.Role)
}

func LayerOfRole(r rss.Role) rss.Role {
	if slices.Contains(layerRoles[:], r) {
		return r
	}
	return rss.RoleOther
}

// Mark is something that happened at one moment.
type Mark struct {
	At   time.Duration
	Kind MarkKind
	// Event is *event.Decision, *event.Outcome of a rule that could not help, *event.Found,
	// *event.Diagnosis, *event.Rank, *event.Fault, *event.Signal or *event.Exit.
	Event    any
	Outcomes []*event.Outcome // of a decision, as far as they are known
}

// OK says that the action of a decision worked.
func (m *Mark) OK() bool {
	n := len(m.Outcomes)
	return n > 0 && m.Outcomes[n-1].OK
}

// Refused says that an action was due and could not help, or did not work.
func (m *Mark) Refused() bool {
	_, skipped := m.Event.(*event.Outcome)
	return skipped || len(m.Outcomes) > 0 && !m.OK()
}

// Action is that of a rule, empty for marks of another kind.
func (m *Mark) Action() event.Action {
	switch v := m.Event.(type) {
	case *event.Decision:
		return v.Action
	case *event.Outcome:
		return v.Action
	}
	return ""
}

// MarkKind says how a mark is drawn.
type MarkKind string

const (
	MarkDecision MarkKind = "decision"
	MarkLimit    MarkKind = "limit"
	MarkFinding  MarkKind = "finding"
	MarkFault    MarkKind = "fault"
	MarkSignal   MarkKind = "signal"
	MarkRank     MarkKind = "rank"
	MarkExit     MarkKind = "exit"
	MarkOOM      MarkKind = "oom"
)

// mostMarks bounds the marks of all runs of a page.
const mostMarks = 3000

// marks returns what happened in one of n runs. Where that is too much, the
// first and the last decisions stay: they tell how it began and how it ended.
func marks(r *record.Run, offset time.Duration, n int) (list []Mark, left int) {
	decided := map[uint64]int{}
	var found findingsSeen
	for i := range r.Events {
		e := &r.Events[i]
		m := Mark{At: offset + e.At, Event: e.Value}
		switch v := e.Value.(type) {
		case *event.Decision:
			decided[v.ID], m.Kind = len(list), MarkDecision
		case *event.Outcome:
			if k, ok := decided[v.Decision]; ok {
				list[k].Outcomes = append(list[k].Outcomes, v)
			}
			if v.Decision != 0 || v.Action == "" {
				continue
			}
			m.Kind = MarkDecision
		case *event.Found:
			if e.At <= time.Second || !v.Name.Row().Amount {
				continue // those of the start are no news
			}
			m.Kind = MarkLimit
		case *event.Diagnosis:
			if !found.isNew(v) {
				continue
			}
			m.Kind = MarkFinding
		case *event.Rank:
			if leads := v.What == event.RankLeads && e.At > time.Second; !leads && (v.What == event.RankLeads || !v.Failed()) {
				continue // everyday news
			}
			m.Kind = MarkRank
		case *event.Fault:
			m.Kind = MarkFault
		case *event.Signal:
			m.Kind = MarkSignal
		case *event.Exit:
			if m.Kind = MarkExit; len(v.Kernel) > 0 || v.Outcome == event.RunOOM {
				m.Kind = MarkOOM
			}
		default:
			continue
		}
		list = append(list, m)
	}
	if most := mostMarks / n; len(list) > most {
		left = len(list) - most
		list = append(list[:most/2:most/2], list[len(list)-(most-most/2):]...)
	}
	return list, left
}

// traces follows each process over its life. How long that is shows only at
// its end, so a trace begins fine and is made coarser as it grows.
type traces struct {
	of   []Trace
	last []int // see [lastEntries]
	step time.Duration
}

func newTraces(r *record.Run, end time.Duration) *traces {
	// Short-lived workers begin at a step that a run of many of them can hold.
	t := &traces{of: make([]Trace, len(r.Procs)), last: lastEntries(r), step: max(time.Second, stepAtLeast(end/(16*tracePoints)))}
	for i := range t.of {
		t.of[i].Proc = r.Procs[i]
	}
	return t
}

func (t *traces) add(s *record.Sample) {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= len(t.of) {
			continue
		}
		tr := &t.of[t.last[u.Proc]]
		if tr.RSS == nil {
			tr.From, tr.Step = s.At.Truncate(t.step), t.step
		}
		sum := u.RSS()
		if sum > tr.Peak {
			tr.Peak, tr.PeakAt = sum, s.At
			tr.Anon, tr.File, tr.Shmem = u.Anon, u.File, u.Shmem
		}
		tr.Last = s.At
		tr.RSS, tr.Step = raiseCell(tr.RSS, tr.Step, s.At-tr.From, tracePoints, int64(sum/rss.KiB))
	}
}

// top returns the n processes with the highest peaks, highest first, and how
// many there are besides.
func (t *traces) top(r *record.Run, offset time.Duration, n int) (list []Trace, left int) {
	for i := range t.of {
		if tr := &t.of[i]; len(tr.RSS) > 0 {
			tr.fill(r)
			tr.From += offset
			tr.PeakAt += offset
			tr.Last += offset
			list = append(list, *tr)
		}
	}
	slices.SortStableFunc(list, func(a, b Trace) int { return cmp.Compare(b.Peak, a.Peak) })
	if len(list) > n {
		list, left = list[:n], len(list)-n
	}
	return list, left
}

// fill closes holes of a few points: where samples were thinned, one stands for
// up to a minute.
func (t *Trace) fill(r *record.Run) {
	most := int(10*time.Second/t.Step) + 1
	if r.Thinned {
		most = int(150*time.Second/t.Step) + 1
	}
	last := 0
	for i, v := range t.RSS {
		if v < 0 {
			continue
		}
		if i-last <= most {
			for k := last + 1; k < i; k++ {
				t.RSS[k] = t.RSS[last]
			}
		}
		last = i
	}
}
