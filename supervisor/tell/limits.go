package tell

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// limits is what was told of limits as such.
type limits struct {
	beside map[event.LimitID]bool // limits beside memory that were told
	end    time.Time              // the job's end as an event has it
}

// endMoves is by how much the job's end must move to be told again.
const endMoves = 5 * time.Second

// Limits tells of limits that are new since another view, or that were moved, and returns
// the new ones: Slurm 26.05 can shrink a running job. Swap that the whole node uses moves a
// limit a little all the time, which is not told.
func (f *Fan) Limits(now time.Duration, before, v *view.View) (found []*event.Limit) {
	for i := range v.Limits {
		l := &v.Limits[i]
		old := before.Limit(l.ID())
		if l.Name == event.LimitTime {
			f.jobEnd(now, v.Sample.At, l, old != nil)
			continue
		}
		if !l.Name.Memory() {
			if old != nil && old.PID != l.PID || old == nil && f.limits.beside[l.ID()] {
				continue // another process is nearest now, or it is read again
			}
			if f.limits.beside == nil {
				f.limits.beside = map[event.LimitID]bool{}
			}
			f.limits.beside[l.ID()] = true
		}
		if old != nil && max(old.Limit, l.Limit)-min(old.Limit, l.Limit) <= old.Limit/100 {
			continue
		}
		f.Put(event.NameLimit, func(h event.Head) any { return event.Found{Head: h, Limit: *l} })
		switch {
		case old != nil:
			f.Say(now, "limit", fmt.Sprintf("the limit %s was %s and is %s now %s", l.Name, l.Name.Amount(old.Limit), l.Name.Amount(l.Limit), phrase.Against(l)))
			continue
		case l.Name == event.LimitCgroup && !f.Run.WholeJob:
			f.Say(now, "limit", fmt.Sprintf("a process of the tree runs in cgroup %s: limit %v, %s used", l.Level, l.Limit, text.Percent(l.Ratio())))
		}
		found = append(found, l)
	}
	return found
}

// jobEnd tells of the job's end where it is new, or not where it was told to be. at is when
// it was read; known says that the reading before had one.
func (f *Fan) jobEnd(now time.Duration, at time.Time, l *event.Limit, known bool) {
	if l.ETA == nil || *l.ETA <= 0 {
		return // it has come: what is left stays 0 from now on
	}
	end := at.Add(time.Duration(*l.ETA * float64(time.Second)))
	was := f.limits.end
	if known && was.IsZero() {
		f.limits.end = end // by the start event
		return
	}
	if known && end.Sub(was).Abs() <= endMoves {
		return
	}
	f.limits.end = end
	f.Put(event.NameLimit, func(h event.Head) any { return event.Found{Head: h, Limit: *l} })
	if known {
		f.Say(now, "limit", fmt.Sprintf("the job's end was %s and is %s now (%s)",
			was.Format(time.DateTime), end.Format(time.DateTime), l.LimitSource))
	}
}
