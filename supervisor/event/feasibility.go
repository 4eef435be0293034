package event

import "github.com/rsswarden/rsswarden/rss"

// Ask is a rule on a limit whose action may be wanted.
type Ask struct {
	Rule Rule
	On   LimitID
}

// Feasibility says what the action of a rule could do for a limit now.
type Feasibility struct {
	OK bool `json:"ok,omitempty"` // it could help
	// Gain estimates how much of the limit's Used the action could give back,
	// 0 where it is not known.
	Gain rss.Bytes `json:"gain,omitempty"`
	// AtLeast says that Gain is a lower bound only: small, it is no reason not to act.
	AtLeast bool `json:"at_least,omitempty"`
	// Reason and Detail say why not, where OK is false.
	Reason Reason `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Later says that it will be known in a moment: there is nothing to say yet.
	Later bool `json:"later,omitempty"`
}

// Fits says whether a limit counts what the action gives back. It is the one place that
// decides: a run asks it before anything else, and doctor and limits print it.
func (a Action) Fits(l *Limit) Feasibility {
	if fits := a.row().fits; fits != nil && !fits(l) {
		return Feasibility{Reason: ReasonNoHelp, Detail: a.Why(ReasonNoHelp)}
	}
	return Feasibility{OK: true}
}

// countsMapped: a page of a mapped file stays in the page cache when a process drops it, so
// RSS and PSS of the process fall. A cgroup's charge and the node's use stay, and noshared
// never had it.
func countsMapped(l *Limit) bool {
	return l.Accounting == AccountingRSS || l.Accounting == AccountingPSS
}

func countsWorkers(l *Limit) bool { return l.Name.Memory() }

func countsAnon(l *Limit) bool { return l.Name.Memory() && l.Accounting != AccountingVirtual }
