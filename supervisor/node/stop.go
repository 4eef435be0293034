package node

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
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

const (
	// killAfter is how long after the grace a follower sends KILL itself: a leader that
	// lives sends it first.
	killAfter = time.Second
	// killEvery is how often it is sent again.
	killEvery = 250 * time.Millisecond
)

func (s *ownStop) inForce() bool { return s.due != 0 }

// within shortens a pause to what is left until KILL is due.
func (s *ownStop) within(now, pause time.Duration) time.Duration {
	if !s.inForce() {
		return pause
	}
	return min(pause, s.due-now)
}

// Stopping says that our own command was told to end, as a leader asked.
func (p *Place) Stopping() bool { return p.stop.inForce() }

func (s *ownStop) begin(now time.Duration, command rss.ProcID, o *Order, opt *Options, n *News) {
	if s.inForce() {
		return
	}
	// The status of a command that ended by itself, or that we cannot stop, is kept.
	if err := opt.Kill(command, 0); err != nil {
		if !errors.Is(err, syscall.ESRCH) {
			n.fault("stop", err)
		}
		return
	}
	*s = ownStop{grace: o.Grace, due: now + o.Grace + killAfter}
	n.Stopped, n.Status = true, o.StopStatus
	n.fault("stop", opt.Override(o.StopStatus))
	n.fault("stop", opt.Kill(command, syscall.SIGTERM))
}

// kill sends KILL to all of our command's tree that lives, once that is due, and
// again until the command ends: a tree may fork while it dies.
func (s *ownStop) kill(now time.Duration, command rss.ProcID, opt *Options, n *News) {
	if !s.inForce() || now < s.due {
		return
	}
	s.due = now + killEvery
	if !s.said {
		s.said = true
		n.Lines = append(n.Lines, "still running "+text.Span(s.grace)+" after SIGTERM: SIGKILL now")
	}
	// A reader of its own: the leader watches more than this tree with the other.
	tree := proctree.New(opt.Proc)
	defer tree.Close()
	procs, _, err := tree.Trees([]rss.ProcID{command})
	if err != nil {
		n.fault("stop", err)
		procs = []rss.Proc{{ID: command}}
	}
	for i := range procs {
		if err := opt.Kill(procs[i].ID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			n.fault("stop", err)
		}
	}
}

// StopOthers has the watchers of the other ranks of a step, of all steps where it is empty,
// stop their commands, and returns how many were asked. Each knows the status that its own
// rsswarden is to end with. Where a watcher cannot be asked its command gets TERM from us.
func (p *Place) StopOthers(step string, status int, grace time.Duration) (asked int, n News) {
	for i := range p.Others {
		m := &p.Others[i]
		if step != "" && m.Step != step {
			continue
		}
		err := fmt.Errorf("the watcher of %s has ended", p.Title(m))
		if proctree.Lives(p.opt.Proc, m.Watcher) {
			err = p.post.Command(m.Holder, Order{ID: p.asked.next(), Stop: true, StopStatus: status, Grace: grace})
		}
		if err != nil {
			n.fault("stop", fmt.Errorf("%w: its command gets TERM from here", err))
			err = p.opt.Kill(m.Command, syscall.SIGTERM)
		}
		switch {
		case err == nil:
			asked++
		case !errors.Is(err, syscall.ESRCH):
			n.fault("stop", err)
		}
	}
	return asked, n
}
