package counts

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// whenCounted plays looks against a schedule, one a second or as often as step
// says, in which each process has as many as have says and each count takes
// cost. It returns when each process was counted, by kind.
func whenCounted(procs func(now time.Duration) []rss.Proc, have func(id rss.ProcID, kind Kind, now time.Duration) int,
	cost func(kind Kind, n int) time.Duration, step, end time.Duration) map[string][]time.Duration {
	var c schedule
	at := map[string][]time.Duration{}
	for now := time.Duration(0); now <= end; now += step {
		c.update(now, procs(now))
		for _, ask := range c.due(now) {
			key := fmt.Sprint(limitName(ask.kind), " ", ask.id.PID)
			at[key] = append(at[key], now)
			n := have(ask.id, ask.kind, now)
			limit := uint64(65530)
			if ask.kind == kindFDs {
				limit = 1024
			}
			got := countAnswer{ask: ask, limit: limit, count: proctree.Count{N: n, Cost: cost(ask.kind, n)}}
			if n < 0 {
				got.err = errors.New("cannot count")
			}
			c.done(got)
		}
	}
	return at
}

// asMeasured is 150 ns a mapping and 4 us for descriptors.
func asMeasured(kind Kind, n int) time.Duration {
	if kind == kindMaps {
		return time.Duration(n) * 150
	}
	return 4 * time.Microsecond
}

func process(pid int, role rss.Role, size, virtual rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, Role: role, State: 'S', RSS: size, Virtual: virtual}
}

func TestWhenCountsAreTaken(t *testing.T) {
	const end = 5 * time.Minute
	for _, c := range []struct {
		what      string
		role      rss.Role
		virtual   func(now time.Duration) rss.Bytes
		have      func(kind Kind, now time.Duration) int
		step      time.Duration
		maps, fds [2]int // how often, at least and at most
	}{
		{"a trainer that does not change", rss.RoleTrainer, nil, func(Kind, time.Duration) int { return 300 }, time.Second, [2]int{3, 3}, [2]int{295, 301}},
		{"one that maps and unmaps a little", rss.RoleTrainer, func(now time.Duration) rss.Bytes { return rss.Bytes(now/time.Second) % 7 * rss.MiB }, func(Kind, time.Duration) int { return 300 }, time.Second, [2]int{10, 12}, [2]int{295, 301}},
		{"one that stays at 15 % of the mappings", rss.RoleTrainer, nil, func(k Kind, _ time.Duration) int {
			if k == kindFDs {
				return 30
			}
			return 10000
		}, time.Second, [2]int{10, 11}, [2]int{295, 301}},
		{"what has no role", rss.RoleOther, nil, func(Kind, time.Duration) int { return 300 }, time.Second, [2]int{3, 3}, [2]int{30, 31}},
		{"one that maps 100 a second", rss.RoleWorker, func(now time.Duration) rss.Bytes { return 100 * 4 * rss.KiB * rss.Bytes(now.Seconds()) }, func(_ Kind, now time.Duration) int { return 1000 + int(100*now.Seconds()) }, time.Second, [2]int{10, 13}, [2]int{295, 301}},
		{"one that maps 1,000 a second", rss.RoleWorker, func(now time.Duration) rss.Bytes { return 1000 * 4 * rss.KiB * rss.Bytes(now.Seconds()) }, func(k Kind, now time.Duration) int {
			if k == kindFDs {
				return 30
			}
			return 1000 + int(min(1000*now.Seconds(), 50000))
		}, time.Second, [2]int{40, 300}, [2]int{295, 301}},
		{"VmSize that grows without mappings", rss.RoleWorker, func(now time.Duration) rss.Bytes { return rss.GiB * rss.Bytes(now.Seconds()) }, func(Kind, time.Duration) int { return 300 }, time.Second, [2]int{295, 301}, [2]int{295, 301}},
		{"at 92 % of the mappings", rss.RoleTrainer, nil, func(k Kind, _ time.Duration) int {
			if k == kindFDs {
				return 30
			}
			return 60000
		}, 100 * time.Millisecond, [2]int{300, 340}, [2]int{295, 301}},
		{"at 90 % of the descriptors", rss.RoleTrainer, nil, func(Kind, time.Duration) int { return 925 }, 50 * time.Millisecond, [2]int{3, 3}, [2]int{295, 320}},
		{"one that cannot be read", rss.RoleTrainer, nil, func(Kind, time.Duration) int { return -1 }, time.Second, [2]int{5, 6}, [2]int{5, 6}},
	} {
		at := whenCounted(func(now time.Duration) []rss.Proc {
			v := rss.GiB
			if c.virtual != nil {
				v += c.virtual(now)
			}
			return []rss.Proc{process(7, c.role, rss.GiB, v)}
		}, func(_ rss.ProcID, k Kind, now time.Duration) int { return c.have(k, now) }, asMeasured, c.step, end)
		for key, want := range map[string][2]int{"maps 7": c.maps, "fds 7": c.fds} {
			if n := len(at[key]); n < want[0] || n > want[1] {
				t.Errorf("%s: %s counted %d times in %v, want %v", c.what, key, n, end, want)
			}
			if len(at[key]) > 0 && at[key][0] != 0 {
				t.Errorf("%s: %s counted first after %v", c.what, key, at[key][0])
			}
		}
	}
}

// TestGrowthIsSeenInTime: what grows to its limit is counted within two
// seconds of that.
func TestGrowthIsSeenInTime(t *testing.T) {
	for _, perSecond := range []float64{150, 1000, 5000} {
		full := time.Duration(60000 / perSecond * float64(time.Second))
		have := func(_ rss.ProcID, k Kind, now time.Duration) int {
			if k == kindFDs {
				return 10
			}
			return 5000 + int(perSecond*now.Seconds())
		}
		procs := func(now time.Duration) []rss.Proc {
			return []rss.Proc{process(7, rss.RoleTrainer, rss.GiB, rss.GiB+rss.Bytes(perSecond*now.Seconds())*leastMap)}
		}
		all := whenCounted(procs, have, asMeasured, time.Second, full)["maps 7"]
		if last := all[len(all)-1]; full-last > 2*time.Second {
			t.Errorf("%v a second: counted last %v before the limit", perSecond, full-last)
		}
	}
}

// TestRushIsCountedBeforeTheLimit: thousands of mappings a second, as PyTorch makes
// where it sends tensors to workers by spawn, are counted above the rung of 80 %
// before there are none left; with the hook's word, and without.
func TestRushIsCountedBeforeTheLimit(t *testing.T) {
	for _, hurried := range []bool{false, true} {
		for _, perSecond := range []float64{2000, 10000, 13000, 20000} {
			for late := time.Duration(0); late < time.Second; late += 130 * time.Millisecond {
				var c schedule
				had := func(now time.Duration) float64 { return 1700 + perSecond*max(now-40*time.Second+late, 0).Seconds() }
				var at []int
				next, asked, took := time.Duration(0), 0, time.Duration(0)
				for now := time.Duration(0); had(now) < 65530; now += 10 * time.Millisecond {
					if now%time.Second == 0 {
						if hurried && c.hurries == nil && had(now) > 1700 {
							c.hurries = map[int]time.Duration{7: now + 30*time.Second}
						}
						c.update(now, []rss.Proc{process(7, rss.RoleTrainer, rss.GiB, rss.GiB+rss.Bytes(had(now))*leastMap)})
					} else if next == 0 || now < next {
						continue
					}
					for _, ask := range c.due(now) {
						n := int(had(now))
						if ask.kind == kindFDs {
							n = 14
						} else {
							at = append(at, n)
							asked++
						}
						cost := asMeasured(ask.kind, n)
						took += cost
						c.done(countAnswer{ask: ask, limit: 65530, count: proctree.Count{N: n, Cost: cost}})
					}
					next = 0
					if pause, ok := c.hot(now); ok {
						next = now + pause
					}
				}
				if last := at[len(at)-1]; float64(last) < event.NearShare*65530 {
					t.Errorf("%v a second, hook %v, looks %v late: counted last at %d: %v", perSecond, hurried, late, last, at)
				}
				if took > 600*time.Millisecond {
					t.Errorf("%v a second: counted %d times in %v of processor time", perSecond, asked, took)
				}
			}
		}
	}
}

// TestCountsKeepToTheirShare of the time, whatever there is.
func TestCountsKeepToTheirShare(t *testing.T) {
	for _, c := range []struct {
		what       string
		procs      int
		maps, fds  int
		cost       func(Kind, int) time.Duration
		mapsShare  float64
		fdsShare   float64
		everyCount bool // each process is counted at least once in the time
	}{
		{"64 workers", 64, 3000, 40, asMeasured, 0.001, 0.0001, true},
		{"1,000 workers", 1000, 3000, 40, asMeasured, 0.001, 0.0001, false},
		{"8 with many mappings", 8, 30000, 40, asMeasured, 0.001, 0.0001, true},
		{"8 near the limit", 8, 60000, 40, asMeasured, 0.01, 0.0001, true},
		{"an old kernel, full tables", 8, 3000, 1000, func(k Kind, n int) time.Duration { return time.Duration(n) * time.Microsecond }, 0.001, 0.005, true},
	} {
		var procs []rss.Proc
		for i := range c.procs {
			procs = append(procs, process(100+i, rss.RoleWorker, rss.GiB+rss.Bytes(i), rss.GiB))
		}
		const end = 10 * time.Minute
		var took [kinds]time.Duration
		at := whenCounted(func(time.Duration) []rss.Proc { return procs }, func(_ rss.ProcID, k Kind, _ time.Duration) int {
			if k == kindMaps {
				return c.maps
			}
			return c.fds
		}, func(k Kind, n int) time.Duration {
			d := c.cost(k, n)
			took[k] += d
			return d
		}, time.Second, end)
		for kind, share := range []float64{c.mapsShare, c.fdsShare} {
			if most := time.Duration(share*float64(end)) + 2*bucketHolds + 10*time.Millisecond; took[kind] > most {
				t.Errorf("%s: %s took %v of %v, want at most %v", c.what, limitName(Kind(kind)), took[kind], end, most)
			}
		}
		if c.everyCount && len(at) != 2*c.procs {
			t.Errorf("%s: %d of %d were counted", c.what, len(at), 2*c.procs)
		}
	}
}

// TestWhoIsCounted: roles, and the fullest, of which there are no more than
// said however many are alike.
func TestWhoIsCounted(t *testing.T) {
	var procs []rss.Proc
	for i := range 1000 {
		procs = append(procs, process(100+i, rss.RoleOther, 3*rss.MiB, rss.GiB))
	}
	procs[500].RSS = rss.GiB
	procs[501].Role, procs[501].RSS = rss.RoleWorker, rss.MiB
	procs[502].State, procs[502].RSS = 'D', 2*rss.GiB
	procs[503].State, procs[503].RSS = 'Z', 0
	at := whenCounted(func(time.Duration) []rss.Proc { return procs }, func(rss.ProcID, Kind, time.Duration) int { return 10 },
		asMeasured, time.Second, time.Second)
	maps, fds := 0, 0
	for key := range at {
		if key[0] == 'm' {
			maps++
		} else {
			fds++
		}
	}
	if fds != fullest+1 || maps != fullest || len(at["maps 602"]) != 0 || len(at["maps 601"]) == 0 || len(at["maps 600"]) == 0 {
		t.Errorf("%d and %d were counted: %v", maps, fds, at)
	}
}

func TestCountsOfWhoIsGoneAreForgotten(t *testing.T) {
	var c schedule
	p := process(7, rss.RoleTrainer, rss.GiB, rss.GiB)
	c.update(0, []rss.Proc{p})
	asks := c.due(0)
	if len(asks) != 2 || !asks[0].limit {
		t.Fatalf("asked for %+v", asks)
	}
	if more := c.due(0); len(more) != 0 {
		t.Errorf("asked twice: %+v", more)
	}
	c.update(time.Second, nil)
	c.done(countAnswer{ask: asks[0], count: proctree.Count{N: 1}})
	if len(c.entries) != 0 {
		t.Errorf("kept %v", c.entries)
	}
	// A small process that is no longer a trainer is kept for a while.
	c.update(2*time.Second, []rss.Proc{p})
	small := []rss.Proc{process(7, rss.RoleOther, 0, rss.GiB)}
	c.update(time.Minute, small)
	if len(c.entries) != 1 || len(c.due(time.Minute)) != 0 {
		t.Error("who is small was forgotten, or counted")
	}
	c.update(3*time.Minute, small)
	if len(c.entries) != 0 {
		t.Error("not forgotten")
	}
}

// TestLimitsReadAgain: those of a process that is near one are read with each count of its
// descriptors, else once a minute.
func TestLimitsReadAgain(t *testing.T) {
	for size, want := range map[rss.Bytes]bool{rss.GiB: false, 9 * rss.GiB: true} {
		var c schedule
		p := process(7, rss.RoleTrainer, rss.GiB, size)
		c.update(0, []rss.Proc{p})
		for _, ask := range c.due(0) {
			limits := &rss.ResourceLimits{AddressSpace: 10 * rss.GiB, LockedMemory: rss.Unlimited}
			c.done(countAnswer{ask: ask, limit: 1024, limits: limits, count: proctree.Count{N: 5}})
		}
		c.update(20*time.Second, []rss.Proc{p})
		for _, ask := range c.due(20 * time.Second) {
			if ask.kind == kindFDs && ask.limit != want {
				t.Errorf("%v of 10 GiB: read again %v", size, ask.limit)
			}
		}
	}
}

func limitName(k Kind) event.LimitName { return limitOf[k](&rss.Proc{}, 0, 0).Name }

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// look plays full looks, one a second of a clock of its own, until ok holds.
func (r *Counts) look(t *testing.T, now *time.Duration, procs []rss.Proc, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		*now += time.Second
		r.Read(*now, procs, 0, false)
		if r.processes.Busy() {
			if !r.processes.Wait(20 * time.Second) {
				t.Fatal("no count within 20 s")
			}
			r.takeCounts()
		}
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v of looks: %+v", *now, r.ofProcesses(*now))
		}
	}
}

// TestCountsOfRealProcesses: 60,000 mappings and 500 descriptors are found, with their
// processes.
func TestCountsOfRealProcesses(t *testing.T) {
	limit, err := proctree.MapLimit("/proc")
	if err != nil || limit < 64000 || limit > 70000 {
		t.Skipf("vm.max_map_count is %d (%v), not the kernel's 65530", limit, err)
	}
	maps, fds := rsstest.StartEater(t), rsstest.StartEater(t)
	var procs []rss.Proc
	tree := proctree.New("/proc")
	read := func() {
		procs = procs[:0]
		for _, e := range []*rsstest.Eater{maps, fds} {
			p, err := tree.One(e.PID)
			if err != nil {
				t.Fatal(err)
			}
			p.Role = rss.RoleWorker
			procs = append(procs, p)
		}
	}
	read()
	r, now := &Counts{processes: newProcessReader(new(probe.Set), "/proc")}, time.Duration(0)
	few := func() bool {
		m, f := r.Of(procs[0].ID)
		m2, f2 := r.Of(procs[1].ID)
		return m > 0 && m < 5000 && f > 0 && f < 100 && m2 > 0 && f2 > 0
	}
	r.look(t, &now, procs, few)
	if !maps.Maps(60000) || !fds.Descriptors(500) {
		t.Fatal("an eater has ended")
	}
	read() // VmSize has grown: the next count does not wait for 30 s
	began := now
	r.look(t, &now, procs, func() bool {
		m, _ := r.Of(procs[0].ID)
		_, f := r.Of(procs[1].ID)
		return m > 60000 && f > 500
	})
	if now-began > 25*time.Second {
		t.Errorf("it took %v of looks", now-began)
	}
	var soft unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &soft); err != nil {
		t.Fatal(err)
	}
	worst := r.ofProcesses(now)
	if len(worst) < 2 {
		t.Fatalf("worst %+v", worst)
	}
	if w := worst[0]; w.Name != event.LimitMaps || w.PID != maps.PID || w.Used < 60000 || w.Limit != rss.Bytes(limit) || w.Age > 60 {
		t.Errorf("of mappings %+v", w)
	}
	if w := worst[1]; w.Name != event.LimitFDs || w.PID != fds.PID || w.Used < 500 || w.Limit == 0 {
		t.Errorf("of descriptors %+v", w)
	}
	l := worst[0]
	if l.Name != event.LimitMaps || l.Scope != event.ScopeProcess || l.Role != rss.RoleWorker || l.Ratio() < 0.9 || l.LimitSource != "vm.max_map_count" {
		t.Errorf("reading %+v", l)
	}
	r.Read(now+time.Second, procs[1:], 0, false)
	if m, f := r.Of(procs[0].ID); m != 0 || f != 0 || len(r.ofProcesses(now)) != len(worst) {
		t.Errorf("of one that is gone %d, %d; worst %+v", m, f, r.ofProcesses(now))
	}
}

// TestCountsNeverBlockTheLoop: where nothing can be read, or the reader hangs.
func TestCountsNeverBlockTheLoop(t *testing.T) {
	fs := rsstest.Empty(t)
	procs := []rss.Proc{process(4242, rss.RoleWorker, rss.GiB, rss.GiB)}
	r, now := &Counts{processes: newProcessReader(new(probe.Set), fs.Proc)}, time.Duration(0)
	for range 200 {
		now += time.Second
		r.Read(now, procs, 0, false)
	}
	if m, f := r.Of(procs[0].ID); m != 0 || f != 0 || r.ofProcesses(now) != nil {
		t.Errorf("counted %d, %d, worst %+v", m, f, r.ofProcesses(now))
	}

	fs = rsstest.Empty(t)
	fs.Write(fmt.Sprintf("proc/%d/stat", 4242), "")
	fifo := fmt.Sprintf("%s/%d/maps", fs.Proc, 4242)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, now = &Counts{processes: newProcessReader(new(probe.Set), fs.Proc)}, 0
	for range 200 {
		now += time.Second
		r.Read(now, procs, 0, false)
	}
	if !r.processes.Busy() {
		t.Error("a pipe without a writer was counted")
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
		f.Close() // the reader goes on
	}

	var none Counts
	if m, f := none.Of(procs[0].ID); m != 0 || f != 0 || none.Read(0, procs, 1, false) != nil {
		t.Error("the zero value counts")
	}
	none.Ask(0)
	if _, ok := none.Next(0); ok {
		t.Error("the zero value is to be asked again")
	}
}
