package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestNeeds: what a worker reaches and keeps is needed, what goes on is a leak, and
// each loader's workers have needs of their own.
func TestNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		own      func(age time.Duration) rss.Bytes
		from, to rss.Bytes // the need that is learned
	}{
		"three batches": {func(age time.Duration) rss.Bytes { return rss.Bytes(min(age/time.Second, 3)) * 8 * rss.MiB }, 24 * rss.MiB, 24 * rss.MiB},
		"slow batches":  {func(age time.Duration) rss.Bytes { return rss.Bytes(min(age/(6*time.Second), 3)) * 8 * rss.MiB }, 24 * rss.MiB, 24 * rss.MiB},
		"a leak":        {func(age time.Duration) rss.Bytes { return rss.Bytes(age.Seconds() * float64(5*rss.MiB)) }, 0, rss.MiB},
		"leaks as well": {func(age time.Duration) rss.Bytes { return 20*rss.MiB + rss.Bytes(age.Seconds()*float64(5*rss.MiB)) }, 20 * rss.MiB, 21 * rss.MiB},
		"nothing":       {func(time.Duration) rss.Bytes { return 0 }, 0, 0},
		"gave it back":  {func(age time.Duration) rss.Bytes { return max(0, 60-rss.Bytes(age.Seconds())) * rss.MiB }, 0, 57 * rss.MiB},
	} {
		t.Run(name, func(t *testing.T) {
			f := staffed(11)
			for at := time.Duration(0); at < 2*time.Minute; at += 250 * time.Millisecond {
				f.mark(&rss.Sample{Mono: at, Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB+c.own(at), 0)}}, nil, nil)
			}
			if got := f.own(f.staff[11]); got < c.from || got > c.to {
				t.Errorf("needs %v, want %v to %v", got, c.from, c.to)
			}
			if got := f.own(&worker{crew: crew{f.trainers[0].ID, 2}}); got != f.own(f.staff[11]) {
				t.Errorf("a loader of whom nothing is known needs %v, want as much as another of that trainer", got)
			}
			if got := f.own(&worker{}); got != 0 {
				t.Errorf("a pool's worker needs %v", got)
			}
		})
	}
}

// TestOutgrew: one of which nobody knows what it needs is recycled again at once where
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
		e := &worker{since: time.Hour - c.age, stood: c.stood * rss.MiB, stoodAt: idOf(l), hurried: hurryTimes}
		if got := s.outgrew(e, l); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		e.stoodAt.level = "another"
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
	if n := s.hurriedAfter(&worker{hurried: 2, fresh: true, since: s.last.Mono - time.Minute, stood: l.Used, stoodAt: idOf(l)}, l); n != 2 {
		t.Errorf("%d times at once, want 2: it waited its time", n)
	}
	forked := &worker{fresh: true, warm: warmth{heap: rss.GiB}}
	f.first, f.hurried = true, s.hurriedAfter(&worker{trainer: 1}, l)
	if f.replaces(forked); s.outgrew(forked, l) {
		t.Error("of a loader's worker it will be learned, and it does not wait for that")
	}
}

// TestLeaks: who grew as fast for half a minute as before leaks, and nothing more is to
// be learned of what it needs. Who makes three batches in twenty seconds does not leak.
func TestLeaks(t *testing.T) {
	for name, c := range map[string]struct {
		own  func(age time.Duration) rss.Bytes
		want bool
	}{
		"grows all the time": {func(age time.Duration) rss.Bytes { return rss.Bytes(age.Seconds() * float64(5*rss.MiB)) }, true},
		"by batches":         {func(age time.Duration) rss.Bytes { return rss.Bytes(age/(2*time.Second)) * 10 * rss.MiB }, true},
		"three slow batches": {func(age time.Duration) rss.Bytes { return rss.Bytes(min(age/(6*time.Second), 3)) * 20 * rss.MiB }, false},
		"nothing":            {func(time.Duration) rss.Bytes { return 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := staffed(11)
			leaks := func() bool { n := f.needs[f.staff[11].crew]; return n != nil && n.leaks }
			for at := time.Duration(0); at < 45*time.Second; at += 250 * time.Millisecond {
				f.mark(&rss.Sample{Mono: at, Procs: []rss.Proc{proc(1, rss.GiB, 0), proc(11, rss.GiB+c.own(at), 0)}}, nil, nil)
				if at < 20*time.Second && leaks() {
					t.Fatalf("a leak after %v", at)
				}
			}
			if leaks() != c.want || c.want && f.learning(f.staff[11]) {
				t.Errorf("leaks: %v, want %v; learning: %v", leaks(), c.want, f.learning(f.staff[11]))
			}
		})
	}
}

// TestSettled: two ages that tell the same are enough, and where batches are slow
// neither nothing nor the same twice between two batches is.
func TestSettled(t *testing.T) {
	for name, c := range map[string]struct {
		least []rss.Bytes // MiB, from the first age on
		want  bool
	}{
		"nobody was looked at":  {nil, false},
		"a leak may be in that": {[]rss.Bytes{24}, false},
		"once":                  {[]rss.Bytes{24, 24}, false},
		"twice":                 {[]rss.Bytes{24, 24, 24}, true},
		"about the same":        {[]rss.Bytes{90, 80, 95}, true},
		"more":                  {[]rss.Bytes{24, 24, 24, 60}, false},
		"… and no more":         {[]rss.Bytes{24, 24, 24, 60, 60}, true},
		"no batch yet":          {[]rss.Bytes{0, 0, 0, 0}, false},
		"between two batches":   {[]rss.Bytes{0, 0, 0, 20, 0}, false},
		"looked at to the end":  {make([]rss.Bytes, ages), true},
	} {
		n := &needs{}
		for i, mib := range c.least {
			n.add(i, mib*rss.MiB)
		}
		if got := n.settled(); got != c.want {
			t.Errorf("%s: settled %v, want %v", name, got, c.want)
		}
	}
}
