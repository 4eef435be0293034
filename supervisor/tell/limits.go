package tell

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Limits tells of limits as such.
type Limits struct {
	out    *events
	beside map[event.LimitID]bool // limits beside memory that were told
	end    time.Time              // the job's end as an event has it
}

// endMoves is by how much the job's end must move to be told again.
const endMoves = 5 * time.Second

// Tell tells of limits that are new since another view, or that were moved, and returns
// the new ones: Slurm 26.05 can shrink a running job. Swap that the whole node uses moves a
// limit a little all the time, which is not told.
func (t *Limits) Tell(now time.Duration, before, v *view.View) (found []event.Limit) {
	for i := range v.Limits {
		l := &v.Limits[i]
		old := before.Limit(l.ID())
		if l.Name == event.LimitTime {
			t.jobEnd(now, v.Sample.At, l, old != nil)
			continue
		}
		if !l.Name.Memory() {
			if old != nil && old.PID != l.PID || old == nil && t.beside[l.ID()] {
				continue // another process is nearest now, or it is read again
			}
			if t.beside == nil {
				t.beside = map[event.LimitID]bool{}
			}
			t.beside[l.ID()] = true
		}
		if old != nil && max(old.Limit, l.Limit)-min(old.Limit, l.Limit) <= old.Limit/100 {
			continue
		}
		t.out.Put(event.NameLimit, func(h event.Head) any { return event.Found{Head: h, Limit: *l} })
		switch {
		case old != nil:
			t.out.Say(now, "limit", fmt.Sprintf("the limit %s was %s and is %s now %s", l.Name, l.Name.Amount(old.Limit), l.Name.Amount(l.Limit), phrase.Against(l)))
			continue
		case l.Name == event.LimitCgroup && !t.out.Run.WholeJob:
			t.out.Say(now, "limit", fmt.Sprintf("a process of the tree runs in cgroup %s: limit %v, %s used", l.Level, l.Limit, text.Percent(l.Ratio())))
		}
		found = append(found, *l)
	}
	return found
}

// jobEnd tells of the job's end where it is new, or not where it was told to be. at is when
// it was read; known says that the reading before had one.
func (t *Limits) jobEnd(now time.Duration, at time.Time, l *event.Limit, known bool) {
	if l.ETA == nil || *l.ETA <= 0 {
		return // it has come: what is left stays 0 from now on
	}
	end := at.Add(time.Duration(*l.ETA * float64(time.Second)))
	was := t.end
	if known && was.IsZero() {
		t.end = end // by the start event
		return
	}
	if known && end.Sub(was).Abs() <= endMoves {
		return
	}
	t.end = end
	t.out.Put(event.NameLimit, func(h event.Head) any { return event.Found{Head: h, Limit: *l} })
	if known {
		t.out.Say(now, "limit", fmt.Sprintf("the job's end was %s and is %s now (%s)",
			was.Format(time.DateTime), end.Format(time.DateTime), l.LimitSource))
	}
}
