package replay

import (
	"cmp"
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// goal is the limit that a replay is about, and what is known of all workers.
type goal struct {
	*history
	limit Limit
	// made says that the record has no such limit: it is added up here.
	made   bool
	keys   map[event.LimitID]bool      // those that are replaced together
	others map[event.LimitID]rss.Bytes // the most that was used of each other limit
}

// aim finds the limit that is meant.
func (p *past) aim(opt Options) (*goal, error) {
	g := &goal{history: p.history(), keys: map[event.LimitID]bool{}, others: map[event.LimitID]rss.Bytes{}}
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

// eligible says that a limit may be the one that is meant.
func eligible(l *event.Limit, opt Options) bool {
	if opt.Accounting != "" && opt.Accounting != event.AccountingAuto && l.Accounting != opt.Accounting {
		return false
	}
	if opt.Which != "" {
		return l.Name == opt.Which
	}
	return l.Name == event.LimitCgroup || l.Name == event.LimitSlurm || l.Name == event.LimitUser
}

// make makes a limit on the tree, which the record does not have.
func (g *goal) make(p *past, opt Options) error {
	if opt.Which != "" && opt.Which != event.LimitUser {
		return fmt.Errorf("cannot replay %s: it has no limit %s", p.run.Meta.ID, opt.Which)
	}
	a := cmp.Or(opt.Accounting, event.AccountingRSS)
	if a == event.AccountingAuto {
		a = event.AccountingRSS
	}
	switch a {
	case event.AccountingRSS, event.AccountingPSS, event.AccountingNoShared:
	default:
		return fmt.Errorf("cannot replay %s: it has no limit that is compared with %s", p.run.Meta.ID, a)
	}
	if !p.procs {
		if opt.Limit == 0 && opt.Accounting == "" && opt.Which == "" {
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

// sum adds up the processes of the tree.
func (p *past) sum(s *record.Sample, a event.Accounting) (sum rss.Bytes) {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= len(p.run.Procs) || p.run.Procs[u.Proc].Extra || p.run.Procs[u.Proc].Ours {
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
func (g *goal) readings(to []event.Limit, p *past, s *record.Sample) []event.Limit {
	to = p.readings(to, s)
	if g.made {
		l := event.Limit{
			Name: g.limit.Name, Scope: g.limit.Scope, Accounting: g.limit.Accounting,
			Used: p.sum(s, g.limit.Accounting), Enforcer: "nobody but rsswarden's own rules",
		}
		l.UsedMax = l.Used
		to = append(to, l)
	}
	return to
}
