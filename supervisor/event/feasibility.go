package event

import "github.com/rsswarden/rsswarden/rss"

// Ask is a rule on a limit whose action may be wanted.
type Ask struct {
	Rule Rule
	On   LimitID
}

// Feasibility says what the action of a rule could do for a limit now.
type Feasibility struct {
	OK bool
	// Gain estimates how much of the limit's Used the action could give back,
	// 0 where it is not known.
	Gain rss.Bytes
	// AtLeast says that Gain is a lower bound only: small, it is no reason not to act.
	AtLeast bool
	// Reason and Detail say why not, where OK is false.
	Reason Reason
	Detail string
	// Later says that it will be known in a moment: there is nothing to say yet.
	Later bool
}
