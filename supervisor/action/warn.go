package action

import (
	"cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
)

// warning says that a limit comes near. It begins nothing.
type warning struct {
	*Env
	requeue *requeuing
}

func (a warning) Can(event.Rule, *event.Limit) event.Feasibility { return event.Feasibility{OK: true} }

// Lead is by how much a limit on a number has grown when it is counted again.
func (a warning) Lead(l *event.Limit) rss.Bytes { return a.Counts.Ahead(l) }

// warn writes it, and has Slurm asked ahead, where a requeue may follow.
func (a warning) warn(d *event.Decision, l *event.Limit) {
	a.requeue.prefetchJob(0)
	if d.Limit == event.LimitTime || l != nil {
		a.Tell.Near(a.Now(), d, l, phrase.Coming(d, counts.FullSoon)+cmp.Or(phrase.Leap(d), phrase.Forecast(d)))
		if d.Limit == event.LimitSHM {
			level := ""
			if leaf := a.LeafLimit(); leaf != nil {
				level = leaf.Level
			}
			a.AskSHMUsers(a.View, level)
		}
	}
}
