package node

import "time"

// renewEvery is how often our place among the watchers is looked after.
const renewEvery = time.Minute

// renew keeps our place: what cleans /tmp may have removed it. It says whether our file for
// orders is another one now.
func (p *Place) renew(now time.Duration, n *News) (reopened bool) {
	if now-p.renewedAt < renewEvery {
		return false
	}
	p.renewedAt, n.Renewed = now, true
	reopened, err := p.post.Renew(p.Me)
	n.fault("leader", err)
	return reopened
}
