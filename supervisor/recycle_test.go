package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// TestRecycleAhead: what grows so fast that the kernel would kill before a worker has
// drained is recycled before its rung; what does not is not.
func TestRecycleAhead(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit event.LimitName
		rate  rss.Bytes // a second
		took  float64   // seconds, of the recycle before
		want  rss.Bytes
	}{
		{"nothing grows", event.LimitCgroup, 0, 0, 0},
		{"as fast as the rung allows for", event.LimitCgroup, 100 * rss.MiB, 0, 0},
		{"twice as fast", event.LimitCgroup, 200 * rss.MiB, 0, 100 * rss.MiB},
		{"workers drain fast", event.LimitCgroup, 200 * rss.MiB, 0.2, 0},
		{"and slowly", event.LimitCgroup, 80 * rss.MiB, 0.8, 28 * rss.MiB},
		{"15 points at most", event.LimitCgroup, 900 * rss.MiB, 5, 150 * rss.MiB},
		{"slurmstepd does not look", event.LimitSlurm, 900 * rss.MiB, 0, 0},
		{"nobody kills", event.LimitUser, 900 * rss.MiB, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, nil)
			s.open(s.holder.begin)
			l := &event.Limit{Name: c.limit, Scope: event.ScopeCgroup, Used: 700 * rss.MiB, Limit: 1000 * rss.MiB}
			now := s.now()
			s.rate(l).Add(now, l.Used-c.rate/10)
			s.rate(l).Add(now+100*time.Millisecond, l.Used)
			s.tookRecycle(&event.Decision{Action: event.ActionRecycle}, &event.Outcome{OK: true, Duration: c.took})
			if got := s.growthUntilRecycled(l); got/rss.MiB != c.want/rss.MiB {
				t.Errorf("%v ahead, want %v", got, c.want)
			}
		})
	}
}

// TestRecycleLeak: what workers have leaked for certain is recycled from the rung of the
// warning on, for a limit by which somebody kills; what they may need is not, nor less
// than is worth it.
func TestRecycleLeak(t *testing.T) {
	for _, c := range []struct {
		name      string
		limit     event.LimitName
		used      rss.Bytes // % of 1000 MiB
		half, own rss.Bytes // MiB, that the worker reported
		want      rss.Bytes // % of the limit
	}{
		{"a leak", event.LimitCgroup, 81, 32, 64, 10},
		{"slurmstepd sums it", event.LimitSlurm, 81, 32, 64, 10},
		{"nobody kills", event.LimitUser, 81, 32, 64, 0},
		{"below the warning", event.LimitCgroup, 79, 32, 64, 0},
		{"needed", event.LimitCgroup, 81, 64, 64, 0},
		{"not worth it", event.LimitCgroup, 81, 58, 64, 0},
		{"nothing was told", event.LimitCgroup, 81, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, nil)
			s.open(s.holder.begin)
			s.workers = staffed(11)
			s.last = rss.Sample{Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB, 0)}}
			s.workers.mark(&s.last, nil, nil)
			s.last.Procs[1].Anon += 64 * rss.MiB
			if c.own > 0 {
				said := &loader.Said{Trainer: s.workers.trainers[0].ID, Batches: 8, Half: c.half * rss.MiB, Own: c.own * rss.MiB}
				said.Worker = 11
				s.workers.grown(said)
			}
			l := &event.Limit{Name: c.limit, Accounting: event.AccountingCgroup, Scope: event.ScopeCgroup, Used: c.used * 10 * rss.MiB, Limit: 1000 * rss.MiB}
			if got := s.growthUntilRecycled(l); got != c.want*10*rss.MiB {
				t.Errorf("%v ahead, want %v", got, c.want*10*rss.MiB)
			}
		})
	}
}

// TestTrimAhead: much that workers have mapped is given back from the rung of the warning
// on, for a limit on which slurmstepd kills.
func TestTrimAhead(t *testing.T) {
	rule := func(text string) event.Rule {
		r, err := event.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		name   string
		rule   string
		limit  event.LimitName
		used   rss.Bytes // % of 2000 MiB
		mapped rss.Bytes // MiB, by each of two workers beside its libraries
		want   rss.Bytes // % of the limit
	}{
		{"much", "85%:trim", event.LimitSlurm, 81, 30, 5},
		{"little", "85%:trim", event.LimitSlurm, 81, 15, 0},
		{"below the warning", "85%:trim", event.LimitSlurm, 79, 30, 0},
		{"nobody kills", "85%:trim", event.LimitUser, 81, 30, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := opened(t, withLoader(t))
			s.workers = staffed(11, 12)
			s.last = rss.Sample{Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB, 17*rss.MiB), proc(12, rss.GiB, 17*rss.MiB)}}
			s.workers.mark(&s.last, nil, nil)
			for i := range 2 {
				p := &s.last.Procs[1+i]
				p.File, p.RSS = p.File+c.mapped*rss.MiB, p.RSS+c.mapped*rss.MiB
			}
			l := &event.Limit{Name: c.limit, Accounting: event.AccountingRSS, Used: c.used * 20 * rss.MiB, Limit: 2000 * rss.MiB}
			if got := s.lead(rule(c.rule), l); got != c.want*20*rss.MiB {
				t.Errorf("%v ahead, want %v", got, c.want*20*rss.MiB)
			}
		})
	}
}
