package supervisor

import "time"

// allowance is time of a core for what may take much of one for seconds, and not for
// hours: so much at once, and for long no more than a share. Who has spent more than
// there was waits for that too.
type allowance struct {
	most  time.Duration // at once
	share float64       // of a core, at which it comes again
	spent time.Duration
	at    time.Duration // when that was
}

// left says that there is some.
func (a *allowance) left(now time.Duration) bool {
	a.spend(now, 0)
	return a.spent < a.most
}

func (a *allowance) spend(now, cost time.Duration) {
	a.spent = max(0, a.spent-time.Duration(float64(now-a.at)*a.share)) + cost
	a.at = now
}

// renew gives back all that was spent.
func (a *allowance) renew() { a.spent = 0 }
