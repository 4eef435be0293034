package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// TestNeeds: what a worker reaches and keeps is needed, what comes with each batch is a
// leak, and each loader's workers have needs of their own.
func TestNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		own  func(batches int) rss.Bytes // MiB
		want rss.Bytes                   // the need that is learned, MiB
	}{
		"three batches": {func(n int) rss.Bytes { return rss.Bytes(min(n, 3)) * 8 }, 24},
		"a leak":        {func(n int) rss.Bytes { return rss.Bytes(n) * 5 }, 0},
		"leaks as well": {func(n int) rss.Bytes { return 20 + rss.Bytes(n)*5 }, 20},
		"a cache":       {func(n int) rss.Bytes { return rss.Bytes(min(n, 50)) }, 50},
		"nothing":       {func(int) rss.Bytes { return 0 }, 0},
		"gave it back":  {func(n int) rss.Bytes { return rss.Bytes(100 - min(n, 60)) }, 92},
	} {
		t.Run(name, func(t *testing.T) {
			f := staffed(11)
			f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB, 0)}}, nil, nil)
			e := f.staff[11]
			if !f.learning(e, 0) || f.learning(e, learnFor) {
				t.Error("it may report for a minute, and after that it will not")
			}
			for n := 8; n <= 128; n *= 2 {
				s := &loader.Said{Trainer: f.trainers[0].ID, Batches: n, Half: c.own(n/2) * rss.MiB, Own: c.own(n) * rss.MiB}
				s.Worker = 11
				f.grown(s)
			}
			if got := f.own(e); got != c.want*rss.MiB || f.learning(e, 0) {
				t.Errorf("needs %v, want %v; learning: %v", got, c.want*rss.MiB, f.learning(e, 0))
			}
			if got := f.own(&worker{crew: crew{f.trainers[0].ID, 2}}); got != f.own(e) {
				t.Errorf("a loader of whom nothing is known needs %v, want as much as another of that trainer", got)
			}
			if got := f.own(&worker{}); got != 0 {
				t.Errorf("a pool's worker needs %v", got)
			}
		})
	}
}

// TestGrownOfNobody: a report about what is no worker, or of no batches, tells nothing.
func TestGrownOfNobody(t *testing.T) {
	f := staffed(11)
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB, 0)}}, nil, nil)
	for _, s := range []loader.Said{
		{Trainer: f.trainers[0].ID, Batches: 8, Own: rss.GiB, LoaderSaid: event.LoaderSaid{Worker: 12}},
		{Trainer: rss.ProcID{PID: 2}, Batches: 8, Own: rss.GiB, LoaderSaid: event.LoaderSaid{Worker: 11}},
		{Trainer: f.trainers[0].ID, Own: rss.GiB, LoaderSaid: event.LoaderSaid{Worker: 11}},
	} {
		if f.grown(&s); len(f.needs) > 0 {
			t.Errorf("learned %v from %+v", f.needs, s)
		}
	}
}

// TestOutgrew: one of which it cannot be learned what it needs is recycled again at once where
// use has grown since, so far and so fast that the limit is near, and not where it grew
// once and stands still.
func TestOutgrew(t *testing.T) {
	s := opened(t, nil)
	for name, c := range map[string]struct {
		stood, used rss.Bytes // of 1000 MiB
		age         time.Duration
		want        bool
	}{
		"stands still":        {930, 930, time.Second, false},
		"grew a little":       {930, 935, time.Second, false},
		"grows":               {920, 940, 5 * time.Second, true},
		"grows slowly":        {920, 940, 25 * time.Second, false},
		"grew, little left":   {920, 970, 55 * time.Second, true},
		"shrank":              {950, 930, time.Second, false},
		"at the limit":        {900, 1000, time.Minute, true},
		"at the limit, still": {1000, 1000, time.Minute, false},
	} {
		s.last.Mono = time.Hour
		l := &event.Limit{Name: event.LimitCgroup, Used: c.used * rss.MiB, Limit: 1000 * rss.MiB}
		e := &worker{since: time.Hour - c.age, stood: c.stood * rss.MiB, stoodAt: l.ID(), hurried: hurryTimes}
		if got := s.outgrew(e, l); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		e.stoodAt.Level = "another"
		if s.outgrew(e, l) {
			t.Errorf("%s: it was for another limit's sake", name)
		}
	}
}

// TestOutgrewPool: of a pool's workers it cannot be learned what they need. Where the
// limit is near, a place is recycled again at once a few times, or a leak would come
// nearer to it with each; then, in a job that stands still, not any more.
func TestOutgrewPool(t *testing.T) {
	s := opened(t, nil)
	eta := 1.0
	l := &event.Limit{Name: event.LimitCgroup, Used: 900 * rss.MiB, Limit: 1000 * rss.MiB, ETA: &eta}
	f := &inFlight{before: *l}
	e := &worker{fresh: true}
	f.replaces(e)
	n := 0
	for ; s.outgrew(e, l) && n < 100; n++ {
		s.last.Mono += time.Second
		f.hurried = s.hurriedAfter(e, l)
		e = &worker{fresh: true, since: s.last.Mono}
		f.replaces(e)
	}
	if n != hurryTimes {
		t.Errorf("%d times at once, want %d", n, hurryTimes)
	}
	s.last.Mono += time.Second
	grown := *l
	grown.Used += 30 * rss.MiB
	if !s.outgrew(e, &grown) {
		t.Error("use has grown, and it waits")
	}
	if n := s.hurriedAfter(e, &grown); n != 0 {
		t.Errorf("%d times at once, and use has grown", n)
	}
	if n := s.hurriedAfter(&worker{hurried: 2, fresh: true, since: s.last.Mono - time.Minute, stood: l.Used, stoodAt: l.ID()}, l); n != 2 {
		t.Errorf("%d times at once, want 2: it waited its time", n)
	}
}

// TestOutgrewLoader: of a loader's workers it will be learned what they need, and once it
// is, what one has above that is growth, and the time does not matter.
func TestOutgrewLoader(t *testing.T) {
	s := opened(t, nil)
	eta := 1.0
	l := &event.Limit{Name: event.LimitCgroup, Used: 970 * rss.MiB, Limit: 1000 * rss.MiB, ETA: &eta}
	s.workers = staffed(11)
	s.last = rss.Sample{Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB, 0)}}
	s.workers.mark(&s.last, nil, nil)
	e := s.workers.staff[11]
	e.fresh = true
	if s.outgrew(e, l) {
		t.Error("nobody knows yet what it needs")
	}
	s.workers.grown(&loader.Said{Trainer: s.workers.trainers[0].ID, Batches: 8, Own: 64 * rss.MiB, Half: 32 * rss.MiB, LoaderSaid: event.LoaderSaid{Worker: 11}})
	if !s.outgrew(e, l) {
		t.Error("it is known, and it waits")
	}
	eta = 3600
	if s.outgrew(e, l) {
		t.Error("the limit is far")
	}
}
