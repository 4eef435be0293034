package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

// renewEvery is how often our place among the watchers is looked after.
const renewEvery = time.Minute

// renew keeps our place, and the control socket where we lead: somebody may have
// removed them. It says whether our file for orders is another one now.
func (w *watcher) renew() (reopened bool) {
	p := &w.peers
	if p.post == nil || w.now()-p.renewed < renewEvery {
		return false
	}
	p.renewed = w.now()
	reopened, err := p.post.Renew(p.me)
	if err != nil {
		w.fault("leader", err)
	}
	if p.post.Leads() && w.tell.Status.Requests() != nil && !p.post.Has(control.SocketName) {
		w.serveNoMore()
		w.serve()
	}
	return reopened
}
