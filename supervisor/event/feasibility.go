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
