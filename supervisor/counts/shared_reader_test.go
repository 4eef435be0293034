package supervisor

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// silentReader is a reader of /dev/shm whose answers the test gives, if any.
func silentReader() (*sharedReader, *byHand[sharedAsk, sharedRead]) {
	h := newByHand[sharedAsk, sharedRead](new(probe.Set))
	return &sharedReader{Reader: h.Reader, rates: map[event.LimitID]*policy.Rate{}}, h
}

// oneShm is a reading of one /dev/shm.
func oneShm(ask sharedAsk, used, size rss.Bytes) sharedRead {
	return sharedRead{ask, []event.Limit{{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, UsedMax: used, Limit: size}}}
}

// TestHangingShm: a file system that does not answer holds nothing up; what was
// read last stands, and tells how old it is.
func TestHangingShm(t *testing.T) {
	r, hand := silentReader()
	now := time.Duration(0)
	if l := r.update(now, []int{1}, false); l != nil || !r.Busy() {
		t.Fatalf("%+v", l)
	}
	ask, _ := hand.asked()
	hand.answer(t, oneShm(ask, rss.GiB, 2*rss.GiB))
	for range 600 {
		now += time.Second
		l := r.update(now, []int{1}, false)
		if len(l) != 1 || l[0].Used != rss.GiB {
			t.Fatalf("after %v: %+v", now, l)
		}
		if want := now.Seconds(); now > 10*time.Second && l[0].Age != want || now < 5*time.Second && l[0].Age != 0 {
			t.Fatalf("after %v its age is %v", now, l[0].Age)
		}
		if _, ok := r.next(now); ok {
			t.Fatal("the loop is to wake for a reader that hangs")
		}
	}
	if ask, _ = hand.asked(); ask.now != time.Second {
		t.Errorf("the question that hangs is of %v", ask.now)
	}
	hand.answer(t, oneShm(ask, 0, 2*rss.GiB))
	if l := r.update(now, []int{1}, false); len(l) != 1 || l[0].Used != 0 || l[0].Age != 0 {
		t.Errorf("once it answers: %+v", l)
	}

	var none *sharedReader
	none.ask(0)
	if _, ok := none.next(0); ok || none.update(0, []int{1}, false) != nil {
		t.Error("without a reader there is something to do")
	}
}

// TestNothingShared: where nothing can be read it is asked no more often.
func TestNothingShared(t *testing.T) {
	r, hand := silentReader()
	asked := 0
	for now := time.Duration(0); now < 10*time.Second; now += 20 * time.Millisecond {
		r.update(now, []int{1}, false)
		if ask, ok := hand.asked(); ok {
			asked++
			hand.answer(t, sharedRead{ask: ask})
		}
	}
	if asked < 9 || asked > 12 {
		t.Errorf("asked %d times in 10 s", asked)
	}
}

// TestPaceOfShm is how soon a /dev/shm is looked at again.
func TestPaceOfShm(t *testing.T) {
	const large = 64 * rss.GiB
	for _, c := range []struct {
		name     string
		limit    event.LimitName
		from, to rss.Bytes // within the last second
		size     rss.Bytes
		least    time.Duration
		most     time.Duration
		wakes    bool
	}{
		{"large and still", event.LimitSHM, rss.GiB, rss.GiB, large, sharedRest, sharedRest, false},
		{"large and slow", event.LimitSHM, rss.GiB, rss.GiB + 10*rss.MiB, large, sharedRest, sharedRest, false},
		{"small", event.LimitSHM, 0, 0, 64 * rss.MiB, sharedRest, sharedRest, false},
		{"small with a loader", event.LimitSHM, 0, 0, 64 * rss.MiB, sharedSmall, sharedSmall, true},
		{"small and half full", event.LimitSHM, 32 * rss.MiB, 32 * rss.MiB, 64 * rss.MiB, sharedSmall, sharedSmall, true},
		{"small with something in it", event.LimitSHM, 8 * rss.MiB, 8 * rss.MiB, 64 * rss.MiB, sharedRest, sharedRest, false},
		{"not small with a loader", event.LimitSHM, 0, 0, smallSHM, sharedRest, sharedRest, false},
		{"full within 2 s", event.LimitSHM, 57 * rss.GiB, 60 * rss.GiB, large, 100 * time.Millisecond, 500 * time.Millisecond, true},
		{"80 % within half a second", event.LimitSHM, 42 * rss.GiB, 50 * rss.GiB, large, sharedLeast, 100 * time.Millisecond, true},
		{"full", event.LimitSHM, 60 * rss.GiB, large, large, sharedLeast, sharedLeast, true},
		{"full and still", event.LimitSHM, large, large, large, sharedRest, sharedRest, false},
		{"few tasks of few", event.LimitTasks, 10, 10, 1000, sharedRest, sharedRest, false},
		{"tasks that come fast", event.LimitTasks, 100, 700, 1000, sharedLeast, 100 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var set probe.Set
				var limits []event.Limit
				r := &sharedReader{rates: map[event.LimitID]*policy.Rate{}, Reader: probe.New(&set, func(a sharedAsk) sharedRead {
					return sharedRead{a, limits}
				})}
				now := 10 * time.Second
				for i, used := range []rss.Bytes{c.from, c.to} {
					limits = []event.Limit{{Name: c.limit, Used: used, Limit: c.size}}
					r.Ask(sharedAsk{now: now + time.Duration(i)*time.Second}, false)
					if !r.Wait(time.Minute) || !r.taken() {
						t.Fatal("no reading came")
					}
				}
				now += time.Second
				r.asked, r.begun, r.pids, r.loads = now, true, []int{1}, strings.HasSuffix(c.name, "loader")
				pause, wakes := r.next(now)
				if pause < c.least || pause > c.most || wakes != c.wakes {
					t.Errorf("%v, wakes %v; want %v to %v, %v", pause, wakes, c.least, c.most, c.wakes)
				}
				r.ask(now + pause)
				synctest.Wait()
				if !r.Busy() || (len(set.C()) > 0) != c.wakes {
					t.Errorf("busy %v, the loop is woken for it: %v", r.Busy(), len(set.C()) > 0)
				}
			})
		})
	}
}

// TestSharers are the trainers, each of which may have a /dev/shm of its own.
func TestSharers(t *testing.T) {
	s := opened(t, nil)
	if got := s.sharers(); len(got) != 1 || got[0] != theCommand {
		t.Errorf("without a trainer %v", got)
	}
	s.last.Procs = nil
	for i := range 2 * mostSharers {
		p := process(worker1+i, rss.RoleTrainer, rss.MiB, rss.MiB)
		if i == 0 {
			p.State = 'Z'
		}
		s.last.Procs = append(s.last.Procs, p)
	}
	if got := s.sharers(); len(got) != mostSharers || got[0] != worker1+1 {
		t.Errorf("%v", got)
	}
}

// TestReached: the loop takes a full look for what stands at a rung, or is new, and
// for nothing else.
func TestReached(t *testing.T) {
	s := opened(t, nil)
	at := func(used rss.Bytes) []event.Limit {
		return []event.Limit{{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, Limit: 1000}}
	}
	s.readings = append(s.readings, at(100)...)
	for _, c := range []struct {
		used rss.Bytes
		want bool
	}{{100, false}, {799, false}, {800, true}, {1000, true}} {
		if got := s.reached(at(c.used)); got != c.want {
			t.Errorf("at %d: %v", c.used, got)
		}
	}
	s.readings = append(s.readings[:len(s.readings)-1], at(960)...)
	if s.reached(at(990)) || !s.reached(at(1000)) {
		t.Error("above the last rung the next is the limit")
	}
	if !s.reached([]event.Limit{{Name: event.LimitTasks, Used: 1, Limit: 1000}}) {
		t.Error("what is new asks for a look")
	}
}

// TestSide words limits that are none on summed memory.
func TestSide(t *testing.T) {
	for _, c := range []struct {
		l    event.Limit
		want string
	}{
		{event.Limit{Name: event.LimitMaps, Used: 53079, Limit: 65530, PID: 4711, Role: rss.RoleTrainer, Enforcer: "kernel, by ENOMEM of mmap", LimitSource: "vm.max_map_count"},
			"memory mappings 81 % of 65,530, in process 4711 (trainer) (kernel, by ENOMEM of mmap; limit from vm.max_map_count)"},
		{event.Limit{Name: event.LimitFDs, Used: 1024, Limit: 1024, PID: 4711, Role: rss.RoleOther, Enforcer: "kernel, by EMFILE of open", LimitSource: "soft RLIMIT_NOFILE of /proc/PID/limits", Age: 12.4},
			"descriptors 100 % of 1,024, in process 4711 (kernel, by EMFILE of open; limit from soft RLIMIT_NOFILE of /proc/PID/limits; counted 12 s ago)"},
		{event.Limit{Name: event.LimitSHM, Used: 60 * rss.MiB, Limit: 64 * rss.MiB, Enforcer: "kernel, by SIGBUS", LimitSource: "size of that tmpfs", Age: 61},
			"/dev/shm 94 % of 64.0 MiB (kernel, by SIGBUS; limit from size of that tmpfs; read 61 s ago)"},
		{event.Limit{Name: event.LimitTasks, Used: 90, Limit: 100, Enforcer: "kernel, by EAGAIN of fork", LimitSource: "/sys/fs/cgroup/pids/job/step/pids.max", Age: 0.5},
			"tasks 90 % of 100 (kernel, by EAGAIN of fork; limit from step/pids.max)"},
	} {
		if got := phrase.Side(&c.l); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
