package tell

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// Judged notes what a judgement was given where it has changed what the ladder remembers: what
// an action could do rests on loaders, ptrace and much else that no record has.
func (f *Fan) Judged(in *policy.Input, j *policy.Judgement) {
	if !j.Moved {
		return
	}
	f.judged++ // where nothing is recorded, too: a record that begins later has not all
	f.Note(event.NameJudged, func(h event.Head) any {
		e := event.Judged{Head: h, N: f.judged, Now: in.Now, Given: j.Given, Left: in.JobEnd, Asking: in.EndUnsure}
		for i := range in.Limits {
			l := &in.Limits[i]
			e.Limits = append(e.Limits, event.JudgedLimit{
				Name: l.Name, Scope: l.Scope, Accounting: l.Accounting, Level: l.Level, PID: l.PID,
				Used: l.Used, Size: l.Limit, ETA: l.ETA, Outlook: l.Outlook, Binding: l.Binding,
			})
		}
		index := func(of event.LimitID) int {
			return slices.IndexFunc(in.Limits, func(l event.Limit) bool { return l.ID() == of })
		}
		for ask, lead := range in.Lead {
			e.Leads = append(e.Leads, event.JudgedLead{Rule: ask.Rule.String(), Limit: index(ask.On), Lead: lead})
		}
		for _, d := range j.Asked {
			e.Feasible = append(e.Feasible, event.JudgedFeasible{Rule: d.Rule.String(), Limit: index(d.On), Feasibility: in.Feasible[d.Ask]})
		}
		slices.SortFunc(e.Leads, func(a, b event.JudgedLead) int {
			return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Rule, b.Rule))
		})
		return e
	})
}
