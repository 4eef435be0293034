package workers

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// rankedProc is a process of a made-up training.
type rankedProc struct {
	pid, parent int
	local       int // LOCAL_RANK, -1 for none
	hello       bool
	role        rss.Role // what the loaders say, "" for nothing
	orphan      bool
	comm        string
	start       uint64 // 0 for 1
	byRank      bool   // it is RANK that it has, not LOCAL_RANK
	want        rss.Role
}

func TestRoles(t *testing.T) {
	const (
		trainer, worker, agent, other = rss.RoleTrainer, rss.RoleWorker, rss.RoleAgent, rss.RoleOther
	)
	for name, procs := range map[string][]rankedProc{
		"torchrun": {
			{pid: 1, local: -1, hello: true, want: agent},
			{pid: 2, parent: 1, local: 0, hello: true, role: trainer, want: trainer},
			{pid: 3, parent: 1, local: 1, hello: true, role: trainer, want: trainer},
			{pid: 4, parent: 2, local: 0, role: worker, want: worker},
			{pid: 5, parent: 3, local: 1, role: worker, want: worker},
			{pid: 6, parent: 2, local: 0, want: other}, // nvidia-smi and the like
		},
		"without the hook": {
			{pid: 1, local: -1, want: agent},
			{pid: 2, parent: 1, local: 0, want: trainer},
			{pid: 3, parent: 1, local: 1, want: trainer},
			{pid: 4, parent: 2, local: 0, want: other},
		},
		"a shell around each": {
			{pid: 1, local: -1, want: other},
			{pid: 2, parent: 1, local: -1, want: agent},
			{pid: 3, parent: 2, local: 0, want: other},
			{pid: 4, parent: 3, local: 0, hello: true, want: trainer},
			{pid: 5, parent: 4, local: 0, hello: true, want: other}, // started by the trainer, uses torch
		},
		"a wrapper in each rank": {
			{pid: 1, local: 3, want: trainer},
			{pid: 2, parent: 1, local: 3, want: other},
		},
		"a wrapper and a shell in each rank": {
			{pid: 1, local: 3, want: other},
			{pid: 2, parent: 1, local: 3, hello: true, role: trainer, want: trainer},
			{pid: 3, parent: 2, local: 3, role: worker, want: worker},
		},
		"ranks that share a parent which trains": {
			{pid: 1, local: -1, hello: true, role: trainer, want: trainer},
			{pid: 2, parent: 1, local: 1, want: trainer},
		},
		"two that own loaders in one rank": {
			{pid: 1, local: 0, hello: true, role: trainer, want: trainer},
			{pid: 2, parent: 1, local: 0, hello: true, role: trainer, want: trainer},
		},
		"left behind": {
			{pid: 1, local: -1, hello: true, role: trainer, want: trainer},
			{pid: 2, parent: 9, local: 0, orphan: true, want: other},
			{pid: 3, parent: 9, local: 1, orphan: true, hello: true, want: trainer}, // its agent has ended
		},
		"Lightning, whose main process is rank 0": {
			{pid: 1, local: -1, comm: "bash", want: other},
			{pid: 2, parent: 1, local: -1, comm: "python", start: 2, want: trainer},
			{pid: 3, parent: 2, local: 1, start: 3, want: trainer},
			{pid: 4, parent: 2, local: 2, start: 4, want: trainer},
			{pid: 5, parent: 2, local: -1, start: 5, want: other}, // a loader's worker
			{pid: 6, parent: 3, local: 1, start: 5, want: other},  // and another's
			{pid: 7, parent: 2, local: 0, start: 9, want: other},  // resource tracker: started with what rank 0 set since
		},
		"Lightning under the hook": {
			{pid: 1, local: -1, hello: true, want: trainer},
			{pid: 2, parent: 1, local: 1, hello: true, role: trainer, want: trainer},
		},
		"torchrun started rank 0 first, and a PID is no order": {
			{pid: 9, local: -1, want: agent},
			{pid: 3, parent: 9, local: 1, start: 6, want: trainer},
			{pid: 8, parent: 9, local: 0, start: 5, want: trainer},
		},
		"a shell that starts one rank": {
			{pid: 1, local: -1, comm: "bash", want: agent},
			{pid: 2, parent: 1, local: 1, want: trainer},
		},
		"a launcher without the hook of ranks with it": {
			{pid: 1, local: -1, want: agent},
			{pid: 2, parent: 1, local: 1, hello: true, want: trainer},
		},
		"RANK alone": {
			{pid: 1, local: -1, want: agent},
			{pid: 2, parent: 1, local: 4, byRank: true, want: trainer},
			{pid: 3, parent: 1, local: 5, byRank: true, want: trainer},
		},
		"a RANK that torchrun was started with": {
			{pid: 1, local: 1, byRank: true, want: agent},
			{pid: 2, parent: 1, local: 0, want: trainer},
		},
		"no ranks": {
			{pid: 1, local: -1, want: other},
			{pid: 2, parent: 1, local: -1, hello: true, want: other},
			{pid: 3, parent: 2, local: -1, hello: true, role: trainer, want: trainer},
		},
		"a parent of itself": {
			{pid: 1, parent: 1, local: 0, want: trainer},
		},
		"in a circle": {
			{pid: 1, parent: 2, local: 0, want: trainer}, // cannot be; it ends
			{pid: 2, parent: 1, local: 0, hello: true, want: trainer},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := roles{places: newEnvironReader("")}
			s := rss.Sample{Mono: settled}
			hello := map[rss.ProcID]bool{}
			for _, q := range procs {
				p := rss.Proc{ID: rss.ProcID{PID: q.pid, Start: max(q.start, 1)}, Parent: q.parent, Comm: q.comm, Role: q.role, Orphan: q.orphan, State: 'S'}
				if p.Role == "" {
					p.Role = rss.RoleOther
				}
				s.Procs = append(s.Procs, p)
				hello[p.ID] = q.hello
				at := noRanks
				at.local = q.local
				if q.byRank {
					at.local, at.rank = -1, q.local
				}
				r.places.seen[programOf(&p)] = &programFact[ranks]{fact: at, known: true, final: true}
			}
			r.assign(&s, func(id rss.ProcID) bool { return hello[id] })
			for i, q := range procs {
				if got := s.Procs[i].Role; got != q.want {
					t.Errorf("process %d is %q, want %q", q.pid, got, q.want)
				}
			}
		})
	}
}

// TestRolesAreKept: between two epochs a trainer owns no loader, and while the
// ranks are restarted an agent has no children.
func TestRolesAreKept(t *testing.T) {
	r := roles{places: newEnvironReader("")}
	sample := func(children ...rss.Proc) *rss.Sample {
		s := &rss.Sample{Procs: append([]rss.Proc{{ID: rss.ProcID{PID: 1, Start: 1}, Role: rss.RoleOther}}, children...)}
		for _, p := range s.Procs {
			at := noRanks
			at.local = p.ID.PID - 2
			r.places.seen[program{p.ID, ""}] = &programFact[ranks]{fact: at, known: true, final: true}
		}
		return s
	}
	hello := func(id rss.ProcID) bool { return id.PID == 3 }
	rank := func(pid int, start uint64, role rss.Role) rss.Proc {
		return rss.Proc{ID: rss.ProcID{PID: pid, Start: start}, Parent: 1, Role: role}
	}
	r.assign(sample(rank(2, 1, rss.RoleOther), rank(3, 1, rss.RoleTrainer)), hello)
	s := sample()
	r.assign(s, hello)
	if got := s.Procs[0].Role; got != rss.RoleAgent {
		t.Errorf("without ranks the agent is %q", got)
	}
	s = sample(rank(3, 1, rss.RoleOther))
	r.assign(s, hello)
	if got := s.Procs[1].Role; got != rss.RoleTrainer {
		t.Errorf("without a loader the trainer is %q", got)
	}
	s = sample(rank(9, 2, rss.RoleOther)) // no LOCAL_RANK that is known
	r.places.seen[program{s.Procs[1].ID, ""}].fact.local = -1
	r.assign(s, hello)
	if got := s.Procs[1].Role; got != rss.RoleOther {
		t.Errorf("a stranger is %q", got)
	}
	if len(r.kept) != 1 {
		t.Errorf("of those who ended, %v is kept", r.kept)
	}
}

// TestWhoStartedRanks: that rank 0 has not been read yet, or has just ended, makes
// no trainer of torchrun.
func TestWhoStartedRanks(t *testing.T) {
	const up = 1
	r := roles{places: newEnvironReader("")}
	none := func(rss.ProcID) bool { return false }
	// locals are LOCAL_RANK of the children 2, 3, …
	look := func(at time.Duration, locals ...int) (rss.Role, bool) {
		s := &rss.Sample{Mono: at, Procs: []rss.Proc{{ID: rss.ProcID{PID: up, Start: 1}, Role: rss.RoleOther}}}
		for i, local := range append([]int{-1}, locals...) {
			id := rss.ProcID{PID: up + i, Start: uint64(1 + i)}
			if i > 0 {
				s.Procs = append(s.Procs, rss.Proc{ID: id, Parent: up})
			}
			e := r.places.seen[program{id, ""}]
			if e == nil {
				e = &programFact[ranks]{since: at, known: true, final: true}
				r.places.seen[program{id, ""}] = e
			}
			e.fact = noRanks
			e.fact.local = local
		}
		r.assign(s, none)
		return s.Procs[0].Role, r.open[s.Procs[0].ID]
	}
	type step struct {
		at     time.Duration
		locals []int
		want   rss.Role
		open   bool
	}
	for name, steps := range map[string][]step{
		"torchrun": {
			{0, []int{-1, 1}, rss.RoleAgent, true}, // rank 0 has not called exec yet
			{time.Second, []int{0, 1}, rss.RoleAgent, false},
			{time.Minute, []int{-1, 1}, rss.RoleAgent, false}, // rank 0 has ended
			{time.Hour, nil, rss.RoleAgent, false},
		},
		"Lightning": {
			{0, []int{-1, 1}, rss.RoleAgent, true},
			{settled, []int{-1, 1}, rss.RoleTrainer, false},
			{settled, []int{-1, 1, 2}, rss.RoleTrainer, false},
			{time.Minute, []int{-1, -1, -1, 0}, rss.RoleTrainer, false}, // a helper outlives the ranks
		},
		"taken for Lightning": {
			{settled, []int{-1, 1}, rss.RoleAgent, true},
			{2 * settled, []int{-1, 1}, rss.RoleTrainer, false},
			{2 * settled, []int{0, 1}, rss.RoleAgent, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.kept, r.leads = nil, nil
			clear(r.places.seen)
			for _, c := range steps {
				if got, open := look(c.at, c.locals...); got != c.want || open != c.open {
					t.Errorf("%v, LOCAL_RANK %v: %q, open %v; want %q, open %v", c.at, c.locals, got, open, c.want, c.open)
				}
			}
		})
	}
}

// ranksIn reads what /proc/PID/environ would hold.
func ranksIn(t testing.TB, environ string) ranks {
	t.Helper()
	fs := rsstest.Empty(t)
	fs.Write("proc/7/environ", environ)
	vars, err := proctree.Environ(fs.Proc, 7, isRank)
	wardentest.NoError(t, err)
	return ranksOf(vars)
}

func TestRanks(t *testing.T) {
	for in, want := range map[string]ranks{
		"": noRanks,
		"A=1\x00RANK=3\x00LOCAL_RANK=1\x00SLURM_PROCID=0\x00": {3, 1, 0},
		"RANK=0":                         {0, -1, -1},
		"RANK=\x00LOCAL_RANK=x\x00":      noRanks,
		"RANK=-1\x00":                    noRanks,
		"RANK=4294967296\x00":            noRanks,
		"RANK\x00XRANK=1\x00RANK =1\x00": noRanks,
		"RANK=1\x00RANK=2\x00":           {1, -1, -1}, // getenv takes the first
	} {
		if got := ranksIn(t, in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	if got := ranksOf(nil); got != noRanks {
		t.Errorf("of what cannot be read: %v", got)
	}
}

func FuzzRanks(f *testing.F) {
	f.Add("3", "1", "")
	f.Fuzz(func(t *testing.T, rank, local, task string) {
		r := ranksOf(map[string]string{rankVariable: rank, localVariable: local, taskVariable: task})
		if r.rank < -1 || r.local < -1 || r.task < -1 {
			t.Errorf("%q, %q, %q: %v", rank, local, task, r)
		}
	})
}

func TestRankZero(t *testing.T) {
	for r, want := range map[ranks][2]bool{ // zero, known
		noRanks:     {true, false},
		{0, 0, 0}:   {true, true},
		{4, 0, 0}:   {false, true}, // the first of its node
		{0, -1, 7}:  {true, true},
		{-1, 0, -1}: {true, true},
		{-1, 1, 0}:  {false, true}, // one of several in a task
		{-1, -1, 0}: {true, true},
		{-1, 0, 3}:  {false, true},
	} {
		zero, known := r.zero()
		if known != want[1] || known && zero != want[0] {
			t.Errorf("%v: zero %v, known %v", r, zero, known)
		}
	}
}

func TestEnvironReader(t *testing.T) {
	k := newEnvironReader("/proc")
	procs := []rss.Proc{{ID: rss.ProcID{PID: os.Getpid(), Start: 1}, Comm: "test"}, {ID: rss.ProcID{PID: 1<<22 + 1, Start: 1}}}
	if _, known := k.of(&procs[0]); known {
		t.Error("known before it was asked")
	}
	now := time.Duration(0)
	wardentest.Until(t, "both are read", func() bool {
		k.update(&rss.Sample{Mono: now, Procs: procs})
		now += time.Second
		_, here := k.of(&procs[0])
		r, there := k.of(&procs[1])
		if r != noRanks {
			t.Errorf("a process that is gone has %v", r)
		}
		return here && there
	})
	exec := procs[0]
	exec.Comm = "other"
	if _, known := k.of(&exec); known {
		t.Error("another program in the same process is known already")
	}
	k.update(&rss.Sample{Mono: time.Hour})
	if len(k.seen) != 0 {
		t.Errorf("%d processes that are gone are remembered", len(k.seen))
	}
}

// readEnviron has the environment of a process say so, as if it had been read.
func (w *Workers) readEnviron(t *testing.T, p *rss.Proc, environ string) {
	w.roles.places.seen[programOf(p)] = &programFact[ranks]{fact: ranksIn(t, environ), known: true, final: true}
}

// pids are those of the processes.
func pids(all []*rss.Proc) (list []int) {
	for _, p := range all {
		list = append(list, p.ID.PID)
	}
	return list
}

// family is a command, process 1, with the children 2 and 3 and the grandchild 4 below 2.
func family() *rss.Sample {
	s := &rss.Sample{}
	for pid, parent := range []int{0, 0, 1, 1, 2} {
		if pid > 0 {
			s.Procs = append(s.Procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: uint64(pid)}, Parent: parent, State: 'S'})
		}
	}
	return s
}

// TestTraining: of the processes that said hello those that train are asked, or else the
// uppermost.
func TestTraining(t *testing.T) {
	for name, c := range map[string]struct {
		hello []int
		roles map[int]rss.Role
		want  []int
	}{
		"none said hello":                      {nil, map[int]rss.Role{2: rss.RoleTrainer}, nil},
		"every trainer":                        {[]int{1, 2, 3}, map[int]rss.Role{1: rss.RoleAgent, 2: rss.RoleTrainer, 3: rss.RoleTrainer}, []int{2, 3}},
		"no worker":                            {[]int{1, 2}, map[int]rss.Role{2: rss.RoleWorker}, []int{1}},
		"the uppermost where no loader is":     {[]int{2, 4}, nil, []int{2}},
		"an agent alone":                       {[]int{1}, map[int]rss.Role{1: rss.RoleAgent}, nil},
		"two that have nothing in common":      {[]int{3, 4}, nil, []int{3, 4}},
		"a trainer below another that is none": {[]int{1, 4}, map[int]rss.Role{4: rss.RoleTrainer}, []int{4}},
	} {
		w := New(Options{Proc: t.TempDir()})
		w.last = family()
		for i := range w.last.Procs {
			p := &w.last.Procs[i]
			p.Role = c.roles[p.ID.PID]
			if slices.Contains(c.hello, p.ID.PID) {
				w.trainers = append(w.trainers, event.Trainer{ID: p.ID})
			}
		}
		if got := pids(w.Training(false)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestTrainingWithoutAHook: the environment tells which processes train, and which of them
// are rank 0, once it was read.
func TestTrainingWithoutAHook(t *testing.T) {
	torchrun := []string{"", "LOCAL_RANK=0\x00RANK=0\x00", "LOCAL_RANK=1\x00RANK=1\x00"}
	lightning := []string{"", "LOCAL_RANK=1\x00", "LOCAL_RANK=2\x00"}
	const unread = "?"
	for name, c := range map[string]struct {
		environ     []string // of 1, 2 and 3
		age         time.Duration
		train, zero []int
		unsure      bool
	}{
		"torchrun":                 {torchrun, time.Minute, []int{2, 3}, []int{2}, false},
		"Lightning's main process": {lightning, time.Minute, []int{1, 2, 3}, []int{1}, false},
		"RANK alone":               {[]string{"", "RANK=2\x00", "RANK=3\x00"}, time.Minute, []int{2, 3}, nil, false},
		"no ranks":                 {[]string{"", "", ""}, time.Minute, nil, nil, false},
		"nothing was read yet":     {[]string{unread, unread, unread}, 0, nil, nil, true},
		"rank 0 alone was read":    {[]string{"", torchrun[1], unread}, 0, []int{2}, []int{2}, true},
		"rank 1 alone was read":    {[]string{"", lightning[0], lightning[1]}, 0, []int{3}, nil, true},
		"too old to be read":       {[]string{"", torchrun[1], unread}, time.Minute, []int{2}, []int{2}, false},
	} {
		w := New(Options{Proc: t.TempDir()})
		s := family()
		s.Procs = s.Procs[:3]
		s.Mono = time.Hour
		for i := range s.Procs {
			p := &s.Procs[i]
			w.readEnviron(t, p, c.environ[i])
			e := w.roles.places.seen[programOf(p)]
			e.since = s.Mono - c.age
			if c.environ[i] == unread {
				e.known, e.final, e.asked = false, false, true
			}
		}
		w.Update(s, nil)
		all := w.Training(true)
		if got := pids(all); !slices.Equal(got, c.train) {
			t.Errorf("%s: %v train, want %v", name, got, c.train)
		}
		if len(all) == 0 {
			all = []*rss.Proc{&s.Procs[0]} // the command is asked then
		}
		if got := w.Unsure(all); got != c.unsure {
			t.Errorf("%s: unsure %v, want %v", name, got, c.unsure)
		}
		if zero, _, _ := w.Rank0(all); !slices.Equal(pids(zero), c.zero) {
			t.Errorf("%s: rank 0 is %v, want %v", name, pids(zero), c.zero)
		}
	}
}

// TestNoRank0 says why.
func TestNoRank0(t *testing.T) {
	for _, c := range []struct {
		environ []string
		why     string
		later   bool
	}{
		{[]string{"SLURM_PROCID=3\x00"}, "process 1 is of another rank", false},
		{[]string{"RANK=1\x00", "RANK=2\x00"}, "processes 1 and 2 are of other ranks", false},
		{[]string{"A=b\x00"}, "no RANK, LOCAL_RANK or SLURM_PROCID in the environment of process 1", false},
		{nil, "the environment of process 1 cannot be read", true},
	} {
		w := New(Options{Proc: t.TempDir()})
		w.last = family()
		all := []*rss.Proc{&w.last.Procs[0]}
		for i, environ := range c.environ {
			w.readEnviron(t, &w.last.Procs[i], environ)
			all = append(all[:i], &w.last.Procs[i])
		}
		if zero, why, later := w.Rank0(all); zero != nil || why != c.why || later != c.later {
			t.Errorf("%q: %v, %q, %v; want %q", c.environ, pids(zero), why, later, c.why)
		}
	}
}

// TestCollectors: trainers without loaders have nothing to collect, and one whose hook is
// off cannot.
func TestCollectors(t *testing.T) {
	w := New(Options{})
	loaders := []event.DataLoader{{Workers: []int{11, 12}}}
	w.SetTrainers([]event.Trainer{{ID: rss.ProcID{PID: 1}, Loaders: loaders}, {ID: rss.ProcID{PID: 2}}, {ID: rss.ProcID{PID: 3}, Off: true, Loaders: loaders}})
	if all, trainers := w.Trainers().Collectors(); !slices.Equal(all, []int{1, 11, 12}) || !slices.Equal(trainers, []int{1}) {
		t.Errorf("%v, of them trainers %v", all, trainers)
	}
	if w.Trainers().Recycling() {
		t.Error("a worker is being replaced")
	}
	if w.trainers[0].Loaders[0].Leaving = []int{9}; !w.Trainers().Recycling() {
		t.Error("no worker is being replaced")
	}
}

func proc(pid int, anon, file rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S', RSS: anon + file, Anon: anon, File: file, Virtual: 10 * (anon + file)}
}

// staffed knows one trainer, PID 1, with these workers.
func staffed(workers ...int) *Workers {
	f := New(Options{Proc: "/proc"})
	f.trainers = []event.Trainer{{
		ID: rss.ProcID{PID: 1, Start: 1}, CanRecycle: true,
		Loaders: []event.DataLoader{{N: 1, NumWorkers: len(workers), CanRecycle: true, Workers: workers}},
	}}
	return f
}

// see updates with a sample of these.
func (w *Workers) see(procs ...rss.Proc) { w.Update(&rss.Sample{Procs: procs}, nil) }

// needsTen has a worker report that it came to 10 bytes of its own and stayed there.
func needsTen(w *Workers, pid int) { w.Grown(w.trainers[0].ID, pid, 8, 10, 10) }

func TestStaffIsThoseWhoLive(t *testing.T) {
	f := staffed(11, 12, 13, 0)
	dead := proc(12, 5, 5)
	dead.State = 'Z'
	f.see(proc(1, 9, 9), proc(11, 5, 7), dead)
	if len(f.staff) != 1 || f.staff[11] == nil || f.staff[11].trainer != 1 || !f.staff[11].able {
		t.Errorf("staff %+v, want worker 11 alone", f.staff)
	}
	if f.leastFile != 7 {
		t.Errorf("least file %d, want 7", f.leastFile)
	}
}

// TestGivenOutPID: a PID that another process has now is another worker.
func TestGivenOutPID(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, 100, 0), proc(11, 300, 0))
	f.took[9] = 11
	f.see(proc(1, 100, 0), proc(11, 300, 0))
	f.trainers[0].Loaders[0].Workers = nil // the epoch ends
	f.see(proc(1, 100, 0))
	if len(f.took) != 0 {
		t.Errorf("still remembers %v", f.took)
	}
	f.trainers[0].Loaders[0].Workers = []int{11} // the next begins
	again := proc(11, 100, 0)
	again.ID.Start = 2
	s := &rss.Sample{Mono: time.Minute, Procs: []rss.Proc{proc(1, 100, 0), again}}
	f.Update(s, nil)
	if e := f.staff[11]; e.id != again.ID || e.first.Anon != 100 || e.since != time.Minute || e.fresh {
		t.Errorf("taken for the one before: %+v", e)
	}
}

func TestReplacedWorkerThatLeaves(t *testing.T) {
	f := staffed(12)
	f.trainers[0].Loaders[0].Leaving = []int{11}
	f.took[11] = 12
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0), proc(11, 1, 0), proc(12, 1, 0)}}
	f.Update(s, nil)
	if f.took[11] != 12 || !f.staff[12].fresh || f.staff[11] != nil {
		t.Errorf("took %v, staff %v", f.took, f.staff)
	}
	f.trainers[0].Loaders[0] = event.DataLoader{N: 1, NumWorkers: 2, Workers: []int{11, 12}} // 11 was given out again
	f.Update(s, nil)
	if _, ok := f.took[11]; ok {
		t.Error("the replacement still stands for the worker that has its old PID")
	}
}

func TestCounted(t *testing.T) {
	p := proc(1, 100, 30)
	p.Shmem, p.RSS = 20, 150
	for acc, want := range map[event.Accounting]rss.Bytes{
		event.AccountingRSS: 150, event.AccountingNoShared: 100, event.AccountingCgroup: 100,
		event.AccountingVirtual: 1300, event.AccountingPSS: 0,
	} {
		if got := Counted(&p, acc); got != want {
			t.Errorf("%s: %d, want %d", acc, got, want)
		}
	}
}

// TestTorchWorkerIsNoPoolWorker: --worker-match may match a whole training, and
// a signal to a worker of PyTorch's ends it.
func TestTorchWorkerIsNoPoolWorker(t *testing.T) {
	f := staffed(11)
	f.Pools = *madeUpPools(nil, "")
	procs := []rss.Proc{proc(2, 1, 0), proc(1, 10, 0), proc(11, 10, 0), proc(21, 10, 0)}
	for i, parent := range []int{0, 2, 1, 2} {
		procs[i].Parent = parent
		f.Pools.says(&procs[i], true)
		f.readEnviron(t, &procs[i], "")
	}
	f.Update(&rss.Sample{Procs: procs}, map[int]rss.Role{1: rss.RoleTrainer, 11: rss.RoleWorker}, procs[0].ID)
	if e := f.staff[11]; e == nil || e.trainer != 1 {
		t.Errorf("PyTorch's worker became %+v", e)
	}
	if e := f.staff[1]; e != nil {
		t.Errorf("the trainer became %+v", e)
	}
	if e := f.staff[21]; e == nil || e.trainer != 0 || !e.able {
		t.Errorf("the pool's worker became %+v", e)
	}
	for i, role := range []rss.Role{"", rss.RoleTrainer, rss.RoleWorker, rss.RoleWorker} {
		if procs[i].Role != role {
			t.Errorf("process %d is %q, want %q", procs[i].ID.PID, procs[i].Role, role)
		}
	}
}
