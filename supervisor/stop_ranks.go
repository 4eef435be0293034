package supervisor

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Each rank's watcher sends its own command TERM, and KILL when that is due: the leader may
// have ended by then.

// ownStop is a stop of our own command that a leader asked for. It is in force until
// the command ends: a second TERM could hit it while it writes a checkpoint.
type ownStop struct {
	grace time.Duration
	due   time.Duration // when KILL follows, then when it is sent again; 0 for no stop
	said  bool          // KILL was sent
}

// killAfter is how long after the grace who was asked to stop sends KILL itself: a
// leader that lives sends it first.
const killAfter = time.Second

func (s *ownStop) inForce() bool { return s.due != 0 }

// within shortens a pause to what is left until KILL is due.
func (s *ownStop) within(now, pause time.Duration) time.Duration {
	if !s.inForce() {
		return pause
	}
	return min(pause, s.due-now)
}

// stopOurs has our command end as the leader asks.
func (w *watcher) stopOurs(o *node.Order) {
	s := &w.peers.stop
	if s.inForce() {
		return
	}
	// The status of a command that ended by itself, or that we cannot stop, stands.
	if err := w.kill(w.observe.Pop.Command, 0); err != nil {
		if !errors.Is(err, syscall.ESRCH) {
			w.fault("stop", err)
		}
		return
	}
	s.grace, s.due = o.Grace, w.now()+o.Grace+killAfter
	w.tell.Sum.Stopped = true
	w.Settings.StopStatus = o.StopStatus
	if err := w.Link.Override(o.StopStatus); err != nil {
		w.fault("stop", err)
	}
	if err := w.kill(w.observe.Pop.Command, syscall.SIGTERM); err != nil {
		w.fault("stop", err)
	}
}

// killOurs sends KILL to all of our command's tree that lives, once that is due, and
// again until the command ends: a tree may fork while it dies.
func (w *watcher) killOurs() {
	s, now := &w.peers.stop, w.now()
	if !s.inForce() || now < s.due {
		return
	}
	s.due = now + cadence.Busiest
	if !s.said {
		s.said = true
		w.tell.Say(now, "stop", "the command has not ended "+text.Span(s.grace)+" after TERM: it gets KILL")
	}
	// A reader of its own: who leads watches more than this tree with the other.
	tree := proctree.New(w.Proc)
	defer tree.Close()
	procs, _, err := tree.Trees([]rss.ProcID{w.observe.Pop.Command})
	if err != nil {
		w.fault("stop", err)
		procs = []rss.Proc{{ID: w.observe.Pop.Command}}
	}
	for i := range procs {
		if err := w.kill(procs[i].ID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			w.fault("stop", err)
		}
	}
}

// stopsAlready says that our own command is meant, and was told to end before the
// lead fell to us.
func (w *watcher) stopsAlready(step string) bool {
	return w.peers.stop.inForce() && w.observe.Pop.InScope(w.observe.Pop.Command, step)
}

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
		o := node.Order{ID: p.orders.next(), Stop: true, StopStatus: w.Settings.StopStatus, Grace: w.Settings.Grace}
		err := fmt.Errorf("the watcher of %s has ended", w.rankName(m))
		if proctree.Lives(w.Proc, m.Watcher) {
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
