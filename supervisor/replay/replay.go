package replay

import (
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Replay runs the ladder over a record, as it was or as opt says. Its errors are
// about records that cannot be replayed: one without samples, with a ladder that
// cannot be read, or without the limit that is named.
func Replay(run *record.Run, opt Options) (*Result, error) {
	p, err := remember(run)
	if err != nil {
		return nil, err
	}
	g, err := p.aim(opt)
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
		p.guess(r, g, opt)
	} else {
		p.repeat(r)
	}
	p.least(r, g, opt)
	p.notes(r)
	return r, nil
}

// sameRules says that a ladder is the one of the record, in whatever order.
func (p *past) sameRules(rules []event.Rule) bool {
	for _, s := range p.starts {
		if len(s.rules) != len(rules) || slices.ContainsFunc(s.rules, func(r event.Rule) bool { return !slices.Contains(rules, r) }) {
			return false
		}
	}
	return true
}

// repeat replays what was.
func (p *past) repeat(r *Result) {
	run := newPass(p, nil)
	run.play(&recorded{pass: run})
	r.take(run)
	same := true
	for _, d := range run.decisions {
		same = same && d.Recorded != nil
	}
	for _, d := range p.deeds {
		if !run.claimed[d] {
			same = false
			r.Missed = append(r.Missed, *d.told())
		}
	}
	r.Same = &same
	r.Fate, r.Why, r.Death = p.fate()
}

// guess plays the model: once as if what grew after an action that is not taken
// were the same memory come back, and where that matters once as if it were not.
func (p *past) guess(r *Result, g *goal, opt Options) {
	low, owed := p.imagine(g, opt.Limit, opt.Rules, false)
	high := low
	if owed {
		high, _ = p.imagine(g, opt.Limit, opt.Rules, true)
	}
	r.take(high)
	switch {
	case high.ended() != nil && low.ended() != nil:
		r.Fate, r.Death, r.Why = Dies, high.ended(), high.ended().why(r.Limit)
	case high.ended() != nil:
		r.Fate = Unknown
		r.Why = fmt.Sprintf("if what grew after the actions of the record was more memory, %s; if it was the same come back, the job lives", high.ended().why(r.Limit))
	default:
		r.Fate, r.Why = Lives, "no limit is reached before the record ends"
		if fate, why, _ := p.fate(); fate == Dies {
			r.Fate, r.Why = Unknown, "no limit is reached before the record ends, but there "+why
		} else if fate == Unknown {
			r.Fate, r.Why = Unknown, "no limit is reached before the record ends; "+why
		}
	}
}

// imagine plays the model once. owed says that recorded actions were not taken.
func (p *past) imagine(g *goal, size rss.Bytes, rules []event.Rule, high bool) (run *pass, owed bool) {
	run = newPass(p, rules)
	m := newModel(run, g, size, high)
	run.play(m)
	return run, m.owed.any
}

// why says how the job ends.
func (d *Death) why(l *Limit) string {
	if d.Limit == "" {
		return fmt.Sprintf("%s ends the job after %s", d.By, clock(d.At))
	}
	reached := fmt.Sprintf("%v of memory are used after %s and the limit %s is %v", d.Used, clock(d.At), d.Limit, d.Size)
	if d.Limit == event.LimitUser {
		return reached + ", which only rsswarden's own rules enforce"
	}
	return reached
}

// fate is what became of the job, by the record.
func (p *past) fate() (Fate, string, *Death) {
	if p.run.Live {
		return Lives, "the job is still running", nil
	}
	e := p.run.Exit()
	if e == nil {
		return Unknown, "the record ends without a word: whatever ended the job ended rsswarden too", nil
	}
	d := &Death{At: p.end.Seconds(), By: "the record"}
	if e.Binding != nil {
		d.Used, d.Size = e.Binding.Used, e.Binding.Limit
	}
	switch e.Verdict {
	case event.VerdictOOM:
		d.Limit, d.By = event.LimitCgroup, "kernel OOM killer"
		if e.Binding != nil && e.Binding.Name == event.LimitNode {
			d.Limit = event.LimitNode
		}
		return Dies, "the kernel's OOM killer struck", d
	case event.VerdictRequeued:
		d.By = "a requeue rule"
		return Dies, "a requeue rule put the job back into the queue", d
	case event.VerdictStopped:
		d.By = "a stop rule"
		return Dies, "a stop rule ended the job", d
	case event.VerdictKilled:
		if e.Binding == nil || e.Binding.Used < e.Binding.Limit {
			return Unknown, "a SIGKILL ended the job, and no limit was seen to be passed", nil
		}
		d.Limit, d.By = e.Binding.Name, e.Binding.Enforcer
		return Dies, "a SIGKILL ended the job, with more used than its limit", d
	}
	return Lives, "the job ended by itself", nil
}

// take takes in what a pass has decided.
func (r *Result) take(run *pass) {
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

// notes says what is missing or doubtful.
func (p *past) notes(r *Result) {
	note := func(on bool, text string) {
		if on {
			r.Notes = append(r.Notes, text)
		}
	}
	note(p.run.JournalOnly, "only the journal was there: it has few samples and no processes, so no action can be modelled")
	note(p.run.Thinned, "older samples stand for up to a minute each, and what was between them is not known")
	note(p.run.Dropped > 0, fmt.Sprintf("%d events were taken out of the record because there were too many", p.run.Dropped))
	note(len(p.run.Damage) > 0, "the record is damaged, and only what could be read was replayed")
	note(p.unread, "what the leader before had done cannot be made out: what it did at the same use is decided again here")
	note(r.Limit != nil && r.Limit.Recorded == 0, "the record has no such limit: its use is added up from the processes")
	note(p.assumed(r), "the record does not tell whether its workers could be acted on as is assumed here: that takes the loader hook, --trim auto or --worker-signal")
	note(r.Estimate, "the limit or the rules are not those of the record: what follows from them is an estimate by a model")
}

// assumed says that an action freed something here which the run never met.
func (p *past) assumed(r *Result) bool {
	tried := map[event.Action]bool{}
	for _, d := range p.deeds {
		tried[d.Action] = true
	}
	for k := range p.helps {
		if rule, err := event.ParseRecorded(k.rule); err == nil {
			tried[rule.Action] = true
		}
	}
	return slices.ContainsFunc(r.Decisions, func(d Decision) bool { return d.Freed > 0 && !tried[d.Action] })
}
