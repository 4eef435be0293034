package supervisor

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// asleep is how late the loop may be before that counts as time in which it did
// not run.
const asleep = 2 * time.Second

// clock counts the time in which the watcher could look. `scontrol suspend`
// stops all processes of a step, ours among them, and a node may have no CPU
// for us: then no answer could come in time, and deadlines move along. It is
// monotonic: steps of the wall clock do not touch it, and the time in which the
// node was suspended is not in it at all (CLOCK_MONOTONIC, clock_gettime(2)).
type clock struct {
	started time.Time
	due     time.Duration // since started, when the loop wakes at the latest; 0 outside it
	lost    time.Duration // in which it did not run
	gap     time.Duration // … since that was told last
}

// now is the time since the start in which the watcher ran.
func (c *clock) now() time.Duration {
	since := time.Since(c.started)
	if late := since - c.due; c.due != 0 && late > asleep {
		c.lost += late
		c.gap += late
		c.due = since
	}
	if c.due != 0 {
		c.due = max(c.due, since) // it runs: a long look is no gap
	}
	return since - c.lost
}

// sleep says that the loop goes to wait for so long at most.
func (c *clock) sleep(pause time.Duration) time.Duration {
	c.due = time.Since(c.started) + pause
	return pause
}

// look is the time, for a reading. A reading after a gap does not show how fast
// anything grew.
func (e *engine) look() time.Duration {
	now := e.now()
	if e.gap == 0 {
		return now
	}
	e.see(e.view.Skip())
	e.observe.Slurm.Slept()
	line := fmt.Sprintf("no samples for %s: the watcher was stopped or got no CPU", text.Span(e.gap))
	e.gap = 0
	e.tell.Say(now, "gap", line)
	e.tell.Put(event.NameFault, func(h event.Head) any { return event.Fault{Head: h, Part: "watcher", Error: line} })
	return now
}
