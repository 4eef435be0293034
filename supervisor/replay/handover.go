package replay

import (
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file gives a ladder what it took over from the leader before it. A record
// that does not tell, as older ones, is replayed with a ladder that knows of nothing.

// handed is what was taken over.
type handed struct {
	at, clock time.Duration // when, on the clock of samples and on that of the memory
	own       string        // see [policy.OwnLevel]
	memory    *policy.Memory
}

// handedOver takes in a handover. It belongs to the watcher that began last.
func (p *past) handedOver(v *event.Handover) {
	m, err := policy.ParseMemory(v.Memory)
	if err != nil || v.Ran < 0 || v.Clock < m.At || max(v.Ran, v.Clock) > math.MaxInt64/4 {
		p.unread = true
		return
	}
	if len(p.starts) == 0 { // the start is damaged
		p.starts = []start{{rules: policy.Default()}}
	}
	p.starts[len(p.starts)-1].handed = &handed{v.Ran, v.Clock, v.Own, m}
}

// takeOver gives the ladder, which is new, what the watcher gave it. Of a limit that
// has another size here it is not known what would have been done about it.
func (p *pass) takeOver(h *handed) {
	m := *h.memory
	alone := policy.OwnLevel(h.own)
	m.Rungs = slices.DeleteFunc(slices.Clone(m.Rungs), func(e policy.RungMemory) bool {
		k := e.ID()
		if !p.world.knew(k) {
			return true
		}
		level, ok := alone(&e)
		k.Level = level
		return ok && !p.world.knew(k)
	})
	p.ladder.Restore(&m, h.at, h.clock, alone)
}
