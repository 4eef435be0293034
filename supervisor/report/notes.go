package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// mergePeaks takes the fullest run by each accounting.
func mergePeaks(looks []*look) Peaks {
	var p Peaks
	for i, to := range [accountings]**Peak{byRSS: &p.RSS, byPSS: &p.PSS, byNoShared: &p.NoShared, byCgroup: &p.Cgroup} {
		for _, k := range looks {
			if v := &k.peaks[i]; v.known && (*to == nil || v.v > (*to).Bytes) {
				*to = &Peak{Bytes: v.v, At: k.wall(v.at), Run: k.run.Meta.ID}
			}
		}
	}
	return p
}

// mostNotes bounds the notes of one kind.
const mostNotes = 6

// notes say what is missing or doubtful.
func notes(looks []*look, zone *time.Location) (out []string) {
	add := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, k := range looks {
		r, name := k.run, ""
		if len(looks) > 1 {
			name = runName(k) + ": "
		}
		if r.JournalOnly {
			add("%sonly the journal was found: it has %s, roles in place of processes, and no PSS", name, event.Many(k.samples, "sample"))
		}
		for _, d := range r.Damage[:min(len(r.Damage), mostNotes)] {
			add("%spart of the record could not be read: %s", name, clean(d))
		}
		if n := len(r.Damage) - mostNotes; n > 0 {
			add("%s%s more could not be read", name, event.Many(n, "part"))
		}
		if r.Thinned {
			add("%sold samples were thinned: one stands for 10 s or more, the fullest of them", name)
		}
		if r.Dropped > 0 {
			add("%s%s were taken out, there were too many", name, event.Many(r.Dropped, "event"))
		}
		if k.samples == 0 {
			add("%sno sample is in the record: it was too short, or killed before the first was written", name)
		}
		for _, f := range k.faults[:min(len(k.faults), mostNotes)] {
			add("%sa part of rsswarden had stopped working: %s", name, clean(f))
		}
		if r.Meta.Attached {
			add("%sit was watched from outside, from %s on", name, r.Meta.Start.In(zone).Format(time.DateTime))
		}
	}
	return out
}
