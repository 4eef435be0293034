// Package analysis finds out what a run was: why it died or by how much it lived, from
// its record and from what Slurm says of the job. It has values; package render has the
// words.
package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Input is what a report is made of: the runs of the tasks and nodes of one job, or
// one run outside Slurm.
type Input struct {
	Runs  []*record.Run
	Slurm *SlurmSays // nil where it was not asked
	Now   time.Time  // in whose zone times are shown
	// Timeline says that what is drawn is wanted too.
	Timeline bool
}

// Analyze makes the report. Each run is decoded once.
func Analyze(in Input) *Result {
	runs, said, now := in.Runs, in.Slurm, in.Now
	rep := &Result{V: Version, Answer: Answer{Cause: event.CauseUnknown, Certainty: Inferred}, Slurm: said}
	runs = Distinct(runs)
	if len(runs) == 0 {
		rep.Timeline = &Timeline{}
		rep.nothing()
		return rep
	}
	runs = AlignClocks(runs)
	last := restarts(runs)
	looks, timeline := scanAll(leaderPeriods(runs), in.Timeline)
	rep.Timeline = timeline
	handOver(looks)
	cases := casesOf(looks)
	settled := false
	for _, q := range cases {
		q.Found = q.diagnose()
		if said != nil && appliesTo(said, q.RunScan, last) {
			q.setSlurmStatus(said)
			settled = settled || causeOf(said, q.Step) == q.Found.Cause
		}
	}
	for _, q := range cases {
		if q.Said != nil {
			q.settled = settled
			q.Found = q.diagnose()
		}
		if q.Rank == nil {
			rep.addRun(q.RunScan, &q.Found)
		}
	}
	if j := runs[0].Meta.Job; j != nil {
		rep.Job = j.ID
	}
	rep.Start, rep.End = rep.Start.In(now.Location()), rep.End.In(now.Location())
	rep.Scanned, rep.Cases, rep.Best = looks, cases, decisive(cases, last)
	rep.Cause, rep.Certainty = rep.Best.Found.Cause, rep.Best.Found.Certainty
	rep.AttemptEnds = rep.MultiNode.fill(looks, cases, rep.Best, said, last, now.Location())
	rep.Peaks = mergePeaks(looks)
	rep.Roles = mergeRoles(looks)
	rep.Brief = rep.brief()
	rep.Actions = append(rep.Actions, rep.Brief.Saved.Actions...)
	if s := &rep.Brief.Saved; s.WorkerTrims > 0 {
		rep.Budget = &Budget{Times: s.WorkerTrims, Freed: s.Dropped}
	}
	rep.Findings, rep.Cures = MergeFindings(looks), mergeCures(looks)
	return rep
}

func scanAll(runs []*record.Run, draw bool) (looks []*RunScan, timeline *Timeline) {
	looks = make([]*RunScan, len(runs))
	d := &drawing{}
	if draw {
		d = newDrawing(runs)
	}
	parallel(len(runs), func(i int) {
		looks[i] = newRunScan(runs[i])
		to := []observer{looks[i]}
		if o := d.ofRun[runs[i]]; o != nil {
			to = append(to, o)
		}
		scan(runs[i], to...)
		looks[i].finish()
	})
	if draw {
		timeline = d.finish()
	}
	return looks, timeline
}

// Gather scans runs for advice alone.
func Gather(runs []*record.Run) []*RunScan {
	looks, _ := scanAll(leaderPeriods(Distinct(runs)), false) // a run's journal is no second run
	handOver(looks)
	return looks
}

// casesOf are the ends that are asked about: of each run its own, and where
// another rank of its node failed first, that.
func casesOf(looks []*RunScan) (out []*Case) {
	for _, k := range looks {
		out = append(out, &Case{RunScan: k})
		if f := k.fallen; f != nil {
			out = append(out, &Case{RunScan: f.scanThen(k), Rank: f.RankSeen})
		}
	}
	return out
}

// nothing is a report without a record.
func (rep *Result) nothing() {
	rep.Findings, rep.Cures = []Diagnosis{}, []Cure{}
	rep.Runs, rep.Limits, rep.Roles, rep.Actions = []Run{}, []Limit{}, []Role{}, []event.ActionSum{}
	if said := rep.Slurm; said != nil {
		rep.Start, rep.End = said.Start, said.End
		if cause := causeOf(said, nil); cause != "" {
			rep.Cause, rep.Certainty = cause, Slurm
		}
	}
}

func (rep *Result) addRun(k *RunScan, f *Ending) {
	m := &k.Run.Meta
	r := Run{
		ID: m.ID, Node: m.Node, Command: m.Command, Start: m.Start, End: k.Wall(k.End), Cause: f.Cause,
		Samples: k.Samples, Decisions: k.decisions, Sources: k.Run.Sources,
		JournalOnly: k.Run.JournalOnly, Live: k.Run.Live, Damage: k.Run.Damage,
	}
	if m.Job != nil {
		r.Step, r.Task, r.Restart = m.Job.Step, m.Job.Task, m.Job.Restarts
	}
	if k.Exit != nil {
		r.Code, r.Signal = k.Exit.Code, k.Exit.Signal
	}
	if i := slices.IndexFunc(rep.Runs, func(o Run) bool { return o.ID == r.ID && r.ID != "" }); i >= 0 {
		r.Samples, r.Decisions = r.Samples+rep.Runs[i].Samples, r.Decisions+rep.Runs[i].Decisions
		rep.Runs[i] = r // it led again: how it ended is in the part that comes later
	} else {
		rep.Runs = append(rep.Runs, r)
	}
	widen(&rep.Start, &rep.End, r.Start, r.End)
	rep.Duration = rep.End.Sub(rep.Start).Seconds()
	for i := range k.Limits {
		l := &k.Limits[i]
		if !l.Seen {
			continue
		}
		e := Limit{Run: m.ID, Limit: *l.Limit, At: k.Wall(l.maxAt), Last: l.Last.Used, Spark: l.spark.stretches(k.End), Held: l.held}
		e.Used, e.UsedMax, e.Charged, e.WorkingSet, e.Limit.Limit = l.Max.Used, l.Max.UsedMax, l.Max.Charged, l.Max.WorkingSet, l.Max.Size
		if k.Exit != nil {
			e.raise(k.Exit.Binding)
			if l.Name == event.LimitThrottle {
				e.Slowed = k.Exit.Slowed
			}
		}
		e.ETA, e.Binding = nil, l.Last.Binding
		if l.Last.ETA >= 0 && k.Run.Live {
			eta := l.Last.ETA
			e.ETA = &eta
		}
		e.limitOf = limitOf{From: m.Start, To: k.Wall(k.End), line: k.Line, Ranks: []RankKey{k.Ranks.List[0].RankKey}}
		if n := slices.IndexFunc(rep.Limits, func(o Limit) bool { return o.Run == e.Run && e.Run != "" && sameLimit(&o, &e) }); n >= 0 {
			rep.Limits[n].join(&e) // it led again
			continue
		}
		rep.Limits = append(rep.Limits, e)
	}
}

// brief is what the job comes to: how it ended as its deciding run did, the peak of the run
// that came nearest, the actions of all.
func (rep *Result) brief() Brief {
	best := rep.Best
	f := best.facts()
	own := best.Exit
	if best.Rank != nil || own == nil || own.Took == 0 || best.Found.Certainty == Slurm || len(rep.Scanned) > 1 {
		own = nil // it needs more than the exit event says
	}
	var b Brief
	if own != nil {
		b = BriefOf(own)
	} else {
		node := best.Run.Meta.Node
		for _, k := range rep.Scanned {
			if k.Restarts() != best.Restarts() {
				continue
			}
			c := &Case{RunScan: k}
			if g := c.facts(); g.Peak != nil && (f.Peak == nil || g.Peak.Ratio() > f.Peak.Ratio()) {
				f.Peak, f.Ends, node = g.Peak, g.Ends, k.Run.Meta.Node
			}
			if e := k.Exit; e != nil && f.Peak != nil && e.Next.Without > 0 {
				f.Without = map[event.LimitID]rss.Bytes{f.Peak.ID(): max(e.Next.Without, f.Without[f.Peak.ID()])}
			}
			f.Partial = f.Partial || k.Run.Live || k.Exit == nil && k.Handing == nil
		}
		saved := mergeActions(rep.Scanned)
		f.Saved = &saved
		peak, exit := f.Peak, best.Exit
		if exit != nil {
			b = BriefOf(exit)
		}
		b.Brief, b.Peak, b.Node = f.Brief(Seconds(rep.Duration)), peak, node
		if exit != nil {
			b.Rule, b.Cancelled, b.Lacked = exit.Rule, exit.Cancelled, exit.Brief.Lacked
		}
		b.Probably = best.Found.Certainty == Inferred && !best.Death().Seen
	}
	b.Job, b.Recorded = rep.Job, true
	if len(rep.Runs) > 0 {
		b.Command, b.ID = rep.Runs[0].Command, record.Label(best.Run.Meta.ID)[:4]
	}
	if b.Outcome == event.RunExhausted {
		b.Lacked = causeRows[best.Found.Cause].lacked
		if best.Found.Limit >= 0 {
			l := best.Found.Near.Limit
			b.LackedLimit = &l
		}
	}
	if b.Outcome == event.RunUnknown {
		b.At = best.Wall(best.End)
	}
	if b.Outcome == event.RunStopped && b.Rule == "" && best.Actions.Last != nil {
		b.Rule = best.Actions.Last.Rule
	}
	if s, told := best.terminationSignal(); b.Outcome == event.RunCancelled && b.Cancelled == "" && told {
		b.Cancelled = s.Signal.Signal
	}
	for _, k := range rep.Scanned {
		if k.Restarts() == best.Restarts() && b.Need == nil && (b.Peak != nil || len(rep.Scanned) == 1) {
			if b.Need = k.need(b.Peak); b.Need != nil && b.Need.Open == "" && died(b.Outcome) {
				b.Need = nil
			}
		}
	}
	rep.Outcome = b.Outcome
	return b
}

// Result is what `report --json` prints: one job, or one run outside Slurm.
type Result struct {
	V int `json:"v"`
	// Job is the Slurm job, empty outside Slurm.
	Job string `json:"job,omitempty"`
	MultiNode
	Answer
	// Brief is what every surface says of the job.
	Brief Brief `json:"summary"`

	Start    time.Time `json:"start"`
	End      time.Time `json:"end"` // the last that is known
	Duration float64   `json:"duration_s"`

	Runs    []Run             `json:"runs"` // one for each task and node, by node and task
	Limits  []Limit           `json:"limits"`
	Peaks   Peaks             `json:"peaks"` // of the fullest run by each accounting
	Roles   []Role            `json:"roles"` // each of the run in which it had most
	Actions []event.ActionSum `json:"actions"`
	// Budget is what workers gave back by themselves, nil where none did.
	Budget *Budget `json:"budget,omitempty"`
	// Findings say why something grew, the weightiest first, Cures what was
	// changed before it could go wrong.
	Findings []Diagnosis  `json:"findings"`
	Cures    []Cure       `json:"cures"`
	Advice   []AdviceLine `json:"advice"`
	Slurm    *SlurmSays   `json:"slurm,omitempty"` // nil where it was not asked or did not answer
	// Notes say what is missing or doubtful: damage, a journal alone, samples
	// that were thinned.
	Notes []string `json:"notes,omitempty"`

	Scans `json:"-"`
}

// Answer is how the job ended, and why.
type Answer struct {
	// Verdict is the first line: one sentence that says how it ended and why.
	Verdict   string           `json:"verdict"`
	Cause     event.Cause      `json:"cause"`
	Certainty Certainty        `json:"certainty"`
	Outcome   event.RunOutcome `json:"outcome,omitempty"` // as in the summary
	// Evidence is what the verdict follows from, a sentence each.
	Evidence []string `json:"evidence"`
}

// Scans are what a result was made of.
type Scans struct {
	Scanned     []*RunScan // of each run
	Cases       []*Case    // all ends that were asked about
	Best        *Case      // the one that tells why the job ended
	AttemptEnds []*Case    // of each of Lives
	// Timeline is what is drawn, nil where it was not wanted.
	Timeline *Timeline
}

// mostShift is by how much CLOCK_MONOTONIC may correct a time of day. More is
// another time namespace, not a clock that was set.
const mostShift = time.Hour

// AlignClocks puts runs of one boot on one clock: where the time of day was set between
// their starts, CLOCK_MONOTONIC says how far apart they were, and the last one's time of
// day counts. Runs that move are copied.
func AlignClocks(runs []*record.Run) []*record.Run {
	type boot struct{ node, id string }
	last := map[boot]*record.Meta{}
	for _, r := range runs {
		if r == nil || r.Meta.BootID == "" || r.Meta.Mono <= 0 {
			continue
		}
		b := boot{r.Meta.Node, r.Meta.BootID}
		if o := last[b]; o == nil || r.Meta.Mono > o.Mono {
			last[b] = &r.Meta
		}
	}
	out := slices.Clone(runs)
	for i, r := range out {
		if r == nil || r.Meta.Mono <= 0 {
			continue
		}
		o := last[boot{r.Meta.Node, r.Meta.BootID}]
		if o == nil {
			continue
		}
		start := o.Start.Add(r.Meta.Mono - o.Mono)
		if by := start.Sub(r.Meta.Start); by != 0 && by.Abs() < mostShift {
			moved := *r
			moved.Meta.Start = start
			out[i] = &moved
		}
	}
	return out
}
