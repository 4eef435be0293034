package node

import (
	"math/rand/v2"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

const (
	// afterLeader is how long a new leader waits before it acts, and after it has
	// withdrawn a request: what was begun in that moment shows in what loaders say.
	afterLeader = time.Second
	// inHurry is the same where the limit leaves no more than hurryRoom: what trainers
	// were asked for by file is known at once, and what goes on is waited for in any
	// case.
	inHurry   = 100 * time.Millisecond
	hurryRoom = 10 * time.Second
	// turnSpread is within which time nodes that meet a rung at once take their
	// turns, where the limit leaves them more than turnRoom.
	turnSpread = 2 * time.Second
	turnRoom   = 15 * time.Second
	// turnHolds is how long a node that has waited goes on without another wait.
	turnHolds = 30 * time.Second
)

// Stagger says when a worker may be recycled: one rank of a node after the other, never two
// at once, and not all nodes at the same moment.
type Stagger struct {
	recycled    map[rss.ProcID]time.Duration // when a worker of each rank was last, by holder
	turn        time.Duration                // when it is this node's turn
	withdrawn   int                          // how many recycles of earlier leaders were withdrawn
	withdrawnAt time.Duration                // … the last of them
}

func (s *Stagger) Recycled(rank rss.ProcID, now time.Duration) {
	if s.recycled == nil {
		s.recycled = map[rss.ProcID]time.Duration{}
	}
	s.recycled[rank] = max(now, 1)
}

// LastRecycled is when a worker of a rank was recycled last, 0 for never.
func (s *Stagger) LastRecycled(rank rss.ProcID) time.Duration { return s.recycled[rank] }

// Withdrawn notes how many recycles that earlier leaders asked for were withdrawn by now.
func (s *Stagger) Withdrawn(n int, now time.Duration) {
	if n != s.withdrawn {
		s.withdrawn, s.withdrawnAt = n, now
	}
}

// Turn is when a recycle would begin.
type Turn struct {
	Now       time.Duration
	Left      time.Duration // until the limit is reached, 0 where nothing grows
	Nodes     int           // of the job
	From      time.Duration // since when we lead
	Successor bool          // another watcher led before us
	Pending   bool          // a recycle that it asked for may go on
	Within    time.Duration // … until then at most
}

// Waits says that a recycle has to wait although it could help: a leader before us has begun
// one, or other nodes take their turns.
func (s *Stagger) Waits(t Turn) bool {
	if s.begunBefore(t) {
		return true
	}
	if t.Nodes < 2 || t.Left > 0 && t.Left < turnRoom {
		return false
	}
	if t.Now-s.turn > turnHolds || s.turn == 0 {
		s.turn = t.Now + 1 + rand.N(turnSpread)
	}
	return t.Now < s.turn
}

// begunBefore says that a worker may be replaced now because a leader before us asked for
// it. What its trainer had not accepted is withdrawn when we meet it.
func (s *Stagger) begunBefore(t Turn) bool {
	pause := afterLeader
	if t.Left > 0 && t.Left <= hurryRoom {
		pause = inHurry
	}
	switch {
	case t.Successor && t.Now-t.From < pause, s.withdrawn > 0 && t.Now-s.withdrawnAt < pause:
		return true
	case t.Now-max(t.From, s.withdrawnAt) >= t.Within:
		return false
	}
	return t.Pending
}
