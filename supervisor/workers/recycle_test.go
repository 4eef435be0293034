package workers

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestWhoCannotBeRecycledIsNoCandidate(t *testing.T) {
	for name, change := range map[string]func(*event.Trainer){
		"unknown torch": func(t *event.Trainer) { t.CanRecycle = false },
		"hook off":      func(t *event.Trainer) { t.Off = true },
		"this loader":   func(t *event.Trainer) { t.Loaders[0].CanRecycle = false },
	} {
		f := staffed(11)
		change(&f.trainers[0])
		s := &rss.Sample{Procs: []rss.Proc{proc(1, 9, 9), proc(11, 5, 5)}}
		f.Update(s, nil)
		if list := f.Recyclable(event.AccountingRSS); len(list) != 0 {
			t.Errorf("%s: candidates %+v", name, list)
		}
	}
}

func TestFreshWorker(t *testing.T) {
	trainer := proc(1, 400, 50)
	trainer.PSS = &rss.PSS{PSS: 120, RSS: 450}
	s := &rss.Sample{Procs: []rss.Proc{trainer, proc(11, 410, 30)}}
	f := staffed(11)
	f.Update(s, nil)
	needsTen(f, 11)
	for acc, want := range map[event.Accounting]rss.Bytes{
		event.AccountingRSS:      440, // the trainer's anonymous memory, the libraries and the 10 of its own that it needs
		event.AccountingNoShared: 410,
		event.AccountingCgroup:   410,
		event.AccountingPSS:      130, // shared after fork, as the trainer's own
		event.AccountingVirtual:  4500,
	} {
		if got := f.fresh(f.staff[11], acc); got != want {
			t.Errorf("%s: %d, want %d", acc, got, want)
		}
	}
	pool := &worker{first: proc(11, 30, 10)}
	if got := f.fresh(pool, event.AccountingRSS); got != 40 {
		t.Errorf("a pool's: %d, want what it was first seen with", got)
	}
	f.see(proc(11, 410, 30))
	if got := f.fresh(f.staff[11], event.AccountingRSS); got != 440 {
		t.Errorf("without its trainer: %d, want what it was first seen with", got)
	}
}

// TestTrainerThatGrew: what the trainer has got since the fork says nothing of what
// its workers can give back of a cgroup's charge, and a fresh worker that Slurm sums
// up has it too.
func TestTrainerThatGrew(t *testing.T) {
	f := staffed(11, 12)
	f.see(proc(1, 400, 0), proc(11, 410, 0), proc(12, 420, 0))
	needsTen(f, 11)
	for name, c := range map[string]struct {
		trainer      rss.Bytes
		cgroup, anon rss.Bytes // of a fresh worker
	}{"grew": {700, 410, 710}, "stayed": {400, 410, 410}, "shrank": {300, 310, 310}} {
		s := &rss.Sample{Procs: []rss.Proc{proc(1, c.trainer, 0), proc(11, 600, 0), proc(12, 420, 0)}}
		f.Update(s, nil)
		if got := f.fresh(f.staff[11], event.AccountingCgroup); got != c.cgroup {
			t.Errorf("the trainer %s: a fresh worker counts %d in a cgroup, want %d", name, got, c.cgroup)
		}
		if got := f.fresh(f.staff[11], event.AccountingNoShared); got != c.anon {
			t.Errorf("the trainer %s: a fresh worker counts %d by noshared, want %d", name, got, c.anon)
		}
	}
}

// TestLeakByPSS: what a worker leaked is its own, whatever the trainer's libraries
// count.
func TestLeakByPSS(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, 400, 120), proc(11, 410, 20))
	needsTen(f, 11)
	trainer, worker := proc(1, 400, 120), proc(11, 450, 20)
	trainer.PSS, worker.PSS = &rss.PSS{PSS: 320, RSS: 520}, &rss.PSS{PSS: 255, RSS: 470}
	f.see(trainer, worker)
	if list := f.Recyclable(event.AccountingPSS); len(list) != 1 || list[0].Counted != 40 {
		t.Errorf("%+v, want one that gives back 40", list)
	}
}

// TestSpawnedWorker: one that shares nothing yet has still to become what a fresh
// worker is.
func TestSpawnedWorker(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, 400, 0), proc(11, 5, 0))
	f.see(proc(1, 400, 0), proc(11, 390, 0))
	if got := f.fresh(f.staff[11], event.AccountingCgroup); got != 400 {
		t.Errorf("a fresh worker counts %d, want what the trainer has", got)
	}
}

func TestCandidatesRememberTheLastRecycle(t *testing.T) {
	f := staffed(11, 12)
	f.see(proc(1, 100, 0), proc(11, 300, 0), proc(12, 100, 0))
	f.took[9] = 12
	s := &rss.Sample{Mono: 10 * time.Second, Procs: []rss.Proc{proc(1, 100, 0), proc(11, 350, 0), proc(12, 150, 0)}}
	f.Update(s, nil)
	list := f.Recyclable(event.AccountingNoShared)
	if len(list) != 2 || list[0].ID.PID != 11 || list[1].ID.PID != 12 {
		t.Fatalf("candidates %+v", list)
	}
	if list[0].Counted != 250 || list[0].RecycledAgo != 0 {
		t.Errorf("worker 11: %+v, want 250 above a fresh one, never recycled", list[0])
	}
	if list[1].Counted != 50 || list[1].RecycledAgo != 10*time.Second {
		t.Errorf("worker 12: %+v, want 50 above a fresh one, recycled 10 s ago", list[1])
	}
}

// TestOutgrew: one of which it cannot be learned what it needs is recycled again at once where
// use has grown since, so far and so fast that the limit is near, and not where it grew
// once and stands still.
func TestOutgrew(t *testing.T) {
	f := New(Options{Proc: "/proc"})
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
		f.last.Mono = time.Hour
		l := &event.Limit{Name: event.LimitCgroup, Used: c.used * rss.MiB, Limit: 1000 * rss.MiB}
		e := &worker{since: time.Hour - c.age, usedAtStart: c.stood * rss.MiB, limitAtStart: l.ID(), hurried: hurryTimes}
		if got := f.outgrew(e, l, 0); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		e.limitAtStart.Level = "another"
		if f.outgrew(e, l, 0) {
			t.Errorf("%s: it was for another limit's sake", name)
		}
	}
}

// TestOutgrewPool: of a pool's workers it cannot be learned what they need. Where the
// limit is near, a place is recycled again at once a few times, or a leak would come
// nearer to it with each; then, in a job that stands still, not any more.
func TestOutgrewPool(t *testing.T) {
	f := New(Options{Proc: "/proc"})
	l := &event.Limit{Name: event.LimitCgroup, Used: 900 * rss.MiB, Limit: 1000 * rss.MiB}
	e := &worker{fresh: true, usedAtStart: l.Used, limitAtStart: l.ID()}
	n := 0
	for ; f.outgrew(e, l, time.Second) && n < 100; n++ {
		f.last.Mono += time.Second
		e = &worker{fresh: true, since: f.last.Mono, usedAtStart: l.Used, limitAtStart: l.ID(), hurried: f.hurriedAfter(e, l)}
	}
	if n != hurryTimes {
		t.Errorf("%d times at once, want %d", n, hurryTimes)
	}
	f.last.Mono += time.Second
	grown := *l
	grown.Used += 30 * rss.MiB
	if !f.outgrew(e, &grown, time.Second) {
		t.Error("use has grown, and it waits")
	}
	if n := f.hurriedAfter(e, &grown); n != 0 {
		t.Errorf("%d times at once, and use has grown", n)
	}
	if n := f.hurriedAfter(&worker{hurried: 2, fresh: true, since: f.last.Mono - time.Minute, usedAtStart: l.Used, limitAtStart: l.ID()}, l); n != 2 {
		t.Errorf("%d times at once, want 2: it waited its time", n)
	}
}

// TestOutgrewLoader: of a loader's workers it will be learned what they need, and once it
// is, what one has above that is growth, and the time does not matter.
func TestOutgrewLoader(t *testing.T) {
	l := &event.Limit{Name: event.LimitCgroup, Used: 970 * rss.MiB, Limit: 1000 * rss.MiB}
	f := staffed(11)
	f.see(proc(1, rss.GiB, 0), proc(11, rss.GiB, 0))
	e := f.staff[11]
	e.fresh = true
	if f.outgrew(e, l, time.Second) {
		t.Error("it is not known yet what it needs")
	}
	f.Grown(f.trainers[0].ID, 11, 8, 32*rss.MiB, 64*rss.MiB)
	if !f.outgrew(e, l, time.Second) {
		t.Error("it is known, and it waits")
	}
	if f.outgrew(e, l, time.Hour) {
		t.Error("the limit is far")
	}
}

// TestOwnBack: what a worker had of its own is given back whenever PSS was read, less what
// the one in its place has; of one that was not seen yet it is not known.
func TestOwnBack(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, 400, 0), proc(11, 400, 0))
	f.last.Procs[1].Anon = 500
	acted := f.ActOn(11, &event.Limit{})
	if _, ok := f.OwnBack(&acted); ok {
		t.Error("it was not replaced yet")
	}
	f.Replaced(11, 12)
	f.trainers[0].Loaders[0].Workers = []int{12}
	f.see(proc(1, 420, 0), proc(12, 420, 0))
	f.last.Procs[1].Anon += 30
	if own, ok := f.OwnBack(&acted); !ok || own != 70 {
		t.Errorf("%d, %v; want 70: 100 less the 30 of its replacement", own, ok)
	}
	acted.shared = 0
	if _, ok := f.OwnBack(&acted); ok {
		t.Error("it is not known what a spawned worker shared")
	}
}

// TestGivenBackByPool: a signalled worker of a pool gives back what it had, less what the
// one has that took its place, and that one counts as fresh.
func TestGivenBackByPool(t *testing.T) {
	f := New(Options{Proc: "/proc"})
	f.Pools = *madeUpPools(nil, "")
	see := func(workers ...rss.Proc) {
		s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0)}}
		for _, p := range workers {
			p.Parent = 1
			f.Pools.says(&p, true)
			s.Procs = append(s.Procs, p)
		}
		f.Pools.says(&s.Procs[0], false)
		f.Update(s, nil, s.Procs[0].ID)
	}
	limit := &event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 600}
	see(proc(11, 500, 0), proc(12, 100, 0))
	acted := f.ActOn(11, limit)
	acted.Pool = f.Pools.Workers()
	see(proc(12, 100, 0), proc(13, 40, 0))
	if got := f.GivenBack(&acted, limit); got != 460 {
		t.Errorf("gave back %d, want 460", got)
	}
	if e := f.staff[13]; !e.fresh || e.usedAtStart != 600 || e.limitAtStart != limit.ID() {
		t.Errorf("the replacement %+v does not count as fresh", e)
	}
}

// TestEndedWorkerGaveNothing: its memory went with it, and not by the recycle, whatever
// process has its PID now.
func TestEndedWorkerGaveNothing(t *testing.T) {
	f := New(Options{Proc: "/proc"})
	acted := Acted{Procs: []rss.Proc{proc(11, 500, 0)}}
	other := proc(11, 1, 0)
	other.ID.Start = 2
	for _, now := range [][]rss.Proc{nil, {other}} {
		f.see(now...)
		if got := f.GivenBack(&acted, &event.Limit{Accounting: event.AccountingCgroup}); got != 0 {
			t.Errorf("%d given back", got)
		}
	}
}

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
			f.see(proc(1, rss.GiB, 0), proc(11, rss.GiB, 0))
			e := f.staff[11]
			if !f.learning(e) {
				t.Error("it may report for a minute")
			}
			f.last.Mono = learnFor
			if f.learning(e) {
				t.Error("after that it will not")
			}
			for n := 8; n <= 128; n *= 2 {
				f.Grown(f.trainers[0].ID, 11, n, c.own(n/2)*rss.MiB, c.own(n)*rss.MiB)
			}
			f.last.Mono = 0
			if got, known := f.baselines.need(e.of); got != c.want*rss.MiB || !known || !f.NeedKnown(11) || f.learning(e) {
				t.Errorf("needs %v, want %v; learning: %v", got, c.want*rss.MiB, f.learning(e))
			}
			if got, _ := f.baselines.need(loaderKey{f.trainers[0].ID, 2}); got != c.want*rss.MiB {
				t.Errorf("a loader of which nothing is known needs %v, want as much as another of that trainer", got)
			}
			if got, known := f.baselines.need(loaderKey{}); got != 0 || known {
				t.Errorf("a pool's worker needs %v", got)
			}
		})
	}
}

// TestGrownBeforeTheFirstLook: what workers reported before they were ever seen is learned
// from: a watcher that was started again reads it together with whose they are, and the
// next report may be hours away.
func TestGrownBeforeTheFirstLook(t *testing.T) {
	f := staffed(11)
	for n := 8; n <= 8192; n *= 2 {
		f.Grown(f.trainers[0].ID, 11, n, 20*rss.MiB, 20*rss.MiB)
	}
	f.see(proc(1, 200*rss.MiB, 0), proc(11, 220*rss.MiB, 0))
	if own, known := f.baselines.need(f.staff[11].of); !known || own != 20*rss.MiB {
		t.Errorf("it needs %v, known: %v", own, known)
	}
}

// TestGrownUnknown: a report about no worker, or of no batches, changes nothing.
func TestGrownUnknown(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, rss.GiB, 0), proc(11, rss.GiB, 0))
	for _, c := range []struct {
		trainer, worker, batches int
	}{{1, 12, 8}, {2, 11, 8}, {1, 11, 0}} {
		f.Grown(rss.ProcID{PID: c.trainer, Start: 1}, c.worker, c.batches, 0, rss.GiB)
		if len(f.baselines) > 0 {
			t.Errorf("learned %v from %+v", f.baselines, c)
		}
	}
}

// TestPSSFloor: a trainer's anonymous memory and what its forked workers have got since
// count in full, however the rest is shared; of several trainers, that may share, one counts.
func TestPSSFloor(t *testing.T) {
	f := staffed(11, 12)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 400, 90), proc(11, 400, 20), proc(12, 400, 20)}}
	f.Update(s, nil)
	s.Procs[1].Anon, s.Procs[2].Anon = 450, 390
	if got := f.PSSFloor(); got != 450 {
		t.Errorf("%d, want the trainer's 400 and a worker's 50", got)
	}
	other := &worker{id: rss.ProcID{PID: 21, Start: 1}, trainer: 2, shared: 400}
	f.staff[21] = other
	s.Procs = append(s.Procs, rss.Proc{ID: rss.ProcID{PID: 2, Start: 1}, Anon: 400}, rss.Proc{ID: other.id, Anon: 500})
	if got := f.PSSFloor(); got != 500 {
		t.Errorf("%d, want that of the trainer with the most, 500", got)
	}
	other.shared = 0
	if got := f.PSSFloor(); got != 450 {
		t.Errorf("%d: it is not known what a spawned worker shares", got)
	}
}

func TestRecycleMode(t *testing.T) {
	for _, c := range []struct {
		headroom, fresh rss.Bytes
		want            event.Mode
	}{
		{300 * rss.MiB, 150 * rss.MiB, event.Swap},
		{300*rss.MiB - 1, 150 * rss.MiB, event.Drain},
		{0, 150 * rss.MiB, event.Drain},
		{rss.TiB, 0, event.Drain}, // unknown
	} {
		if got := RecycleMode(c.headroom, c.fresh); got != c.want {
			t.Errorf("headroom %v, fresh %v: %s, want %s", c.headroom, c.fresh, got, c.want)
		}
	}
}

func TestForkPause(t *testing.T) {
	if got := ForkPause(0); got != 15*time.Millisecond {
		t.Errorf("nothing to copy: %v", got)
	}
	if got := ForkPause(2560 * rss.MiB); got != 37500*time.Microsecond {
		t.Errorf("2.5 GiB: %v, want 37.5ms", got)
	}
}

func TestPick(t *testing.T) {
	w := func(mib rss.Bytes, ago time.Duration) Usage { return Usage{Counted: mib * rss.MiB, RecycledAgo: ago} }
	served := func(mib rss.Bytes, at time.Duration) Usage { return Usage{Counted: mib * rss.MiB, RankServed: at} }
	for _, c := range []struct {
		what    string
		workers []Usage
		index   int
		gain    rss.Bytes
		reason  event.Reason
	}{
		{"none", nil, -1, 0, event.ReasonNoWorker},
		{"the largest", []Usage{w(370, 0), w(770, 0), w(570, 0)}, 1, 770 * rss.MiB, ""},
		{"the first of equals", []Usage{w(370, 0), w(370, 0)}, 0, 370 * rss.MiB, ""},
		{"not the one just recycled", []Usage{w(370, 0), w(770, 29*time.Second)}, 0, 370 * rss.MiB, ""},
		{"again after 30 s", []Usage{w(370, 0), w(770, 30*time.Second)}, 1, 770 * rss.MiB, ""},
		{"all just recycled", []Usage{w(370, time.Second)}, -1, 0, event.ReasonRecent},
		{"as small as a fresh one", []Usage{w(0, 0), w(10, time.Second)}, -1, 0, event.ReasonNothing},
		{"the rank served least recently", []Usage{served(700, time.Hour), served(400, 0), served(600, time.Minute)}, 2, 600 * rss.MiB, ""},
		{"below 16 MiB", []Usage{w(15, 0)}, -1, 0, event.ReasonNothing},
		{"16 MiB", []Usage{w(16, 0)}, 0, 16 * rss.MiB, ""},
	} {
		index, gain, reason := Pick(c.workers, 16*rss.MiB)
		if index != c.index || gain != c.gain || reason != c.reason {
			t.Errorf("%s: %d, %v, %q; want %d, %v, %q", c.what, index, gain, reason, c.index, c.gain, c.reason)
		}
	}
}
