package record

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Leads are the moments at which the watcher of the run's own rank took the lead: one
// as a rule. A watcher that was killed is started again, finds another rank's leading,
// and may lead again when that one has ended.
func (r *Run) Leads() (at []time.Duration) {
	for i := range r.Events {
		if e, ok := r.Events[i].Value.(*event.Rank); ok && e.What == event.RankLeads && (e.Holder == 0 || e.Holder == r.Meta.Holder) {
			at = append(at, r.Events[i].At)
		}
	}
	return at
}

// Part is what the run has from one moment on, until before another.
func (r *Run) Part(from, to time.Duration) *Run {
	b := NewBuilder(r.Meta)
	b.run.Procs, b.run.Limits = r.Procs, r.Limits
	var plain []Sample
	for s := range r.Samples() {
		switch {
		case s.At < from || s.At >= to:
		case len(r.blocks) == 0, len(s.Procs) == 0 && len(s.Roles) > 0: // of a journal
			plain = append(plain, s.clone())
		default:
			b.Sample(s)
		}
	}
	out := b.Run()
	out.plain = plain
	for _, e := range r.Events {
		if e.At >= from && e.At < to {
			out.Events = append(out.Events, e)
		}
	}
	out.Sources, out.JournalOnly, out.Live, out.Damage = r.Sources, r.JournalOnly, r.Live, r.Damage
	out.Thinned, out.Dropped = r.Thinned, r.Dropped
	return out
}
