package workers

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
