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
	first  event.LimitID          // the limit that the first lines introduced
	known  map[event.LimitID]bool // the limits that a line has introduced
	late   map[event.LimitID]bool // limits that Slurm enforces, as scontrol said after the first lines
}

// room introduces the limit that leaves the least room.
func (t *Limits) room(v *view.View) {
	line, of := phrase.Room(v.Limits)
	t.out.Info(line)
	t.first = of
	t.introduced(of)
}

// named says that a line about a limit has to name it. A limit on memory that no line has
// introduced is introduced first.
func (t *Limits) named(now time.Duration, l *event.Limit) bool {
	of := l.ID()
	if of == t.first {
		return false
	}
	if l.Name.Memory() && !t.known[of] {
		t.introduced(of)
		t.out.SayOf(now, Kind{Name: "limit", Thing: "limit line"}, phrase.Introduce(l))
	}
	return true
}

func (t *Limits) introduced(of event.LimitID) {
	if t.known == nil {
		t.known = map[event.LimitID]bool{}
	}
	t.known[of] = true
}

// about writes a line about a limit, or about the job's end.
func (t *Limits) about(now time.Duration, d *event.Decision, l *event.Limit, words func(*event.Limit, bool) string, more, moreOfEnd string) {
	of := Kind{Name: d.Rule + "@" + string(d.Limit), Thing: d.Action.Row().Thing}
	if d.Limit == event.LimitTime && d.ETA != nil {
		t.out.SayOf(now, of, phrase.JobEnds(*d.ETA)+moreOfEnd)
		return
	}
	of.Share = l.Ratio()
	t.out.SayOf(now, of, words(l, t.named(now, l))+more)
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
			t.out.Say(now, "limit", fmt.Sprintf("limit %s is now %s, was %s", l.Name, phrase.Size(l), phrase.Size(old)))
			continue
		case l.Name == event.LimitCgroup && !t.out.Run.WholeJob:
			t.introduced(l.ID())
			t.out.Say(now, "limit", fmt.Sprintf("limit %s, %s used: cgroup %s of a process", phrase.Size(l), text.Percent(l.Ratio()), l.Level))
		}
		if l.Name == event.LimitSlurm && l.Level == "" {
			if t.late == nil {
				t.late = map[event.LimitID]bool{}
			}
			t.late[l.ID()] = true
		}
		found = append(found, *l)
	}
	t.introduceLate(v)
	return found
}

// introduceLate introduces a limit that was not known at the first lines as they would have,
// once it leaves the least room: there may never be a decision about it.
func (t *Limits) introduceLate(v *view.View) {
	if line, of := phrase.Room(v.Limits); t.late[of] && !t.known[of] {
		t.introduced(of)
		t.out.Info(line)
	}
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
		t.out.Say(now, "limit", fmt.Sprintf("the job ends %s now, was %s", end.Format(time.DateTime), was.Format(time.DateTime)))
	}
}
