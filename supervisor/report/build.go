package report

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Input is what a report is made of: the runs of the tasks and nodes of one job, or
// one run outside Slurm.
type Input struct {
	Runs  []*record.Run
	Slurm *SlurmSays // nil where it was not asked
	Now   time.Time  // in whose zone times are told
	// Timeline says that what is drawn is wanted too.
	Timeline bool
}

// Analyze makes the report. Each run is decoded once.
func Analyze(in Input) *Report {
	runs, said, now := in.Runs, in.Slurm, in.Now
	rep := &Report{V: Version, Cause: event.CauseUnknown, Certainty: Inferred, Slurm: said}
	runs = distinct(runs)
	if len(runs) == 0 {
		rep.Timeline = &Timeline{}
		rep.nothing()
		return rep
	}
	runs = oneClock(runs)
	last := restarts(runs)
	looks, facts, timeline := observe(stints(runs), in.Timeline)
	rep.Timeline = timeline
	handOver(looks)
	cases := inquests(looks)
	settled := false
	for _, q := range cases {
		q.found = q.diagnose()
		if said != nil && concerns(said, q.look, last) {
			q.hear(said)
			settled = settled || said.cause(q.step) == q.found.cause
		}
	}
	for _, q := range cases {
		if q.said != nil {
			q.settled = settled
			q.found = q.diagnose()
		}
		if q.rank == nil {
			q.forecast.finish(q.end, q.found.limit)
			rep.addRun(q.look, &q.found)
		}
	}
	if j := runs[0].Meta.Job; j != nil {
		rep.Job = j.ID
	}
	rep.Start, rep.End = rep.Start.In(now.Location()), rep.End.In(now.Location())
	rep.looks, rep.cases, rep.facts, rep.best = looks, cases, facts, decisive(cases, last)
	rep.Cause, rep.Certainty = rep.best.found.cause, rep.best.found.certainty
	rep.together(looks, cases, rep.best, last, now.Location())
	rep.Peaks = mergePeaks(looks)
	rep.Roles = mergeRoles(looks)
	rep.Actions, rep.Budget = mergeDeeds(looks)
	rep.Findings, rep.Cures = mergeGrown(looks), mergeCures(looks)
	rep.Forecast = total(looks)
	return rep
}

// observe scans the runs, several at a time.
func observe(runs []*record.Run, draw bool) (looks []*look, all []*facts, timeline *Timeline) {
	looks, all = make([]*look, len(runs)), make([]*facts, len(runs))
	d := &drawing{}
	if draw {
		d = newDrawing(runs)
	}
	several(len(runs), func(i int) {
		looks[i], all[i] = newLook(runs[i]), newFacts(runs[i])
		to := []observer{looks[i], all[i]}
		if o := d.ofRun[runs[i]]; o != nil {
			to = append(to, o)
		}
		scan(runs[i], to...)
		looks[i].finish()
	})
	if draw {
		timeline = d.finish()
	}
	return looks, all, timeline
}

// mostAtOnce bounds how much of a login node a report takes.
const mostAtOnce = 4

// several does something for each of n, a few at a time.
func several(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0), mostAtOnce) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// inquests are the ends that are asked about: of each run its own, and where
// another rank of its node failed first, that.
func inquests(looks []*look) (out []*inquest) {
	for _, k := range looks {
		out = append(out, &inquest{look: k})
		if f := k.ranks.fallen; f != nil {
			out = append(out, &inquest{look: f.look(k), rank: f.lookRank})
		}
	}
	return out
}

// distinct takes out what was read twice, from a full record and a journal, and
// puts the rest in order of node, step and task.
func distinct(runs []*record.Run) []*record.Run {
	byID := map[string]*record.Run{}
	var out []*record.Run
	for _, r := range runs {
		if r == nil {
			continue
		}
		if old := byID[r.Meta.ID]; old != nil && r.Meta.ID != "" {
			if old.JournalOnly && !r.JournalOnly {
				out[slices.Index(out, old)], byID[r.Meta.ID] = r, r
			}
			continue
		}
		byID[r.Meta.ID] = r
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *record.Run) int {
		if c := strings.Compare(a.Meta.Node, b.Meta.Node); c != 0 {
			return c
		}
		if d := task(a) - task(b); d != 0 {
			return d
		}
		return a.Meta.Start.Compare(b.Meta.Start)
	})
	return out
}

func task(r *record.Run) int {
	if r.Meta.Job == nil {
		return 0
	}
	return r.Meta.Job.Task
}

// restarts is how often the job had been requeued when its last runs started.
func restarts(runs []*record.Run) (n int) {
	for _, r := range runs {
		if r.Meta.Job != nil {
			n = max(n, r.Meta.Job.Restarts)
		}
	}
	return n
}

// concerns says that Slurm's word is about this run: of a job that was requeued
// Slurm tells the last time it ran.
func concerns(said *SlurmSays, k *look, last int) bool {
	j := k.run.Meta.Job
	return j != nil && j.Restarts == last && (said.Start.IsZero() || !k.wall(k.end).Before(said.Start))
}

// nothing is a report without a record.
func (rep *Report) nothing() {
	rep.Findings, rep.Cures = []Diagnosis{}, []Cure{}
	rep.Runs, rep.Limits, rep.Roles, rep.Actions = []Run{}, []Limit{}, []Role{}, []Action{}
	if said := rep.Slurm; said != nil {
		rep.Start, rep.End = said.Start, said.End
		if cause := said.cause(nil); cause != "" {
			rep.Cause, rep.Certainty = cause, Slurm
		}
	}
}

// addRun puts one run with its limits into the report.
func (rep *Report) addRun(k *look, f *ending) {
	m := &k.run.Meta
	r := Run{
		ID: m.ID, Node: m.Node, Command: m.Command, Start: m.Start, End: k.wall(k.end), Cause: f.cause,
		Samples: k.samples, Decisions: k.decisions, Sources: k.run.Sources,
		JournalOnly: k.run.JournalOnly, Live: k.run.Live, Damage: k.run.Damage,
	}
	if m.Job != nil {
		r.Step, r.Task, r.Restart = m.Job.Step, m.Job.Task, m.Job.Restarts
	}
	if k.exit != nil {
		r.Code, r.Signal = k.exit.Code, k.exit.Signal
		if v := k.outcome(); worse(v, rep.Outcome) {
			rep.Outcome = v
		}
	}
	if i := slices.IndexFunc(rep.Runs, func(o Run) bool { return o.ID == r.ID && r.ID != "" }); i >= 0 {
		r.Samples, r.Decisions = r.Samples+rep.Runs[i].Samples, r.Decisions+rep.Runs[i].Decisions
		rep.Runs[i] = r // it led again: how it ended is in the part that comes later
	} else {
		rep.Runs = append(rep.Runs, r)
	}
	if rep.Start.IsZero() || r.Start.Before(rep.Start) {
		rep.Start = r.Start
	}
	if r.End.After(rep.End) {
		rep.End = r.End
	}
	rep.Duration = rep.End.Sub(rep.Start).Seconds()
	for i := range k.limits {
		l := &k.limits[i]
		if !l.seen {
			continue
		}
		e := Limit{Run: m.ID, Limit: *l.Limit, At: k.wall(l.maxAt), Last: l.last.Used, Spark: l.spark.stretches(k.end)}
		e.Used, e.UsedMax, e.Charged, e.WorkingSet, e.Limit.Limit = l.max.Used, l.max.UsedMax, l.max.Charged, l.max.WorkingSet, l.max.Size
		if k.exit != nil {
			e.raise(k.exit.Binding)
		}
		e.ETA, e.Binding = nil, l.last.Binding
		if l.last.ETA >= 0 && k.run.Live {
			eta := l.last.ETA
			e.ETA = &eta
		}
		e.limitOf = limitOf{from: m.Start, to: k.wall(k.end), line: k.line, ranks: []rankKey{k.ranks.list[0].rankKey}}
		if n := slices.IndexFunc(rep.Limits, func(o Limit) bool { return o.Run == e.Run && e.Run != "" && sameLimit(&o, &e) }); n >= 0 {
			rep.Limits[n].join(&e) // it led again
			continue
		}
		rep.Limits = append(rep.Limits, e)
	}
}
