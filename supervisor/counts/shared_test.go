package counts

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
)

// TestSharedOfThisNode: what this machine has, against what the kernel says
// elsewhere.
func TestSharedOfThisNode(t *testing.T) {
	s := NewShared("/proc", "/sys", os.Getpid())
	defer s.Close()
	limits := s.Read(0, []int{os.Getpid()}, true)
	space, err := shm.Usage("/proc", os.Getpid())
	if err == nil && space.Tmpfs {
		l := scoped(t, limits, event.LimitSHM, event.ScopeNode)
		if l.Limit != space.Size || l.Used > l.Limit || l.Name.Counts() {
			t.Errorf("%+v, statfs %+v", l, space)
		}
	}
	l := scoped(t, limits, event.LimitTasks, event.ScopeNode)
	if l.Used < 10 || l.Limit < 1000 || !l.Name.Counts() {
		t.Errorf("%+v", l)
	}
}

// TestCommit: committed memory is limited only where vm.overcommit_memory is 2.
func TestCommit(t *testing.T) {
	for _, c := range []struct {
		mode string
		ok   bool
	}{{"0\n", false}, {"1\n", false}, {"2\n", true}, {"nonsense", false}, {"", false}} {
		fs := rsstest.Empty(t)
		fs.Write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 3072 kB\nCommitLimit: 2048 kB\nCommitted_AS: 1536 kB\n")
		if c.mode != "" {
			fs.Write("proc/sys/vm/overcommit_memory", c.mode)
		}
		s := NewShared(fs.Proc, fs.Sys, 7)
		got := s.Read(0, nil, false)
		if !c.ok {
			if len(got) != 0 {
				t.Errorf("mode %q: %+v", c.mode, got)
			}
		} else if l := scoped(t, got, event.LimitCommit, event.ScopeNode); l.Used != 1536*rss.KiB || l.Limit != 2*rss.MiB {
			t.Errorf("mode %q: %+v", c.mode, l)
		}
		s.Close()
	}
}

// TestTasksOfAUser: RLIMIT_NPROC is compared with the tasks of one user, which
// are counted where there may be as many; it does not hold for root.
func TestTasksOfAUser(t *testing.T) {
	const limits = "Limit Soft Limit Hard Limit Units\nMax processes 40 40 processes\n"
	for _, c := range []struct {
		what   string
		uid    int
		total  string // of the node
		all    bool
		listed bool
	}{
		{"near", 1000, "1/30", false, true},
		{"far", 1000, "1/12", false, false},
		{"far, all are wanted", 1000, "1/12", true, true},
		{"root", 0, "1/30", true, false},
	} {
		fs := rsstest.Empty(t)
		fs.Put(rsstest.Process{PID: 7, Parent: 1, UID: c.uid, Threads: 20})
		fs.Put(rsstest.Process{PID: 8, Parent: 1, UID: c.uid, Threads: 5})
		fs.Put(rsstest.Process{PID: 9, Parent: 1, UID: 77, Threads: 5})
		fs.Write("proc/7/limits", limits)
		fs.Write("proc/7/uid_map", "0 0 4294967295\n")
		fs.Write("proc/loadavg", "0.1 0.1 0.1 "+c.total+" 99\n")
		fs.Write("proc/sys/kernel/threads-max", "1000\n")
		fs.Write("proc/sys/kernel/pid_max", "4194304\n")
		s := NewShared(fs.Proc, fs.Sys, 7)
		found := false
		for _, l := range s.Read(0, nil, c.all) {
			if l.Scope != event.ScopeUser {
				continue
			}
			found = true
			if l.Used != 25 || l.Limit != 40 {
				t.Errorf("%s: %+v", c.what, l)
			}
		}
		// A text tree is no procfs, so the node's own number bounds nothing.
		if want := c.listed || c.what == "far"; found != want {
			t.Errorf("%s: listed %v", c.what, found)
		}
		s.Close()
	}
}

// TestSharedGoneProcess: a process that has ended takes its limits with it.
func TestSharedGoneProcess(t *testing.T) {
	fs := rsstest.Empty(t)
	s := NewShared(fs.Proc, fs.Sys, 7)
	defer s.Close()
	for now := time.Duration(0); now < time.Hour; now += time.Minute {
		if limits := s.Read(now, []int{7}, true); len(limits) > 0 {
			t.Fatalf("%+v", limits)
		}
	}
}

// silentReader is a reader of /dev/shm whose answers the test gives, if any.
func silentReader() (*sharedReader, *probetest.ByHand[sharedQuestion, sharedAnswer]) {
	h := probetest.New[sharedQuestion, sharedAnswer](new(probe.Set))
	return &sharedReader{Reader: h.Reader, rates: map[event.LimitID]*rss.Rate{}}, h
}

// oneShm is a reading of one /dev/shm.
func oneShm(ask sharedQuestion, used, size rss.Bytes) sharedAnswer {
	return sharedAnswer{ask, []event.Limit{{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, UsedMax: used, Limit: size}}}
}

// TestHangingShm: a file system that does not answer holds nothing up; what was
// read last stands, and tells how old it is.
func TestHangingShm(t *testing.T) {
	r, hand := silentReader()
	now := time.Duration(0)
	if l := r.update(now, []int{1}, false); l != nil || !r.Busy() {
		t.Fatalf("%+v", l)
	}
	ask, _ := hand.Asked()
	hand.Answer(t, oneShm(ask, rss.GiB, 2*rss.GiB))
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
	if ask, _ = hand.Asked(); ask.now != time.Second {
		t.Errorf("the question that hangs is of %v", ask.now)
	}
	hand.Answer(t, oneShm(ask, 0, 2*rss.GiB))
	if l := r.update(now, []int{1}, false); len(l) != 1 || l[0].Used != 0 || l[0].Age != 0 {
		t.Errorf("once it answers: %+v", l)
	}

}

// TestNothingShared: where nothing can be read it is asked no more often.
func TestNothingShared(t *testing.T) {
	r, hand := silentReader()
	asked := 0
	for now := time.Duration(0); now < 10*time.Second; now += 20 * time.Millisecond {
		r.update(now, []int{1}, false)
		if ask, ok := hand.Asked(); ok {
			asked++
			hand.Answer(t, sharedAnswer{ask: ask})
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
				r := &sharedReader{rates: map[event.LimitID]*rss.Rate{}, Reader: probe.New(&set, func(a sharedQuestion) sharedAnswer {
					return sharedAnswer{a, limits}
				})}
				now := 10 * time.Second
				for i, used := range []rss.Bytes{c.from, c.to} {
					limits = []event.Limit{{Name: c.limit, Used: used, Limit: c.size}}
					r.Ask(sharedQuestion{now: now + time.Duration(i)*time.Second}, false)
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

// TestSharers: trainers, each of which may have a /dev/shm of its own, else the command,
// else the first of a job.
func TestSharers(t *testing.T) {
	var procs []rss.Proc
	for i := range 2 * mostSharers {
		p := process(100+i, rss.RoleTrainer, rss.MiB, rss.MiB)
		if i == 0 {
			p.State = 'Z'
		}
		procs = append(procs, p)
	}
	if got := Sharers(procs, 7); len(got) != mostSharers || got[0] != 101 {
		t.Errorf("%v", got)
	}
	if got := Sharers(procs[:1], 7); !slices.Equal(got, []int{7}) {
		t.Errorf("without a trainer %v", got)
	}
	if got := Sharers(procs[:1], 0); !slices.Equal(got, []int{100}) {
		t.Errorf("of a job %v", got)
	}
}

func scoped(t *testing.T, limits []event.Limit, name event.LimitName, scope event.Scope) event.Limit {
	t.Helper()
	for _, l := range limits {
		if l.Name == name && l.Scope == scope {
			return l
		}
	}
	t.Fatalf("no %s of the %s among %+v", name, scope, limits)
	return event.Limit{}
}
