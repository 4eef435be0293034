package replay

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// again runs the ladder over all that it was given, as the record has it ([event.Judged]), and
// says whether that is all there. Then nothing is guessed, and the decisions are the same to
// the byte. Older records have none of it.
func (p *simulation) again() bool {
	var n uint64 // of the judgements of this watcher
	var found bool
	for _, e := range p.run.Events {
		switch v := e.Value.(type) {
		case *event.Start:
			i := slices.IndexFunc(p.starts, func(s start) bool { return s.event == v })
			if i < 0 {
				return false
			}
			n, p.ladder = 0, policy.New(p.starts[i].rules, policy.Options{CoolDown: CoolDown, FirstID: p.starts[i].firstID})
		case *event.Handover:
			m, err := policy.ParseMemory(v.Memory)
			if err != nil || p.ladder == nil || v.Now == 0 {
				return false
			}
			p.ladder.Restore(m, v.Now, v.Clock, policy.OwnLevel(v.Own))
		case *event.Judged:
			if n++; p.ladder == nil || v.N != n {
				return false
			}
			found = true
			p.judge(v, e)
		}
	}
	return found && len(p.decisions) == len(p.recorded)
}

// judge has one judgement made again.
func (p *simulation) judge(v *event.Judged, e record.Entry) {
	for _, g := range v.Given {
		switch {
		case g.Outcome != nil:
			o := g.Outcome
			p.ladder.Done(event.Outcome{Decision: o.Decision, OK: o.OK, Reason: o.Reason, After: o.After, Freed: o.Freed})
		case g.Begun != 0:
			p.ladder.Begun(g.Begun)
		default:
			p.ladder.Pass(g.Passed)
		}
	}
	in := policy.Input{
		Now: v.Now, JobEnd: v.Left, EndUnsure: v.Asking,
		Lead: map[event.Ask]rss.Bytes{}, Feasible: map[event.Ask]event.Feasibility{},
	}
	for i := range v.Limits {
		l := &v.Limits[i]
		in.Limits = append(in.Limits, event.Limit{
			Name: l.Name, Scope: l.Scope, Accounting: l.Accounting, Level: l.Level, PID: l.PID,
			Used: l.Used, Limit: l.Size, ETA: l.ETA, Outlook: l.Outlook, Binding: l.Binding,
		})
	}
	rules := map[string]event.Rule{}
	for _, r := range p.ladder.Rules() {
		rules[r.String()] = r
	}
	for _, l := range v.Leads {
		in.Lead[event.Ask{Rule: rules[l.Rule], On: v.On(l.Limit)}] = l.Lead
	}
	for _, f := range v.Feasible {
		in.Feasible[event.Ask{Rule: rules[f.Rule], On: v.On(f.Limit)}] = f.Feasibility
	}
	p.ladder.Observe(in.Now, in.Limits)
	j := p.ladder.Judge(in)
	for i := range j.Decisions {
		d := &j.Decisions[i]
		out := Decision{At: e.At.Seconds(), Rule: d.Rule, Limit: d.Limit, Action: d.Action, Arg: d.Arg, Used: d.Used, Size: d.LimitSize, ETA: d.ETA}
		if k := slices.IndexFunc(p.recorded, func(r *recordedDecision) bool { return same(&r.Decision, d) }); k >= 0 {
			r := p.recorded[k]
			p.claimed[r] = true
			out.At, out.Recorded = r.at.Seconds(), r.asRecorded()
		}
		p.decisions = append(p.decisions, out)
	}
	p.skip(j.Skipped, e.At)
}

// same says that two decisions are the same but for their heads.
func same(recorded, d *event.Decision) bool {
	d.Head = recorded.Head
	a, err := d.MarshalJSON()
	b, err2 := recorded.MarshalJSON()
	return err == nil && err2 == nil && string(a) == string(b)
}

// skip notes when a rung was first crossed without help.
func (p *simulation) skip(all []policy.Skipped, at time.Duration) {
	for i := range all {
		if k := &all[i]; p.skipped[k.Rule] == nil {
			met := at.Seconds()
			p.skipped[k.Rule] = &Rung{Met: &met, Reason: k.Reason, Detail: k.Detail}
		}
	}
}
