package limit

import (
	"cmp"
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// userLimit is --limit with the accounting it is compared in.
type userLimit struct {
	accounting event.Accounting
	level      *level // for the cgroup accounting
}

func (s *Set) hasUser() bool { return s.cfg.User > 0 || s.cfg.UserShare > 0 }

// findUser settles the accounting of --limit: as asked, else that of the
// enforcer with the least limit, else rss.
func (s *Set) findUser() {
	if !s.hasUser() {
		return
	}
	acc := s.cfg.Accounting
	if acc == "" || acc == event.AccountingAuto {
		acc = event.AccountingRSS
		if _, a, ok := s.least(); ok {
			acc = a
		}
	}
	s.user = userLimit{accounting: acc}
	if acc != event.AccountingCgroup {
		return
	}
	if s.user.level, _ = s.limiting(); s.user.level == nil {
		s.warn("user", "--accounting=cgroup, and there is no memory cgroup: the tree's summed rss is used")
		s.user.accounting = event.AccountingRSS
	}
}

// least returns the least limit that is enforced on the job, and the
// accounting of it: Slurm's where both are equal, since its sum is the larger.
func (s *Set) least() (rss.Bytes, event.Accounting, bool) {
	acc := event.AccountingCgroup
	_, limit := s.limiting()
	if sums, _ := s.sums(0); sums != "" && len(s.given) > 0 && rss.Bytes(s.given[0].Bytes) <= limit {
		limit, acc = rss.Bytes(s.given[0].Bytes), sums
	}
	return limit, acc, limit != cgroup.Unlimited
}

// readUser compares the tree with --limit.
func (s *Set) readUser(sample *rss.Sample) []event.Limit {
	if !s.hasUser() {
		return nil
	}
	u, source := s.user, cmp.Or(s.cfg.UserSource, "--limit")
	e := event.Limit{
		Name: event.LimitUser, Scope: event.ScopeTree, Accounting: u.accounting, Limit: s.cfg.User,
		Enforcer: "rsswarden's rules alone", UsedSource: sumSource[u.accounting], LimitSource: source,
	}
	if s.cfg.User == 0 {
		base, _, ok := s.least()
		if !ok {
			base = s.mem.Total
		}
		if base == 0 {
			s.warn("user", "--limit is a share, and no limit was found that it could be a share of")
			return nil
		}
		e.Limit = base.Scale(s.cfg.UserShare)
		e.LimitSource = fmt.Sprintf("%s, %.4g %% of %v", source, 100*s.cfg.UserShare, base)
	}
	if u.level != nil {
		if u.level.tick != s.tick && !s.readMemory(u.level, sample.Mono) {
			return nil
		}
		return []event.Limit{u.level.charged(e.Name, e.Limit, e.Enforcer, e.LimitSource)}
	}
	var sum total
	for i := range sample.Procs {
		sum.add(&sample.Procs[i], u.accounting)
	}
	sum.put(&e, sample.Mono)
	return []event.Limit{e}
}
