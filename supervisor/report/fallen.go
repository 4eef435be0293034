package report

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// rankSums takes in what each rank has in a sample.
func (k *look) rankSums(s *record.Sample) {
	k.ranks.begin()
	for i := range s.Procs {
		if u := &s.Procs[i]; u.Proc >= 0 && u.Proc < len(k.ranks.of) {
			k.ranks.add(u, &k.run.Procs[u.Proc])
		}
	}
	k.ranks.end(s.At)
}

// fallen is a rank that failed while the record of its node went on, and what
// there was to know then.
type fallen struct {
	*lookRank
	limits    []lookLimit
	maps, fds lookCount
	deeds     deeds
}

// rankEnded keeps what the limits stood at when the first rank failed whose end is
// not the record's: minutes later they say nothing of it any more.
func (k *look) rankEnded(at time.Duration, e *event.Rank) {
	r := k.ranks.find(keyOf(e))
	if r == nil || r.own || !e.Failed() || k.ranks.fallen != nil {
		return
	}
	f := &fallen{lookRank: r, limits: slices.Clone(k.limits), maps: k.maps, fds: k.fds, deeds: k.deeds}
	for i := range f.limits {
		f.limits[i].spark = spark{} // goes on to be written
	}
	k.ranks.fallen = f
}

// look is the run as it was when the rank failed.
func (f *fallen) look(k *look) *look {
	c, run := *k, *k.run
	run.Live = false // the rank's end is its own
	c.run, c.limits, c.maps, c.fds, c.deeds = &run, f.limits, f.maps, f.fds, f.deeds
	c.end, c.exitAt = f.ended, f.ended
	c.exit = &event.Exit{By: "command", Code: f.code, Signal: f.signal}
	if k.exit != nil {
		c.exit.Kernel, c.exit.Binding = k.exit.Kernel, k.exit.Binding
	}
	c.signals = slices.DeleteFunc(slices.Clone(k.signals), func(s lookSignal) bool { return s.at > f.ended })
	return &c
}
