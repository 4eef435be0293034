package diagnosis

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// mib is a size that depends on the time in seconds, in MiB.
type mib func(s float64) float64

func still(v float64) mib { return func(float64) float64 { return v } }

// line grows from a time on, by so much a second.
func line(from, begin, rate float64) mib {
	return func(s float64) float64 { return from + max(0, s-begin)*rate }
}

// ramp grows from a time on until another.
func ramp(from, begin, end, rate float64) mib {
	return func(s float64) float64 { return from + max(0, min(s, end)-begin)*rate }
}

// actor is a process of a scene.
type actor struct {
	role              rss.Role
	pid               int
	born, dies        float64 // seconds; dies 0 is never
	anon, file, shmem mib
	pin, pss          mib
}

// scene is a job as a table test writes it.
type scene struct {
	actors []actor
	limit  rss.Bytes
	end    time.Duration
	step   time.Duration // 1 s if 0
	// more adds to a look what else was read.
	more func(l *Look, s *State)
	tell []event.LoaderSaid // at the end
}

// play runs a scene and returns what was ever found and what was at the end.
func (c *scene) play(t *testing.T) (ever map[event.Finding]time.Duration, last []event.Diagnosis, s *State) {
	t.Helper()
	step := c.step
	if step == 0 {
		step = time.Second
	}
	s, ever = New(), map[event.Finding]time.Duration{}
	for at := time.Duration(0); at <= c.end; at += step {
		l := c.look(at)
		if c.more != nil {
			c.more(l, s)
		}
		s.Add(l)
		for _, d := range s.Findings() {
			if _, ok := ever[d.Finding]; !ok {
				ever[d.Finding] = at
			}
		}
	}
	for i := range c.tell {
		s.Tell(c.end, &c.tell[i])
	}
	s.Add(c.look(c.end + step))
	return ever, s.Findings(), s
}

func (c *scene) look(at time.Duration) *Look {
	l := &Look{At: at, Limit: c.limit}
	now := at.Seconds()
	value := func(f mib) rss.Bytes {
		if f == nil {
			return 0
		}
		return rss.Bytes(max(0, f(now)) * float64(rss.MiB))
	}
	for _, a := range c.actors {
		if now < a.born || a.dies > 0 && now >= a.dies {
			continue
		}
		p := rss.Proc{
			ID: rss.ProcID{PID: a.pid, Start: uint64(a.pid)}, Parent: 1, Role: a.role,
			Anon: value(a.anon), File: value(a.file), Shmem: value(a.shmem), Pinned: value(a.pin),
		}
		p.RSS = p.Anon + p.File + p.Shmem
		if a.pss != nil {
			p.PSS = &rss.PSS{PSS: value(a.pss), RSS: p.RSS, At: at}
		}
		l.Procs = append(l.Procs, p)
	}
	return l
}

// job is a trainer and two workers that come 10 s later and do nothing.
func job() []actor {
	a := []actor{{role: rss.RoleTrainer, pid: 10, anon: still(300), file: still(150)}}
	for i := range 2 {
		a = append(a, actor{role: rss.RoleWorker, pid: 11 + i, born: 10, anon: still(300), file: still(40)})
	}
	return a
}

// with changes the actors of a job.
func with(a []actor, change func(a []actor)) []actor {
	change(a)
	return a
}
