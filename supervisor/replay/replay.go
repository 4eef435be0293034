// Package replay runs the ladder again over what a record holds: as it was, or
// with another limit or other rules. It is the same ladder as in the watcher,
// [policy.State], on a clock of the record's.
//
// With the limit and the rules of the record nothing is guessed: the record has all that the
// ladder was given whenever it changed its mind ([event.Judged]), and with that it decides the
// same, to the byte: [Result.Same]. Of a record without it, an old one or one that lost a part,
// the decisions are listed as they were made.
//
// With another limit or other rules there is a model, and all that follows from
// it is an estimate and called one. Its assumptions:
//
//   - Only the limit that is replaced changes, together with those of the same
//     name that had the same size: one --mem sets both the step's and the job's.
//   - The job does what it did: as fast, with as many workers, which live as long.
//     What workers gave back by themselves to keep to a budget stays given back; no sample has
//     it, so what is needed without actions is at most what the run's exit event says, else not known.
//   - A limit ends the job as soon as its use, read once a second, reaches it.
//     slurmstepd, which looks every 30 s, may be later; a burst between two
//     readings is not seen. An action takes effect until the next reading.
//   - A trim that was not recorded leaves each worker as much mapped from files as
//     the least worker had when it was seen first. From there the worker grows
//     again as it grew after it was seen first itself, up to what the record says
//     it had. With --trim ptrace the same goes for every process. A trim counts
//     where RSS or PSS is added up, under PSS by the share that the worker's PSS
//     was of its RSS.
//   - A recycle that was not recorded does the same with all that one worker had,
//     the one that has most above a fresh one. Of the anonymous part every
//     accounting takes note.
//   - An action that was recorded and is not taken here: what it freed, by its
//     outcome, is added back, for as long as the workers of that moment live. Does
//     what grew afterwards come on top of it, or is it the same pages come back?
//     No record tells. Both are played; where the job lives in one and dies in the
//     other, its fate is unknown.
//   - gc, signal= and exec= free nothing unless they are those of the record.
//
// Beyond the end of the record nothing is known: where the job died there, a
// larger limit may have let it live.
package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Replay runs the ladder over a record, as it was or as opt says. It fails for a record
// without samples, with a ladder that cannot be read, or without the limit that opt names.
func Replay(run *record.Run, opt Options) (*Result, error) {
	p, err := newRecording(run)
	if err != nil {
		return nil, err
	}
	g, err := p.findGoal(opt)
	if err != nil {
		return nil, err
	}
	r := &Result{
		V: Version, Run: run.Meta.ID, Command: run.Meta.Command, Start: run.Meta.Start,
		End: p.end.Seconds(), Tick: p.interval.Seconds(), Decisions: []Decision{}, Missed: []Recorded{}, Notes: []string{},
	}
	r.Estimate = opt.Rules != nil && !p.sameRules(opt.Rules) || opt.Limit > 0 && opt.Limit != g.limit.Recorded
	if g.limit.Name != "" {
		l := g.limit
		l.Size = l.Recorded
		if opt.Limit > 0 {
			l.Size = opt.Limit
		}
		r.Limit = &l
	}
	if r.Estimate {
		p.estimate(r, g, opt)
	} else {
		p.repeat(r)
	}
	p.least(r, g, opt)
	p.notes(r)
	return r, nil
}

// sameRules says that a ladder is the one of the record, in whatever order.
func (p *recording) sameRules(rules []event.Rule) bool {
	for _, s := range p.starts {
		if len(s.rules) != len(rules) || slices.ContainsFunc(s.rules, func(r event.Rule) bool { return !slices.Contains(rules, r) }) {
			return false
		}
	}
	return true
}

// repeat decides again what was decided, where the record has all that the ladder was given;
// else it lists the decisions.
func (p *recording) repeat(r *Result) {
	run, complete := p.again()
	if !complete {
		run = newDecided()
		run.ladder = policy.New(p.starts[len(p.starts)-1].rules, 1)
		for _, d := range p.recorded {
			run.decide(d.at, &d.Decision, d)
		}
	}
	r.take(&run)
	for _, d := range p.recorded {
		if !run.claimed[d] {
			r.Missed = append(r.Missed, *d.asRecorded())
		}
	}
	if complete {
		same := len(r.Missed) == 0
		r.Same = &same
	}
	r.Fate, r.Why, r.Death = p.fate()
}

// again has the ladder make all judgements of the record again. complete says that the record
// has all of them, and as many decisions as follow from them.
func (p *recording) again() (run decided, complete bool) {
	run = newDecided()
	run.ladder = policy.New(p.starts[0].rules, p.starts[0].attempt)
	n := uint64(0) // of the judgements of this watcher
	for _, e := range p.run.Events {
		switch v := e.Value.(type) {
		case *event.Start:
			i := slices.IndexFunc(p.starts, func(s start) bool { return s.event == v })
			n, run.ladder = 0, policy.New(p.starts[i].rules, p.starts[i].attempt)
		case *event.Handover:
			m, err := policy.ParseMemory(v.Memory)
			if err != nil || v.Now == 0 {
				return run, false
			}
			run.ladder.Restore(m, v.Now, v.Clock, v.Own)
		case *event.Judged:
			if n++; v.N != n {
				return run, false
			}
			j := policy.Repeat(run.ladder, v)
			for i := range j.Decisions {
				d, at := &j.Decisions[i], e.At
				var was *recordedDecision
				if k := slices.IndexFunc(p.recorded, func(r *recordedDecision) bool { return !run.claimed[r] && same(&r.Decision, d) }); k >= 0 {
					was, at = p.recorded[k], p.recorded[k].at
				}
				run.decide(at, d, was)
			}
			run.skip(j.Skipped, e.At)
		}
	}
	return run, len(run.decisions) == len(p.recorded)
}

// same says that two decisions are the same but for their heads.
func same(recorded, d *event.Decision) bool {
	d.Head = recorded.Head
	a, err := d.MarshalJSON()
	b, err2 := recorded.MarshalJSON()
	return err == nil && err2 == nil && string(a) == string(b)
}

// estimate plays the model: once as if what grew after an action that is not taken
// were the same memory come back, and where that matters once as if it were not.
func (p *recording) estimate(r *Result, g *goal, opt Options) {
	low := p.play(g, conditions{size: opt.Limit, rules: opt.Rules})
	high, most := low, p.without(g)
	enough := most > 0 && r.Limit.Size > most // whatever is done
	if low.unreplayed.any {
		high = p.play(g, conditions{size: opt.Limit, rules: opt.Rules, high: true})
	}
	if high.ended() != nil && enough && low.ended() == nil {
		high = low // what grew afterwards was the same come back
	}
	r.take(&high.decided)
	switch {
	case high.ended() != nil && low.ended() != nil:
		r.Fate, r.Death, r.Why = Dies, high.ended(), high.ended().why()
	case high.ended() != nil:
		r.Fate = Unknown
		r.Why = fmt.Sprintf("if what grew after the actions of the record was more memory, %s; if it was the same come back, the job lives", high.ended().why())
	default:
		r.Fate, r.Why = Lives, "no limit is reached before the record ends"
		if fate, why, _ := p.fate(); fate == Dies {
			r.Fate, r.Why = Unknown, "no limit is reached before the record ends, but there "+why
		} else if fate == Unknown {
			r.Fate, r.Why = Unknown, "no limit is reached before the record ends; "+why
		} else if p.ledger.WorkerTrims > 0 && !trims(p.ladderOf(opt)) && !enough {
			r.Fate, r.Why = Unknown, "no limit is reached before the record ends, but workers trimmed themselves then, which they do only with a rule that trims"
		}
	}
}

func (d *Death) why() string {
	if d.Limit == "" {
		return fmt.Sprintf("%s ends the job after %s", d.By, clock(d.At))
	}
	reached := fmt.Sprintf("%v of memory are used after %s and the limit %s is %v", d.Used, clock(d.At), d.Limit, d.Size)
	if d.Limit == event.LimitUser {
		return reached + ", which only rsswarden's own rules enforce"
	}
	return reached
}

func (p *recording) fate() (Fate, string, *Death) {
	if p.run.Live {
		return Lives, "the job is still running", nil
	}
	e := p.run.Exit()
	if e == nil {
		return Unknown, "the record ends abruptly: what ended the job ended rsswarden too", nil
	}
	d := &Death{At: p.end.Seconds(), By: "the record"}
	if e.Binding != nil {
		d.Used, d.Size = e.Binding.Used, e.Binding.Limit
	}
	switch e.Outcome {
	case event.RunOOM:
		d.Limit, d.By = event.LimitCgroup, "kernel OOM killer"
		if e.Binding != nil && e.Binding.Name == event.LimitNode {
			d.Limit = event.LimitNode
		}
		return Dies, "the kernel's OOM killer struck", d
	case event.RunRequeued:
		d.By = "a requeue rule"
		return Dies, "a requeue rule put the job back into the queue", d
	case event.RunStopped:
		d.By = "a stop rule"
		return Dies, "a stop rule ended the job", d
	case event.RunKilled, event.RunSlurmKill:
		if e.Binding == nil || e.Binding.Used < e.Binding.Limit {
			return Unknown, "a SIGKILL ended the job, and no limit was seen to be passed", nil
		}
		d.Limit, d.By = e.Binding.Name, e.Binding.Enforcer
		return Dies, "a SIGKILL ended the job, with more used than its limit", d
	}
	return Lives, "the job ended by itself", nil
}

func (r *Result) take(run *decided) {
	r.Decisions = append(r.Decisions, run.decisions...)
	for _, rule := range run.ladder.Rules() {
		text := rule.String()
		r.Rules = append(r.Rules, text)
		g := Rung{Rule: text}
		if k := run.skipped[rule]; k != nil {
			g.Met, g.Reason, g.Detail = k.Met, k.Reason, k.Detail
		}
		for i := range run.decisions {
			if d := &run.decisions[i]; d.Rule == text {
				if g.Count++; g.First == nil {
					g.First = &d.At
				}
			}
		}
		r.Rungs = append(r.Rungs, g)
	}
}

func (p *recording) notes(r *Result) {
	note := func(on bool, text string) {
		if on {
			r.Notes = append(r.Notes, text)
		}
	}
	note(p.run.JournalOnly, "only the journal was there: it has few samples and no processes, so no action can be modelled")
	note(p.run.Thinned, "older samples stand for up to a minute each, and what was between them is not known")
	note(p.run.Dropped > 0, fmt.Sprintf("%d events were taken out of the record because there were too many", p.run.Dropped))
	note(len(p.run.Damage) > 0, "the record is damaged, and only what could be read was replayed")
	note(p.badHandover, "what the leader before had done cannot be made out: what it did at the same use is decided again here")
	note(!r.Estimate && r.Same == nil, "the record does not have all that the ladder was given, or another version judged: its decisions are listed as they were")
	note(r.Limit != nil && r.Limit.Recorded == 0, "the record has no such limit: its use is added up from the processes")
	note(p.ledger.WorkerTrims > 0, fmt.Sprintf("workers trimmed themselves %d times, and are taken to do so here too, except without actions", p.ledger.WorkerTrims))
	note(p.assumed(r), "the record does not tell whether its workers could be acted on as is assumed here: that takes the loader hook, --trim auto or --worker-signal")
	note(r.Estimate, "the limit or the rules are not those of the record: what follows from them is an estimate by a model")
}

// assumed says that an action freed something here which the run never met.
func (p *recording) assumed(r *Result) bool {
	tried := map[event.Action]bool{}
	for _, d := range p.recorded {
		tried[d.Action] = true
	}
	for k := range p.answers {
		tried[k.Action] = true
	}
	return slices.ContainsFunc(r.Decisions, func(d Decision) bool { return d.Freed > 0 && !tried[d.Action] })
}

// goal is the limit that a replay is about, and what is known of all workers.
type goal struct {
	*history
	limit Limit
	// made says that the record has no such limit: it is added up here.
	made   bool
	keys   map[event.LimitID]bool      // those that are replaced together
	others map[event.LimitID]rss.Bytes // the most that was used of each other limit
}

func (p *recording) findGoal(opt Options) (*goal, error) {
	g := &goal{history: p.readHistory(), keys: map[event.LimitID]bool{}, others: map[event.LimitID]rss.Bytes{}}
	best, binding := -1, false
	for i, f := range p.fullest {
		if i >= len(p.run.Limits) || !eligible(&p.run.Limits[i], opt) {
			continue
		}
		l := &p.run.Limits[i]
		better := best < 0 || f.binding && !binding
		if !better && f.binding == binding {
			o := p.fullest[best]
			a, b := f.used.Of(f.size), o.used.Of(o.size)
			better = cmp.Or(cmp.Compare(a, b), cmp.Compare(len(l.Level), len(p.run.Limits[best].Level)), cmp.Compare(best, i)) > 0
		}
		if better {
			best, binding = i, f.binding
		}
	}
	if best < 0 {
		return g, g.make(p, opt)
	}
	l, f := &p.run.Limits[best], p.fullest[best]
	g.limit = Limit{Name: l.Name, Scope: l.Scope, Accounting: l.Accounting, Level: l.Level, Recorded: f.size, Peak: f.used, At: f.at.Seconds()}
	if e := p.run.Exit(); e != nil && e.Binding != nil && e.Binding.ID() == l.ID() {
		g.limit.Peak = max(f.used, e.Binding.Used) // the run looked more often than it kept a sample
	}
	for i, o := range p.fullest {
		if i >= len(p.run.Limits) {
			continue
		}
		l := &p.run.Limits[i]
		if k := l.ID(); l.Name == g.limit.Name && o.size == f.size {
			g.keys[k] = true
		} else {
			g.others[k] = max(g.others[k], o.used)
		}
	}
	return g, nil
}

func eligible(l *event.Limit, opt Options) bool {
	if opt.Accounting != "" && l.Accounting != opt.Accounting {
		return false
	}
	return l.Name == event.LimitCgroup || l.Name == event.LimitSlurm || l.Name == event.LimitUser
}

// make makes a limit on the tree, which the record does not have.
func (g *goal) make(p *recording, opt Options) error {
	a := cmp.Or(opt.Accounting, event.AccountingRSS)
	if a == event.AccountingCgroup {
		return fmt.Errorf("cannot replay %s: it has no limit that is compared with %s", p.run.Meta.ID, a)
	}
	if !p.procs {
		if opt.Limit == 0 && opt.Accounting == "" {
			return nil
		}
		return fmt.Errorf("cannot replay %s: it has no limit on memory and no processes to add up", p.run.Meta.ID)
	}
	if a == event.AccountingPSS && !p.pss {
		return fmt.Errorf("cannot replay %s: it has no PSS of its processes, which a run reads where a limit counts it (--accounting pss)", p.run.Meta.ID)
	}
	g.made = true
	g.limit = Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: a}
	g.keys[event.LimitID{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: a}] = true
	for i, f := range p.fullest {
		if i < len(p.run.Limits) {
			g.others[p.run.Limits[i].ID()] = f.used
		}
	}
	for s := range p.run.Samples() {
		if used := p.sum(s, a); used > g.limit.Peak {
			g.limit.Peak, g.limit.At = used, s.At.Seconds()
		}
	}
	return nil
}

func (p *recording) sum(s *record.Sample, a event.Accounting) (sum rss.Bytes) {
	for i := range s.Procs {
		u := &s.Procs[i]
		if !p.inTree(u.Proc) {
			continue
		}
		switch a {
		case event.AccountingPSS:
			sum += u.PSS
		case event.AccountingNoShared:
			sum += u.Anon
		default:
			sum += u.RSS()
		}
	}
	return sum
}

// means says that a limit is the one that is meant, or goes with it.
func (g *goal) means(l *event.Limit) bool { return g.keys[l.ID()] }

// readings are the limits of a sample, with the one that was made.
func (g *goal) readings(to []event.Limit, p *recording, s *record.Sample) []event.Limit {
	to = p.readings(to, s)
	if g.made {
		to = append(to, event.Limit{
			Name: g.limit.Name, Scope: g.limit.Scope, Accounting: g.limit.Accounting,
			Used: p.sum(s, g.limit.Accounting), Enforcer: "rsswarden's own rules only",
		})
	}
	return to
}

// finest is the part of a size down to which the least one is looked for.
const finest = 0.01

// least finds the least size of the limit by each way of asking.
func (p *recording) least(r *Result, g *goal, opt Options) {
	if r.Limit == nil || g.limit.Peak == 0 {
		return
	}
	fate, _, _ := p.fate()
	ended := fate != Lives // more may have been used had it gone on
	most := upTo(g.limit.Peak)
	r.Least = append(r.Least, Least{Way: AsRecorded, Mem: most, Most: most, AtLeast: ended})

	low, high := p.peaks(g)
	without := Least{Way: WithoutActions, Estimate: true, Mem: upTo(low), Most: upTo(high), AtLeast: ended}
	if bound := p.without(g); bound > 0 {
		without.Mem, without.Most = upTo(min(low, bound)), upTo(bound)
	} else if p.ledger.WorkerTrims > 0 || p.ledger.Recycled > 0 {
		without.Most = 0 // what a recycled worker would have grown to is not known
	}
	r.Least = append(r.Least, without)

	// With no more than the ladder needs to keep the job inside.
	rules := p.ladderOf(opt)
	if !slices.ContainsFunc(rules, func(r event.Rule) bool { return r.Action.Acts() }) {
		return // that is the way before
	}
	mem, changed := p.search(g, rules, upTo(high), opt.Limit, false)
	more := mem
	if changed {
		// From above none may be found where from below one is.
		more, _ = p.search(g, rules, upTo(high), opt.Limit, true)
	}
	if was := g.limit.Recorded; !ended && p.sameRules(rules) && g.limit.Peak <= was { // it did survive that
		mem, more = min(cmp.Or(mem, was), was), min(cmp.Or(more, was), was)
	}
	r.Least = append(r.Least, Least{Way: WithLadder, Estimate: true, Mem: mem, Most: more, AtLeast: ended})
}

// ladderOf is that of the replay: the record's where none are given.
func (p *recording) ladderOf(opt Options) []event.Rule {
	if opt.Rules != nil {
		return opt.Rules
	}
	return p.starts[len(p.starts)-1].rules
}

func trims(rules []event.Rule) bool {
	return slices.ContainsFunc(rules, func(r event.Rule) bool { return r.Action.Row().Trims })
}

// without is what the run itself found that it would have used of the limit at most without
// actions, which is more than samples tell: how much workers have mapped, and what each had
// when it was recycled. 0 where that is not known.
func (p *recording) without(g *goal) rss.Bytes {
	e := p.run.Exit()
	if e == nil || e.Binding == nil || !g.keys[e.Binding.ID()] || (e.Next.Option == "--limit") != (g.limit.Name == event.LimitUser) {
		return 0
	}
	return e.Next.Without
}

// upTo is the least limit in whole MiB that lies above a use.
func upTo(used rss.Bytes) rss.Bytes { return (used/rss.MiB + 1) * rss.MiB }

// peaks bounds the most that would have been used without actions.
func (p *recording) peaks(g *goal) (low, high rss.Bytes) {
	for _, above := range []bool{false, true} {
		m := p.play(g, conditions{size: unlimited, rules: []event.Rule{}, high: above, plain: true, endless: true})
		if high = m.most; !above {
			low = m.most
		}
		if !m.unreplayed.any {
			return low, low
		}
	}
	return min(low, high), max(low, high)
}

// unlimited is a limit that no job reaches.
const unlimited = 1 << 60

// search finds the least size with which the ladder keeps the job inside, by
// halving, and by trying size, that of the replay; 0 where even most is too little. changed
// says that recorded actions were not taken.
func (p *recording) search(g *goal, rules []event.Rule, most, size rss.Bytes, high bool) (mem rss.Bytes, changed bool) {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r event.Rule) bool { return r.Action == event.ActionWarn })
	plain := !slices.ContainsFunc(rules, func(r event.Rule) bool { return r.Cond.Kind == event.KindETA && r.Limit != event.LimitTime })
	lives := func(size rss.Bytes) bool {
		// Forecasts cost much, and there are many plays.
		m := p.play(g, conditions{size: size, rules: rules, high: high, plain: plain, brief: true})
		changed = changed || m.unreplayed.any
		return m.ended() == nil
	}
	if !lives(most) {
		return 0, changed
	}
	// A larger size may fare worse, where an action comes too late: what is known
	// to do is not passed over.
	for _, known := range []rss.Bytes{g.limit.Recorded, size / rss.MiB * rss.MiB} {
		if known > 0 && known < most && lives(known) {
			most = known
		}
	}
	least := most / 64
	for most-least > max(most.Scale(finest), rss.MiB) {
		if mid := (least + most) / 2 / rss.MiB * rss.MiB; lives(mid) {
			most = mid
		} else {
			least = mid
		}
	}
	return most, changed
}
