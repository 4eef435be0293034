package analysis

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/adminline"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Fleet is what the jobs of many come to, by command, node or user. It is the wire form of
// report --by --json.
type Fleet struct {
	V    int    `json:"v"`
	By   string `json:"by"`
	Days int    `json:"days,omitempty"` // since when, 0 for all that is known
	// Records counts jobs of rsswarden's lists, Accounted those of which AdminComment alone
	// tells, and Untold the other jobs of sacct, which are in no line.
	Records   int `json:"jobs_of_records"`
	Accounted int `json:"jobs_of_admin_comment,omitempty"`
	Untold    int `json:"jobs_of_sacct_alone,omitempty"`
	// Unreadable counts directories that may not be read, and Notes says for people what is
	// missing.
	Unreadable int         `json:"unreadable,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
	Sum        FleetLine   `json:"sum"`
	Lines      []FleetLine `json:"lines"`
}

// FleetLine is what the jobs of one command, node or user come to. What ran outside Slurm is a
// job, and so is each attempt of one that was requeued.
type FleetLine struct {
	Name     string                   `json:"name"`
	Jobs     int                      `json:"jobs"`
	Hours    float64                  `json:"hours"`
	Outcomes map[event.RunOutcome]int `json:"outcomes"` // by the worst of each job
	Median   float64                  `json:"median_peak"`
	Highest  float64                  `json:"highest_peak"` // of the shares of a limit, 0 where none was seen
	// Measured counts the jobs with a limit by which Slurm or the kernel ends them and a peak.
	// What follows is of them, in GiB-hours over all nodes: limit × run time, peak × run time,
	// which is at least what was used, and (limit − peak) × run time, which is at most what was
	// wasted.
	Measured  int      `json:"measured_jobs"`
	Requested float64  `json:"requested_gib_hours"`
	Used      float64  `json:"used_at_most_gib_hours"`
	Wasted    float64  `json:"wasted_at_least_gib_hours"`
	Profits   []Profit `json:"would_profit,omitempty"`

	peaks []float64
}

// Profit counts jobs that would profit from something.
type Profit struct {
	From string `json:"from"` // "trim", "recycle" or "less --mem"
	Jobs int    `json:"jobs"`
	Why  string `json:"why"`
	// Saves is what less --mem would have left to others, in GiB-hours.
	Saves float64 `json:"saves_gib_hours,omitempty"`
}

// What jobs would profit from, and why.
const (
	ProfitTrim    = "trim"
	ProfitRecycle = "recycle"
	ProfitLess    = "less --mem"
)

var profitWhy = map[string]string{
	ProfitTrim:    "killed by memory or short of it, mapped file pages grew most, none trimmed",
	ProfitRecycle: "killed by memory or short of it, workers' own memory grew most, none recycled",
	ProfitLess:    "ended well; the peak and 10 % on top are at least 15 % less than the limit",
}

// FleetBy lists the ways to group jobs.
var FleetBy = []string{"command", "node", "user"}

// FleetJobs are the jobs of a fleet, put together from their runs. The zero value is ready.
type FleetJobs struct {
	jobs   map[fleetKey]*fleetJob
	order  []*fleetJob        // as they came: sums of the same jobs are the same
	known  map[[2]string]bool // jobs of which there are runs, by number and user
	names  map[string]string  // names that many jobs share are kept once
	Untold int
}

type fleetKey struct {
	job     string // or the ID of what ran outside Slurm
	restart int
	user    string
}

type fleetJob struct {
	user, command string
	accounted     bool
	parts         []fleetPart // one for each node
}

// fleetPart is what a job did on one node.
type fleetPart struct {
	node          string
	outcome       event.RunOutcome
	until         int64 // end of the last run so far, in seconds since 1970
	ran           float64
	limit, used   rss.Bytes // the largest of its runs
	share         float64
	enough        rss.Bytes // what was advised to ask for
	open          bool      // a run needed what it had, or it is not known
	trim, recycle bool
}

func (f *FleetJobs) name(s string) string {
	if f.names == nil {
		f.names = map[string]string{}
	}
	if kept, ok := f.names[s]; ok {
		return kept
	}
	s = strings.Clone(s)
	f.names[s] = s
	return s
}

// AddRuns takes in runs of rsswarden's lists.
func (f *FleetJobs) AddRuns(runs []record.IndexEntry) {
	if f.jobs == nil {
		f.jobs, f.known = map[fleetKey]*fleetJob{}, map[[2]string]bool{}
	}
	// In the order of their starts, so that of two runs at a time the time counts once.
	slices.SortFunc(runs, func(a, b record.IndexEntry) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
	for i := range runs {
		e := &runs[i]
		key := fleetKey{f.name(cmp.Or(e.Job, e.ID)), e.Restart, f.name(e.User)}
		j := f.jobs[key]
		if j == nil {
			j = &fleetJob{user: key.user, command: f.name(script(e.Command))}
			f.jobs[key] = j
			f.order = append(f.order, j)
		}
		if e.Job != "" {
			f.known[[2]string{key.job, key.user}] = true
		}
		j.part(f.name(e.Node)).add(e)
	}
}

func (j *fleetJob) part(node string) *fleetPart {
	i := slices.IndexFunc(j.parts, func(p fleetPart) bool { return p.node == node })
	if i < 0 {
		i = len(j.parts)
		j.parts = append(j.parts, fleetPart{node: node})
	}
	return &j.parts[i]
}

// add takes in a run. Those of one job share the job's limit, so the largest counts.
func (p *fleetPart) add(e *record.IndexEntry) {
	from, end := float64(e.Start.Unix()), float64(e.Start.Unix())+e.Seconds
	p.ran += max(0, end-max(from, float64(p.until)))
	p.until = max(p.until, int64(end))
	if p.outcome == "" || severity(e.Outcome) > severity(p.outcome) {
		p.outcome = e.Outcome
	}
	p.share = max(p.share, e.Peak)
	limit, used := e.Memory()
	p.limit, p.used = max(p.limit, limit), max(p.used, used)
	if used > 0 {
		p.open = p.open || e.Enough == 0
		p.enough = max(p.enough, e.Enough)
	}
	if outOfMemory(e.Outcome) || e.Outcome == event.RunOver || e.Outcome == event.RunTight {
		p.trim = p.trim || e.Grew == event.FindingMapped && e.Trims == 0
		p.recycle = p.recycle || (e.Grew == event.FindingWorkerLeak || e.Grew == event.FindingCopyOnWrite) && e.Recycled == 0
	}
}

// AddAccounted takes in a job of sacct, after all runs: what its AdminComment says where no run
// of it is known that its user, or one without a name, had.
func (f *FleetJobs) AddAccounted(a *slurm.AccountedJob) {
	if f.known[[2]string{a.ID, a.User}] || f.known[[2]string{a.ID}] { // what one user's runs say hides no job of another's
		return
	}
	line, err := adminline.Decode(a.Comment)
	if err != nil && !errors.Is(err, adminline.ErrEmpty) {
		f.Untold++
		return
	}
	outcome := stateOutcome(&slurm.EndedJob{State: a.State, Reason: a.Reason, ExitCode: a.ExitCode})
	j := &fleetJob{user: f.name(a.User), command: f.name(script(a.Name)), accounted: true}
	for _, name := range slices.Sorted(maps.Keys(line.Nodes)) {
		n := line.Nodes[name]
		p := fleetPart{node: f.name(name), outcome: outcome, ran: a.Ran.Seconds(), limit: rss.Bytes(n.Limit), used: rss.Bytes(n.Peak), open: true}
		p.share = p.used.Of(p.limit)
		if outcome == event.RunOK {
			p.enough = enoughMem(p.used, p.limit)
			p.open = p.enough == 0
		}
		j.parts = append(j.parts, p)
	}
	if len(j.parts) == 0 {
		j.parts = []fleetPart{{outcome: outcome, ran: a.Ran.Seconds()}}
	}
	f.order = append(f.order, j)
}

// Sum sums the jobs up that ended so, by an empty outcome all. Those that memory ended come
// first, then those that wasted most.
func (f *FleetJobs) Sum(by string, outcome event.RunOutcome) Fleet {
	t := Fleet{V: Version, By: by, Untold: f.Untold, Lines: []FleetLine{}}
	at := map[string]int{}
	for _, j := range f.order {
		all, n := j.parts, 1
		if by == "node" {
			n = len(all)
		}
		met := false
		for i := range n {
			parts := all[i:]
			if by == "node" {
				parts = all[i : i+1]
			}
			if outcome != "" && worst(parts) != outcome {
				continue
			}
			met = true
			name := cmp.Or(map[string]string{"command": j.command, "node": parts[0].node, "user": j.user}[by], "-")
			k, ok := at[name]
			if !ok {
				k = len(t.Lines)
				at[name] = k
				t.Lines = append(t.Lines, FleetLine{Name: name})
			}
			t.Lines[k].add(parts)
		}
		if !met {
			continue
		}
		t.Sum.add(all)
		if j.accounted {
			t.Accounted++
		} else {
			t.Records++
		}
	}
	t.Sum.close()
	for i := range t.Lines {
		t.Lines[i].close()
	}
	slices.SortFunc(t.Lines, func(a, b FleetLine) int {
		return cmp.Or(cmp.Compare(b.OutOfMemory(), a.OutOfMemory()), cmp.Compare(b.Wasted, a.Wasted), cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Name, b.Name))
	})
	return t
}

// worst is the outcome of a job that ended so on its nodes.
func worst(parts []fleetPart) event.RunOutcome {
	w := parts[0].outcome
	for i := range parts {
		if severity(parts[i].outcome) > severity(w) {
			w = parts[i].outcome
		}
	}
	return w
}

// add takes in a job, by what it did on some of its nodes.
func (l *FleetLine) add(parts []fleetPart) {
	if l.Outcomes == nil {
		l.Outcomes = map[event.RunOutcome]int{}
	}
	l.Jobs++
	l.Outcomes[worst(parts)]++
	var hours, share, saves float64
	var enough rss.Bytes // --mem is for each node: that of the node which needs most
	measured, less, trim, recycle := false, true, false, false
	for i := range parts {
		p := &parts[i]
		hours, share = max(hours, p.ran/3600), max(share, p.share)
		trim, recycle = trim || p.trim, recycle || p.recycle
		if p.limit == 0 || p.used == 0 {
			continue
		}
		measured, less = true, less && !p.open
		enough = max(enough, p.enough)
	}
	for i := range parts {
		p := &parts[i]
		if p.limit == 0 || p.used == 0 {
			continue
		}
		l.Requested += gibHours(p.limit, p.ran)
		l.Used += gibHours(p.used, p.ran)
		l.Wasted += gibHours(p.limit.Sub(p.used), p.ran)
		saves += gibHours(p.limit.Sub(enough), p.ran)
	}
	l.Hours += hours
	if share > 0 {
		l.peaks = append(l.peaks, share)
	}
	if measured {
		l.Measured++
	}
	l.profits(ProfitTrim, trim, 0)
	l.profits(ProfitRecycle, recycle, 0)
	l.profits(ProfitLess, measured && less, saves)
}

func gibHours(b rss.Bytes, seconds float64) float64 {
	return float64(b) / float64(rss.GiB) * seconds / 3600
}

func (l *FleetLine) profits(from string, does bool, saves float64) {
	if !does {
		return
	}
	i := slices.IndexFunc(l.Profits, func(p Profit) bool { return p.From == from })
	if i < 0 {
		i = len(l.Profits)
		l.Profits = append(l.Profits, Profit{From: from, Why: profitWhy[from]})
	}
	l.Profits[i].Jobs++
	l.Profits[i].Saves += saves
}

func (l *FleetLine) close() {
	if len(l.peaks) > 0 {
		slices.Sort(l.peaks)
		l.Median, l.Highest = l.peaks[(len(l.peaks)-1)/2], l.peaks[len(l.peaks)-1]
	}
	slices.SortFunc(l.Profits, func(a, b Profit) int { return cmp.Compare(b.From, a.From) }) // trim, recycle, less
}

// Profit counts the jobs that would profit from something.
func (l *FleetLine) Profit(from string) int {
	for _, p := range l.Profits {
		if p.From == from {
			return p.Jobs
		}
	}
	return 0
}

func outOfMemory(o event.RunOutcome) bool {
	return o == event.RunOOM || o == event.RunSlurmKill || o == event.RunStopped
}

// OutOfMemory counts jobs that memory ended.
func (l *FleetLine) OutOfMemory() int {
	return l.Outcomes[event.RunOOM] + l.Outcomes[event.RunSlurmKill] + l.Outcomes[event.RunStopped]
}

// Failed counts jobs that something else ended.
func (l *FleetLine) Failed() int {
	return l.Outcomes[event.RunFailed] + l.Outcomes[event.RunKilled] + l.Outcomes[event.RunExhausted]
}

// SumsOf is what the list of runs keeps of a run for the sums over many. ends is the limit by
// which Slurm or the kernel ends the job, at its highest use, nil where that is not known.
func SumsOf(b *Brief, ends *event.Limit, grew event.Finding) record.IndexSums {
	s := record.IndexSums{Grew: grew, Trims: b.Trims(), Recycled: b.Saved.Recycled}
	if ends != nil && ends.Limit > 0 && (b.Peak == nil || b.Peak.ID() != ends.ID()) {
		s.Requested, s.Used = ends.Limit, ends.Used
	}
	if n := &b.Next; n.Option == "--mem" && n.Kind == event.NextEnough && b.Outcome == event.RunOK {
		s.Enough = n.Size // a peak of less than 80 % was less than it had
	}
	return s
}

// enoughMem is the peak and a margin on top, 0 where that saves little.
func enoughMem(used, limit rss.Bytes) rss.Bytes {
	enough := policy.NeatMem(max(used.Scale(1+Margin), policy.LeastMem))
	if used == 0 || float64(enough) > float64(limit)*(1-worthSaving) {
		return 0
	}
	return enough
}
