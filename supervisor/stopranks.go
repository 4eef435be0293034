package supervisor

import (
	"github.com/rsswarden/rsswarden/supervisor/leader"
)

// This file stops a job's ranks on this node. Each rank's watcher sends its own
// command TERM.

// stopOthers has the watchers of the ranks that are meant stop their commands, and
// returns how many were asked. Each knows the status that its own rsswarden is to
// end with.
func (w *watcher) stopOthers(step string) (asked int) {
	p := &w.peers
	for i := range p.others {
		m := &p.others[i]
		if step != "" && m.Step != step {
			continue
		}
		if err := p.post.Command(m.Holder, leader.Order{ID: p.orders.next(), Stop: true, StopStatus: w.Settings.StopStatus}); err != nil {
			w.fault("stop", err)
			continue
		}
		asked++
	}
	return asked
}
