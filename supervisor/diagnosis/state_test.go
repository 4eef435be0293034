package diagnosis

import (
	"math"
	"runtime"
	"slices"
	"strings"
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

// TestInnocent: none of these is ever reported.
func TestInnocent(t *testing.T) {
	trainer := func(f mib) []actor { return with(job(), func(a []actor) { a[0].anon = f }) }
	worker := func(f mib) []actor { return with(job(), func(a []actor) { a[1].anon, a[2].anon = f, f }) }
	for _, c := range []struct {
		name string
		scene
	}{
		{"nothing happens", scene{actors: job(), end: time.Hour}},
		{"start-up before the workers", scene{actors: trainer(ramp(300, 0, 10, 400)), end: 10 * time.Minute}},
		{"start-up that goes on for 15 s with workers", scene{actors: trainer(ramp(300, 5, 28, 100)), end: 10 * time.Minute}},
		{"data read for 8 minutes, no workers yet", scene{end: time.Hour,
			actors: []actor{{role: rss.RoleTrainer, pid: 10, anon: ramp(300, 0, 480, 100)}}}},
		{"a step", scene{end: time.Hour, actors: trainer(func(s float64) float64 { return 300 + 2000*math.Floor(min(1, s/600)) })}},
		{"saw-tooth of 10 s", scene{end: 20 * time.Minute, actors: trainer(func(s float64) float64 { return 300 + 40*math.Mod(s, 10) })}},
		{"validation for 5 minutes each hour", scene{end: 6 * time.Hour, step: 2 * time.Second,
			actors: trainer(func(s float64) float64 {
				if at := math.Mod(s, 3600) - 3000; at > 0 && at < 300 {
					return 300 + 20*at
				}
				return 300
			})}},
		{"a cache that is full in 20 s", scene{actors: worker(ramp(300, 10, 30, 20)), end: 10 * time.Minute}},
		{"a growth that is small", scene{actors: worker(line(300, 10, 0.001)), end: 8 * time.Hour, step: 5 * time.Second}},
		{"a growth that the limit has room for", scene{actors: worker(line(300, 10, 1)), end: 5 * time.Minute, limit: 64 * rss.GiB}},
		{"libraries of a spawned worker", scene{end: 10 * time.Minute, actors: with(job(), func(a []actor) {
			a[1].file, a[2].file = ramp(10, 10, 14, 60), ramp(10, 10, 14, 60)
			a[1].anon, a[2].anon = ramp(10, 10, 14, 40), ramp(10, 10, 14, 40)
		})}},
		{"page-locked from the start", scene{end: 10 * time.Minute, actors: with(job(), func(a []actor) { a[0].pin = ramp(0, 0, 12, 40) })}},
		{"a batch in shared memory", scene{end: 10 * time.Minute, actors: with(job(), func(a []actor) {
			a[0].shmem = func(s float64) float64 { return 100 * math.Mod(s, 2) }
		})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if ever, last, _ := c.play(t); len(ever) > 0 {
				t.Errorf("told %v, at the end %+v", ever, last)
			}
		})
	}
}

// TestTeeth: no saw-tooth, of whatever length and beginning, is a leak, as long as
// each rise is shorter than what counts as one.
func TestTeeth(t *testing.T) {
	for _, period := range []float64{2, 5, 7, 9, 11, 13, 17, 25, 31} {
		for _, phase := range []float64{0, 0.2, 0.5, 0.7} {
			for _, rise := range []float64{0.3, 0.6, 0.95} {
				if period*rise > 16 {
					continue
				}
				c := scene{end: 5 * time.Minute, step: 250 * time.Millisecond, actors: with(job(), func(a []actor) {
					a[0].anon = func(s float64) float64 {
						if at := math.Mod(s/period+phase, 1); at < rise {
							return 300 + 360*at/rise
						}
						return 300
					}
				})}
				if ever, _, _ := c.play(t); len(ever) > 0 {
					t.Errorf("period %v s, phase %v, rising for %v of it: %v", period, phase, rise, ever)
				}
			}
		}
	}
}

// TestGuilty: exactly these are reported at the end, and no later than this.
func TestGuilty(t *testing.T) {
	worker := func(f mib) []actor { return with(job(), func(a []actor) { a[1].anon, a[2].anon = f, f }) }
	shm := func(v mib, read bool) func(l *Look, s *State) {
		return func(l *Look, s *State) {
			b := rss.Bytes(v(l.At.Seconds()) * float64(rss.MiB))
			m := Shm{ID: rss.ProcID{PID: 10, Start: 10}, At: l.At, Used: b + rss.GiB, Size: 8 * rss.GiB}
			if read {
				m.Read, m.Torch, m.Segments = true, b, 16
			}
			l.Shm = append(l.Shm, m)
		}
	}
	collected := func(pid int, freed rss.Bytes) []event.LoaderSaid {
		return []event.LoaderSaid{{What: event.LoaderCollected, PID: pid, Freed: freed}}
	}
	for _, c := range []struct {
		name string
		scene
		want       event.Finding
		confidence event.Confidence
		role       rss.Role
		by         time.Duration
	}{
		{"leak in worker, 40 s", scene{actors: worker(line(300, 10, 5)), end: 40 * time.Second},
			event.FindingWorkerLeak, event.Possible, rss.RoleWorker, 40 * time.Second},
		{"leak in worker, hours", scene{actors: worker(line(300, 10, 0.4)), end: 8 * time.Hour, step: 5 * time.Second},
			event.FindingWorkerLeak, event.Likely, rss.RoleWorker, 4 * time.Minute},
		{"leak in worker that began after 3 hours", scene{actors: worker(line(300, 3*3600, 0.4)), end: 5 * time.Hour, step: 5 * time.Second},
			event.FindingWorkerLeak, event.Likely, rss.RoleWorker, 4*time.Hour + 5*time.Minute},
		{"leak in trainer with garbage collected each minute", scene{end: time.Hour, actors: with(job(), func(a []actor) {
			a[0].anon = func(s float64) float64 { return 300 + s*0.5 + 2*math.Mod(s, 60) }
		})}, event.FindingTrainerLeak, event.Likely, rss.RoleTrainer, 30 * time.Minute},
		{"leak in trainer without workers", scene{end: time.Hour, actors: []actor{{role: rss.RoleTrainer, pid: 10, anon: line(300, 0, 1)}}},
			event.FindingTrainerLeak, event.Possible, rss.RoleTrainer, 11 * time.Minute},
		{"leak that malloc_trim gives nothing of", scene{actors: worker(line(300, 10, 1)), end: time.Hour,
			tell: append(collected(11, rss.MiB), collected(12, rss.MiB)...)},
			event.FindingWorkerLeak, event.Certain, rss.RoleWorker, 2 * time.Minute},
		{"fragmentation", scene{actors: worker(line(300, 10, 1)), end: 10 * time.Minute,
			tell: append(collected(11, 400*rss.MiB), collected(12, 450*rss.MiB)...)},
			event.FindingFragmentation, event.Certain, rss.RoleWorker, 0},
		{"mapped file, whose name was not read", scene{end: time.Hour, limit: 16 * rss.GiB, actors: with(job(), func(a []actor) {
			a[1].file = func(s float64) float64 { return 40 + 1400*(1-math.Exp(-(s-10)/300)) }
			a[2].file = a[1].file
		})}, event.FindingMapped, event.Possible, rss.RoleWorker, 10 * time.Minute},
		{"mapped file, with PSS", scene{end: time.Hour, limit: 16 * rss.GiB, actors: with(job(), func(a []actor) {
			a[1].file = func(s float64) float64 { return 40 + 1400*(1-math.Exp(-(s-10)/300)) }
			a[2].file = a[1].file
			a[1].pss = func(s float64) float64 { return 150 + a[1].file(s)/3 }
			a[2].pss = a[1].pss
		})}, event.FindingMapped, event.Likely, rss.RoleWorker, 10 * time.Minute},
		{"mapped file, within a budget", scene{end: 15 * time.Second, actors: job(), tell: []event.LoaderSaid{
			{What: event.LoaderTrimmed, PID: 11, Worker: 11, Freed: 40 * rss.MiB}, {What: event.LoaderTrimmed, PID: 12, Worker: 12, Freed: 80 * rss.MiB, Count: 2},
		}}, event.FindingMapped, event.Certain, rss.RoleWorker, 0},
		{"pinned, VmPin", scene{end: 10 * time.Minute, actors: with(job(), func(a []actor) {
			a[0].pin, a[0].anon = line(0, 20, 1), line(300, 20, 1)
		})}, event.FindingPinned, event.Certain, rss.RoleTrainer, 3 * time.Minute},
		{"pinned, shared memory that /dev/shm has not", scene{end: 10 * time.Minute, more: shm(still(5), false),
			actors: with(job(), func(a []actor) { a[0].shmem = line(0, 20, 1) })},
			event.FindingPinned, event.Likely, rss.RoleTrainer, 3 * time.Minute},
		{"shared memory, and /dev/shm was not read", scene{end: 10 * time.Minute,
			actors: with(job(), func(a []actor) { a[0].shmem = line(0, 20, 1) })},
			event.FindingPinned, event.Possible, rss.RoleTrainer, 3 * time.Minute},
		{"batches kept", scene{end: 10 * time.Minute, more: shm(line(0, 20, 1), false),
			actors: with(job(), func(a []actor) { a[0].shmem = line(0, 20, 1) })},
			event.FindingTrainerLeak, event.Likely, rss.RoleTrainer, 3 * time.Minute},
		{"prefetch queue, by statvfs alone", scene{end: 5 * time.Minute, actors: job(), more: shm(ramp(0, 10, 12, 200), false)},
			event.FindingPrefetch, event.Possible, rss.RoleWorker, time.Minute},
		{"prefetch queue", scene{end: 5 * time.Minute, actors: job(), more: shm(ramp(0, 10, 12, 200), true)},
			event.FindingPrefetch, event.Certain, rss.RoleWorker, 30 * time.Second},
		{"shm managers", scene{end: 5 * time.Minute, actors: append(job(), actor{role: rss.RoleShmManager, pid: 20, born: 10, anon: still(57), file: still(93)})},
			event.FindingShmManagers, event.Certain, rss.RoleShmManager, 20 * time.Second},
		{"a report of pickling", scene{actors: job(), end: 10 * time.Second, tell: []event.LoaderSaid{{What: event.LoaderPickling, PID: 10,
			Sharing: &event.Sharing{Method: "spawn", Strategy: "file_system", Workers: 1, Tensors: 80_000, Maps: 81_500, MaxMaps: 65_530}}}},
			event.FindingSpawn, event.Certain, rss.RoleTrainer, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ever, last, _ := c.play(t)
			if len(last) != 1 || last[0].Finding != c.want || last[0].Confidence != c.confidence || last[0].Role != c.role {
				t.Fatalf("got %+v, want %s, %s, in the %s; ever %v", last, c.want, c.confidence, c.role, ever)
			}
			if at, ok := ever[c.want]; c.by > 0 && (!ok || at > c.by) {
				t.Errorf("told at %v, want %v at most", at, c.by)
			}
			if len(last[0].Evidence) == 0 || len(last[0].Advice) == 0 || last[0].Event != "" {
				t.Errorf("got %+v", last[0])
			}
		})
	}
}

// TestMappedAdvice: what the site could change helps under Slurm's limit alone; workers that stay
// are trimmed, and need not end.
func TestMappedAdvice(t *testing.T) {
	for _, bySlurm := range []bool{false, true} {
		c := scene{limit: rss.GiB, end: time.Minute, actors: with(job(), func(a []actor) { a[1].file, a[2].file = line(40, 15, 8), line(40, 15, 8) })}
		var last []event.Diagnosis
		c.more = func(l *Look, s *State) {
			last = s.Findings()
			l.Accounting, l.BySlurm = event.AccountingRSS, bySlurm
			l.Loaders = []Loader{{PID: 10, Workers: 2, Persistent: true}}
		}
		c.play(t)
		if len(last) == 0 || last[0].Finding != event.FindingMapped {
			t.Fatalf("%+v", last)
		}
		advice := strings.Join(last[0].Advice, "\n")
		if strings.Contains(advice, "UsePss") != bySlurm || strings.Contains(advice, "persistent_workers") {
			t.Errorf("by Slurm %v: %s", bySlurm, advice)
		}
	}
}

// TestPoolLeak: of pool workers the evidence names the pool, and no advice is for a DataLoader.
func TestPoolLeak(t *testing.T) {
	c := scene{end: 4 * time.Minute, actors: with(job(), func(a []actor) {
		a[0].role = rss.RoleOther
		for i := range a[1:] {
			a[1+i].role, a[1+i].anon, a[1+i].file = rss.RolePoolWorker, line(300, 10, 2), line(40, 15, 8)
		}
	})}
	var last []event.Diagnosis
	c.more = func(l *Look, s *State) {
		last = s.Findings()
		l.Loaders = []Loader{{PID: 10, Workers: 2, Method: "fork", Pool: "multiprocessing.Pool"}}
	}
	c.play(t)
	var found []event.Finding
	for _, d := range last {
		found = append(found, d.Finding)
		words := strings.Join(slices.Concat(d.Evidence, d.Advice), "\n")
		if d.Role != rss.RolePoolWorker || strings.Contains(words, "num_workers") || strings.Contains(words, "__getitem__") {
			t.Errorf("%+v", d)
		}
		if d.Finding == event.FindingWorkerLeak && !strings.Contains(words, "multiprocessing.Pool (told by the hook)") {
			t.Errorf("%q", words)
		}
	}
	if slices.Sort(found); !slices.Equal(found, []event.Finding{event.FindingWorkerLeak, event.FindingMapped}) {
		t.Errorf("found %q", found)
	}
}

// TestRecycledLeak: workers that are recycled after 6 s leak, though none lives long enough to
// show a growth without an end. What any worker takes to begin is none.
func TestRecycledLeak(t *testing.T) {
	for _, c := range []struct {
		rate float64
		want bool
	}{{30, true}, {4, false}} {
		sc := scene{limit: rss.GiB, end: 30 * time.Second, actors: []actor{{role: rss.RoleTrainer, pid: 10, anon: still(100)}}}
		for i := range 4 {
			born := 6 * float64(i)
			sc.actors = append(sc.actors, actor{role: rss.RoleWorker, pid: 11 + i, born: born, dies: born + 6, anon: line(100, born, c.rate)})
		}
		sc.more = func(l *Look, s *State) {
			if n := int(l.At / time.Second); n > 6 && n%6 == 1 {
				s.Tell(l.At, &event.LoaderSaid{What: event.LoaderRecycled, Worker: 10 + n/6})
			}
		}
		_, last, _ := sc.play(t)
		i := slices.IndexFunc(last, func(d event.Diagnosis) bool { return d.Finding == event.FindingWorkerLeak })
		if i >= 0 != c.want {
			t.Errorf("%v MiB/s: %+v", c.rate, last)
		}
		if i > 0 || i == 0 && (last[0].Procs < 3 || last[0].Bytes < 400*rss.MiB || last[0].Confidence != event.Likely) {
			t.Errorf("%v MiB/s: %+v", c.rate, last)
		}
	}
}

// TestLeakIsWithdrawn: a cache that was full only after minutes looked like a leak
// until then.
func TestLeakIsWithdrawn(t *testing.T) {
	c := scene{end: 20 * time.Minute, actors: with(job(), func(a []actor) { a[1].anon = ramp(300, 10, 130, 2) })}
	ever, last, _ := c.play(t)
	if _, ok := ever[event.FindingWorkerLeak]; !ok || len(last) != 0 {
		t.Errorf("ever %v, at the end %+v", ever, last)
	}
}

// TestEndingTrainer: it frees its memory, and is looked at meanwhile.
func TestEndingTrainer(t *testing.T) {
	c := scene{end: 70 * time.Second, actors: with(job(), func(a []actor) {
		a[0].dies = 63
		a[0].anon = func(s float64) float64 {
			if s > 60 {
				return 100
			}
			return line(300, 10, 4)(s)
		}
	})}
	if _, last, _ := c.play(t); len(last) != 1 || last[0].Finding != event.FindingTrainerLeak || last[0].Bytes < 170*rss.MiB {
		t.Errorf("got %+v", last)
	}
}

// TestEndedWorkers: what workers of an earlier epoch had is not lost, nor counted
// for each epoch.
func TestEndedWorkers(t *testing.T) {
	var actors []actor
	for epoch := range 5 {
		born := float64(10 + 60*epoch)
		actors = append(actors, actor{role: rss.RoleWorker, pid: 11 + epoch, born: born, dies: born + 55, anon: line(200, born, 4)})
	}
	c := scene{end: 6 * time.Minute, actors: append([]actor{{role: rss.RoleTrainer, pid: 10, anon: still(300)}}, actors...)}
	_, last, s := c.play(t)
	if len(last) != 1 || last[0].Finding != event.FindingWorkerLeak || last[0].Bytes > 230*rss.MiB {
		t.Errorf("got %+v", last)
	}
	if len(s.tracks) != 1 || len(s.known) != 1 {
		t.Errorf("%d processes are remembered, want the trainer", len(s.tracks))
	}
}

func TestFindingsAreOrdered(t *testing.T) {
	actors := append(job(), actor{role: rss.RoleShmManager, pid: 20, born: 10, anon: still(900)})
	actors[0].anon = line(300, 10, 1)
	c := scene{end: 5 * time.Minute, actors: actors, tell: []event.LoaderSaid{{What: event.LoaderCollected, PID: 12, Freed: 150 * rss.MiB}}}
	_, last, _ := c.play(t)
	var got []event.Finding
	for _, d := range last {
		got = append(got, d.Finding)
	}
	want := []event.Finding{event.FindingShmManagers, event.FindingTrainerLeak, event.FindingFragmentation}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestClockGoesBack: such a look is passed over.
func TestClockGoesBack(t *testing.T) {
	c := scene{actors: job()}
	s := New()
	for _, at := range []time.Duration{0, time.Minute, time.Second, time.Minute, time.Minute} {
		s.Add(c.look(at))
	}
	if s.now != time.Minute || len(s.tracks) != 3 {
		t.Errorf("now %v, %d processes", s.now, len(s.tracks))
	}
	s.Add(&Look{At: 2 * time.Minute})
	if len(s.tracks)+len(s.known)+len(s.Findings())+len(s.Wants()) != 0 {
		t.Errorf("something is left: %+v", s)
	}
}

// TestGuess: roles as without the hook.
func TestGuess(t *testing.T) {
	proc := func(pid, parent int, comm string, role rss.Role) rss.Proc {
		return rss.Proc{ID: rss.ProcID{PID: pid}, Parent: parent, Comm: comm, Role: role}
	}
	const other, trainer, worker, manager = rss.RoleOther, rss.RoleTrainer, rss.RoleWorker, rss.RoleShmManager
	for _, c := range []struct {
		name  string
		procs []rss.Proc
		want  []rss.Role
	}{
		{"nothing", nil, nil},
		{"torch 1.13", []rss.Proc{proc(1, 0, "bash", other), proc(2, 1, "python3", other), proc(3, 2, "python3", other), proc(4, 3, "torch_shm_manag", manager)},
			[]rss.Role{other, trainer, worker, manager}},
		{"torch 2.6", []rss.Proc{proc(2, 1, "train", other), proc(3, 2, "pt_data_worker", other), proc(4, 2, "nvidia-smi", other)},
			[]rss.Role{trainer, worker, other}},
		{"no workers", []rss.Proc{proc(2, 1, "python3.11", other)}, []rss.Role{trainer}},
		{"no Python", []rss.Proc{proc(2, 1, "julia", other), proc(3, 2, "julia", other)}, []rss.Role{other, other}},
		{"told already", []rss.Proc{proc(2, 1, "python3", trainer), proc(3, 2, "python3", other)}, []rss.Role{trainer, other}},
	} {
		Guess(c.procs)
		for i := range c.procs {
			if c.procs[i].Role != c.want[i] {
				t.Errorf("%s: process %d is %q, want %q", c.name, c.procs[i].ID.PID, c.procs[i].Role, c.want[i])
			}
		}
	}
}

// TestLimitAtTheEnd: as a job ends the limit that binds is the node's, and what grew
// is still much.
func TestLimitAtTheEnd(t *testing.T) {
	c := scene{end: 5 * time.Minute, limit: 4 * rss.GiB, actors: with(job(), func(a []actor) {
		a[0].anon, a[0].dies = line(300, 10, 1), 297
		a[1].dies, a[2].dies = 295, 295
	})}
	c.more = func(l *Look, _ *State) {
		if l.At > 294*time.Second {
			l.Limit = 64 * rss.GiB
		}
	}
	if _, last, _ := c.play(t); len(last) != 1 || last[0].Finding != event.FindingTrainerLeak || last[0].Confidence != event.Likely {
		t.Errorf("got %+v", last)
	}
}

// TestMemoryIsBounded: days of looks take no more than minutes.
func TestMemoryIsBounded(t *testing.T) {
	c := scene{actors: []actor{{role: rss.RoleTrainer, pid: 10, anon: still(300), file: still(150)}}}
	for i := range 63 {
		c.actors = append(c.actors, actor{role: rss.RoleWorker, pid: 11 + i, anon: line(300, 0, 0.01), file: line(40, 0, 0.01)})
	}
	s := New()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for at := time.Duration(0); at < 48*time.Hour; at += 30 * time.Second {
		s.Add(c.look(at))
	}
	after := heap()
	runtime.KeepAlive(s)
	if grown := after - min(before, after); grown > 1<<20 {
		t.Errorf("64 processes over two days take %v", rss.Bytes(grown))
	}
}

// unforked is a loader of four workers of Python 3.14, each of which was sent 500 MiB
// and has 510 MiB of its own, with what a case changes.
func unforked(change func(l *Loader)) Loader {
	l := Loader{PID: 10, Workers: 4, Method: "forkserver", By: "default", Python: "3.14.10", Sent: 500 << 20,
		Own: []rss.Bytes{510 * rss.MiB, 510 * rss.MiB, 510 * rss.MiB, 510 * rss.MiB}}
	if change != nil {
		change(&l)
	}
	return l
}

func owns(each ...rss.Bytes) (all []rss.Bytes) {
	for _, own := range each {
		all = append(all, own*rss.MiB)
	}
	return all
}

// TestCopies judges what trainers and workers measured.
func TestCopies(t *testing.T) {
	const none = event.Confidence("")
	for _, c := range []struct {
		name   string
		loader Loader
		want   event.Confidence
		bytes  rss.Bytes
		says   string // in the evidence
	}{
		{"array", unforked(nil), event.Certain, 2040 * rss.MiB, "Python 3.14 starts them by forkserver"},
		{"forked", unforked(func(l *Loader) { l.Method = "fork" }), none, 0, ""},
		{"no hook told", Loader{PID: 10, Workers: 4}, none, 0, ""},
		{"one tensor: it is in shared memory", unforked(func(l *Loader) { l.Own, l.Sent = owns(10, 10, 10, 10), 5000 }), none, 0, ""},
		{"opened in the workers, nothing was sent", unforked(func(l *Loader) { l.Sent = 5000 }), none, 0, ""},
		{"a worker has not told yet", unforked(func(l *Loader) { l.Own = l.Own[:3] }), none, 0, ""},
		{"not alike", unforked(func(l *Loader) { l.Own = owns(510, 510, 510, 300) }), none, 0, ""},
		{"nearly alike", unforked(func(l *Loader) { l.Own = owns(510, 510, 510, 400) }), event.Certain, 1930 * rss.MiB, "400 MiB to 510 MiB"},
		{"too little", unforked(func(l *Loader) { l.Own, l.Sent = owns(63, 63, 63, 63), 60<<20 }), none, 0, ""},
		{"enough", unforked(func(l *Loader) { l.Own, l.Sent = owns(64, 64, 64, 64), 60<<20 }), event.Certain, 256 * rss.MiB, "64.0 MiB"},
		{"small objects: their pickle is smaller", unforked(func(l *Loader) { l.Sent = 40 << 20 }), event.Likely, 2040 * rss.MiB, "wrote 40.0 MiB"},
		{"what was sent could not be read", unforked(func(l *Loader) { l.Sent = -1 }), event.Possible, 2040 * rss.MiB, "could not be read"},
		{"one worker", unforked(func(l *Loader) { l.Workers, l.Own = 1, l.Own[:1] }), event.Certain, 510 * rss.MiB, "the worker holds"},
		{"chosen for the loader", unforked(func(l *Loader) { l.By, l.Method = "multiprocessing_context", "spawn" }), event.Certain, 2040 * rss.MiB,
			`multiprocessing_context="spawn"`},
		{"chosen for the program", unforked(func(l *Loader) { l.By, l.Method = "set_start_method", "spawn" }), event.Certain, 2040 * rss.MiB,
			`set_start_method("spawn")`},
		{"started by spawn itself", unforked(func(l *Loader) { l.By, l.Method = "parent", "spawn" }), event.Certain, 2040 * rss.MiB,
			"as process 10 was itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ok := c.loader.copies("")
			if ok != (c.want != none) || d.Confidence != c.want || d.Bytes != c.bytes {
				t.Fatalf("got %v, %+v", ok, d)
			}
			if !strings.Contains(strings.Join(d.Evidence, "\n"), c.says) {
				t.Errorf("evidence %q does not have %q", d.Evidence, c.says)
			}
		})
	}
}

// TestCopiesAdvice: fork comes first where it lowers what counts, with its condition
// where CUDA is used, and never where it is not safe.
func TestCopiesAdvice(t *testing.T) {
	for _, c := range []struct {
		name   string
		loader Loader
		counts event.Accounting
		first  string
		none   string // in no advice
	}{
		{"default", unforked(nil), event.AccountingCgroup, `multiprocessing_context="fork" shares it`, "CUDA"},
		{"explicit", unforked(func(l *Loader) { l.By = "multiprocessing_context" }), event.AccountingPSS, `"fork" in place of "forkserver"`, "set_start_method"},
		{"for the program", unforked(func(l *Loader) { l.By = "set_start_method" }), "", `set_start_method("fork") or`, "in place of"},
		{"CUDA", unforked(func(l *Loader) { l.CUDA = true }), "", "as long as no worker uses CUDA", "not safe"},
		{"InfiniBand", unforked(func(l *Loader) { l.Registered = "/dev/infiniband/uverbs0" }), "", "a memory map", `="fork"`},
		{"RSS counts shared pages for each", unforked(nil), event.AccountingRSS, "a memory map", "CUDA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ok := c.loader.copies(c.counts)
			if !ok || !strings.Contains(d.Advice[0], c.first) {
				t.Errorf("advice %q, want %q first", d.Advice, c.first)
			}
			for _, a := range d.Advice {
				if strings.Contains(a, c.none) || strings.Contains(a, `context="forkserver"`) || strings.Contains(a, `context="spawn"`) {
					t.Errorf("advice %q", a)
				}
			}
		})
	}
}

// TestCopiesOfSeveralLoaders are one finding, of all that they hold; it stays when
// they have ended.
func TestCopiesOfSeveralLoaders(t *testing.T) {
	c := scene{actors: with(job(), func(a []actor) { a[1].dies, a[2].dies = 30, 30 }), limit: 32 * rss.GiB, end: time.Minute}
	one, other := unforked(nil), unforked(func(l *Loader) { l.PID, l.Own = 12, owns(100, 100, 100, 100); l.Sent = 100 << 20 })
	c.more = func(l *Look, _ *State) {
		if l.At > 12*time.Second && l.At < 30*time.Second {
			l.Loaders = []Loader{other, one}
		}
	}
	_, last, _ := c.play(t)
	if len(last) != 1 || last[0].Finding != event.FindingCopies || last[0].Bytes != 2440*rss.MiB || last[0].Role != rss.RoleWorker {
		t.Fatalf("got %+v", last)
	}
	if !slices.ContainsFunc(last[0].Evidence, func(e string) bool { return strings.Contains(e, "2 DataLoaders") }) {
		t.Errorf("evidence %q", last[0].Evidence)
	}
	one.Own, other.Own = owns(66, 66, 66, 66), nil // 264 MiB are less than 5 % of 32 GiB
	one.Sent = 66 << 20
	if _, last, _ := c.play(t); len(last) != 0 {
		t.Errorf("got %+v", last)
	}
}
