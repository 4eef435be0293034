package supervisor

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor/leader"
)

// This file stops a job's ranks on this node. Each rank's watcher sends its own
// command TERM.

// stopOthers has the watchers of the ranks that are meant stop their commands, and
// returns how many ranks were told. Each knows the status that its own rsswarden is
// to end with. Where no watcher can be told the command gets its TERM from us.
func (w *watcher) stopOthers(step string) (told int) {
	p := &w.peers
	for i := range p.others {
		m := &p.others[i]
		if step != "" && m.Step != step {
			continue
		}
		o := leader.Order{ID: p.orders.next(), Stop: true, StopStatus: w.Settings.StopStatus}
		err := fmt.Errorf("the watcher of %s has ended", w.rankName(m))
		if lives(w.Proc, m.Watcher) {
			err = p.post.Command(m.Holder, o)
		}
		if err != nil {
			w.fault("stop", fmt.Errorf("%w: its command gets TERM from here", err))
			err = w.kill(m.Command, syscall.SIGTERM)
		}
		switch {
		case err == nil:
			told++
		case !errors.Is(err, syscall.ESRCH):
			w.fault("stop", err)
		}
	}
	return told
}
