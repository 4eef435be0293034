package policy

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestTrimDropIsBetweenTrimAndRecycle, in whatever order they were written.
func TestTrimDropIsBetweenTrimAndRecycle(t *testing.T) {
	c := newScript(t, "80%:recycle\n80%:trim+drop\n80%:trim")
	for _, want := range []string{"80%:trim", "80%:trim+drop", "80%:recycle"} {
		c.want(c.at(second, slurm(90)), want)
		c.done(true, event.ReasonDone, 90, 90)
	}
}

// TestTrimDropIsTriedAgain: files that were read again can be dropped again.
func TestTrimDropIsTriedAgain(t *testing.T) {
	c := newScript(t, "80%:trim+drop")
	c.want(c.at(second, slurm(90)), "80%:trim+drop")
	c.done(true, event.ReasonDone, 90, 89.9)
	c.want(c.at(second, slurm(90)))
	c.want(c.at(30*second, slurm(90)), "80%:trim+drop")
}

// TestLowerBoundIsNoReasonNotTo: what is mapped may be little of what the page
// cache has.
func TestLowerBoundIsNoReasonNotTo(t *testing.T) {
	for more, want := range map[bool]string{false: "skip 80%:trim+drop: nothing to give back", true: "80%:trim+drop"} {
		c := newScript(t, "80%:trim+drop")
		c.can = func(Rule, *event.Limit) Help { return Help{OK: true, Gain: rss.MiB, More: more} }
		c.want(c.at(second, slurm(90)), want)
	}
}
