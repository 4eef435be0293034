package workers

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fourWorkers maps so many MiB in each of four workers of 114 MiB anon.
func fourWorkers(mapped, counted rss.Bytes) []Usage {
	w := make([]Usage, 4)
	for i := range w {
		w[i] = Usage{
			ID:     rss.ProcID{PID: 100 + i},
			Mapped: mapped * rss.MiB, CountedMapped: counted * rss.MiB, CountedSure: counted * rss.MiB, Counted: (114 + counted) * rss.MiB,
		}
	}
	return w
}

// traced is a made-up python command, process 1, with two forks, 11 and 13.
type traced struct {
	*Workers
	t  *testing.T
	fs rsstest.Tree
	s  rss.Sample
}

const python = "/usr/bin/python3.11"

func newTraced(t *testing.T) *traced {
	fs := rsstest.Empty(t)
	w := &traced{Workers: New(Options{Proc: fs.Proc}), t: t, fs: fs}
	w.put(1, 0, "python", python, 0)
	w.put(11, 1, "python", python, 200*rss.MiB)
	w.put(13, 1, "python", python, rss.MiB)
	return w
}

// put adds a process, or changes it, that runs this program.
func (w *traced) put(pid, parent int, comm, program string, file rss.Bytes) *rss.Proc {
	w.end(pid)
	w.s.Procs = append(w.s.Procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, Parent: parent, Comm: comm, State: 'S', File: file, RSS: file})
	slices.SortFunc(w.s.Procs, func(p, q rss.Proc) int { return p.ID.PID - q.ID.PID })
	if program != "" {
		w.fs.Write(fmt.Sprintf("proc/%d/comm", pid), comm)
		if err := os.Symlink(program, w.fs.Path(fmt.Sprintf("proc/%d/exe", pid))); err != nil {
			w.t.Fatal(err)
		}
	}
	w.readEnviron(w.t, w.s.Find(pid), "")
	return w.s.Find(pid)
}

func (w *traced) end(pid int) {
	w.s.Procs = slices.DeleteFunc(w.s.Procs, func(p rss.Proc) bool { return p.ID.PID == pid })
	_ = os.Remove(w.fs.Path(fmt.Sprintf("proc/%d/exe", pid))) // it may not be there
}

// look is what could be traced.
func (w *traced) look(a event.Accounting, all bool) ([]int, Traceable) {
	w.Update(&w.s, nil, rss.ProcID{PID: 1, Start: 1})
	found := w.Traceable(a, Tracing{All: all, Least: 4 * rss.MiB, Tops: []rss.ProcID{{PID: 1, Start: 1}}, Never: func(id rss.ProcID) bool { return id.PID == 99 }})
	var list []int
	for _, u := range found.List {
		list = append(list, u.ID.PID)
	}
	return list, found
}

func TestMappers(t *testing.T) {
	f := staffed(11, 12)
	f.trainers[0].Loaders = append(f.trainers[0].Loaders, event.DataLoader{N: 2}) // loads for itself
	withPSS := proc(11, 100, 300)
	withPSS.PSS = &rss.PSS{PSS: 200, RSS: 400}
	f.last = &rss.Sample{Procs: []rss.Proc{proc(1, 50, 70), withPSS}}
	list := f.Mappers(event.AccountingRSS)
	if len(list) != 3 {
		t.Fatalf("%d mappers, want both workers and the trainer", len(list))
	}
	if list[0].Mapped != 300 || list[0].CountedMapped != 300 || list[0].Counted != 400 {
		t.Errorf("worker 11: %+v", list[0])
	}
	if list[1].ID.PID != 12 || list[1].Mapped != 0 {
		t.Errorf("worker 12, not in the sample yet: %+v", list[1])
	}
	if list[2].ID.PID != 1 || list[2].Mapped != 70 {
		t.Errorf("the trainer: %+v", list[2])
	}
	if list := f.Mappers(event.AccountingPSS); list[0].Mapped != 300 || list[0].CountedMapped != 150 {
		t.Errorf("worker 11 by pss: %+v, want half of what is mapped", list[0])
	}
}

// TestTrimmable holds that what a trim could not take is not counted on again:
// libraries, and private mappings where those are to be left alone.
func TestTrimmable(t *testing.T) {
	f := New(Options{Proc: "/proc"})
	m := Usage{ID: rss.ProcID{PID: 11, Start: 1}, Mapped: 900 * rss.MiB, CountedMapped: 900 * rss.MiB}
	half := m
	half.CountedMapped = 450 * rss.MiB // as PSS has it, shared by two
	if got := f.Trimmable(m); got != 900*rss.MiB-TrimFloor {
		t.Errorf("before any trim: %v", got)
	}
	f.Trimmed(11, 800*rss.MiB)
	if got := f.Trimmable(m); got != 100*rss.MiB {
		t.Errorf("after one that left 800 MiB: %v", got)
	}
	if got := f.Trimmable(half); got != 50*rss.MiB {
		t.Errorf("in PSS: %v", got)
	}
	f.Trimmed(11, 2*rss.GiB)
	if got := f.Trimmable(m); got != 0 {
		t.Errorf("nothing can be taken: %v", got)
	}
	f.see()
	if len(f.left) != 0 {
		t.Errorf("kept of processes that ended: %v", f.left)
	}
}

// TestTrimmableByPSS: libraries, which a trainer and all its workers have, count little
// in each, and data that one alone has mapped in full, whatever part PSS is of RSS.
func TestTrimmableByPSS(t *testing.T) {
	f := staffed(11, 12, 13)
	libs := func(pid int) rss.Proc { return proc(pid, 1000*rss.MiB, 20*rss.MiB) }
	f.see(proc(1, 1000*rss.MiB, 100*rss.MiB), libs(11), libs(12), libs(13))
	for _, c := range []struct {
		what          string
		data, counted rss.Bytes // MiB, of each worker, and of that at the last reading
		since         rss.Bytes // mapped since
		split         bool
		want          rss.Bytes
	}{
		{"nothing but libraries", 0, 0, 0, true, 0},
		{"its own data", 10, 10, 0, true, 10},
		{"data of all three", 30, 10, 0, true, 10},
		{"and some since", 30, 10, 6, true, 16},
		{"an old kernel guesses", 30, 10, 0, false, 8},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := libs(11)
			p.PSS = &rss.PSS{PSS: (250 + 5 + c.counted) * rss.MiB, RSS: (1020 + c.data) * rss.MiB}
			if c.split {
				p.PSS.Split, p.PSS.File, p.PSS.Mapped = true, (5+c.counted)*rss.MiB, (20+c.data)*rss.MiB
			}
			p.File += (c.data + c.since) * rss.MiB
			p.RSS += (c.data + c.since) * rss.MiB
			if got := f.Trimmable(mapped(&p, event.AccountingPSS)); (got+rss.MiB/2)/rss.MiB != c.want {
				t.Errorf("%v, want %d MiB", got, c.want)
			}
		})
	}
}

// TestSpread: until PSS is read again, new mappings count as shared as widely as the data
// were at the last reading, or as libraries are.
func TestSpread(t *testing.T) {
	f := staffed(11, 12, 13)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1000*rss.MiB, 100*rss.MiB)}}
	for _, pid := range []int{11, 12, 13} {
		s.Procs = append(s.Procs, proc(pid, 1000*rss.MiB, 20*rss.MiB))
	}
	f.Update(s, nil)
	for _, c := range []struct {
		what string
		pss  *rss.PSS
		want rss.Bytes // MiB, of 420
	}{
		{"never read", nil, 105},
		{"read with libraries alone", &rss.PSS{Split: true, Mapped: 20 * rss.MiB, File: 5 * rss.MiB}, 5 + 100},
		{"read with data of its own", &rss.PSS{Split: true, Mapped: 120 * rss.MiB, File: 105 * rss.MiB}, 105 + 300},
		{"read with data that two have", &rss.PSS{Split: true, Mapped: 120 * rss.MiB, File: 55 * rss.MiB}, 55 + 150},
	} {
		p := s.Find(11)
		p.File, p.RSS, p.PSS = 420*rss.MiB, 1420*rss.MiB, c.pss
		m := f.spread(f.keeps(mapped(p, event.AccountingPSS)), p)
		if got := m.CountedMapped; got != c.want*rss.MiB {
			t.Errorf("%s: %v counts, want %d MiB", c.what, got, c.want)
		}
	}
}

func TestBudget(t *testing.T) {
	limit := func(a event.Accounting, usedMiB rss.Bytes) event.Limit {
		return event.Limit{Name: event.LimitSlurm, Accounting: a, Used: usedMiB * rss.MiB, Limit: 3000 * rss.MiB}
	}
	const rung = 2550 * rss.MiB // 85 %
	for _, c := range []struct {
		what string
		of   event.Limit
		all  []Usage
		want rss.Bytes
	}{
		// rest 700; (2550 − 700 − 300) / 4 = 387.5, to the four leading bits
		{"nothing mapped yet", limit(event.AccountingRSS, 700), fourWorkers(0, 0), 384 * rss.MiB},
		{"mapped pages are no part of the rest", limit(event.AccountingRSS, 1900), fourWorkers(300, 300), 384 * rss.MiB},
		{"no room", limit(event.AccountingRSS, 2900), fourWorkers(0, 0), budgetFloor},
		// Four share the same pages: 1200 counts as 300; 4 × 387.5 = 1550
		{"pss of shared pages", limit(event.AccountingPSS, 1000), fourWorkers(300, 75), 1536 * rss.MiB},
		{"pss of private pages", limit(event.AccountingPSS, 1900), fourWorkers(300, 300), 384 * rss.MiB},
		{"noshared does not count them", limit(event.AccountingNoShared, 700), fourWorkers(300, 0), 0},
		{"nor does a cgroup", limit(event.AccountingCgroup, 700), fourWorkers(300, 0), 0},
		{"nor does virtual memory shrink", limit(event.AccountingVirtual, 700), fourWorkers(300, 0), 0},
		{"no worker", limit(event.AccountingRSS, 700), nil, 0},
		{"no limit", event.Limit{Accounting: event.AccountingRSS}, fourWorkers(1, 1), 0},
	} {
		if got := budget(Bound{Limit: c.of, Rung: rung}, c.all, 0); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestBudgetIsNotRevisedForLittle(t *testing.T) {
	in := Bound{
		Limit: event.Limit{Accounting: event.AccountingRSS, Used: 700 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:  2550 * rss.MiB,
	}
	workers := fourWorkers(0, 0)
	last := budget(in, workers, 0)
	written := 0
	for used := 700 * rss.MiB; used < 1500*rss.MiB; used += rss.MiB {
		in.Limit.Used = used
		if b := budget(in, workers, last); b != last {
			written++
			last = b
		}
	}
	if written == 0 || written > 10 {
		t.Errorf("written %d times while the rest doubled", written)
	}
	if b := budget(in, nil, last); b != 0 {
		t.Errorf("without workers %v; want it taken back", b)
	}
}

// Whatever the mix, all workers at their budget stay below the rung, as long as the floor leaves a choice.
func TestBudgetKeepsBelowTheRung(t *testing.T) {
	for limit := 500 * rss.MiB; limit < 64*rss.GiB; limit = limit * 3 / 2 {
		for n := 1; n <= 32; n *= 2 {
			rest := limit / 4
			in := Bound{Limit: event.Limit{Accounting: event.AccountingRSS, Used: rest, Limit: limit}, Rung: limit.Scale(0.85)}
			b := budget(in, make([]Usage, n), 0)
			if most := rest + rss.Bytes(n)*b; b > budgetFloor && most > in.Rung {
				t.Errorf("limit %v, %d workers: budget %v reaches %v, rung %v", limit, n, b, most, in.Rung)
			}
		}
	}
}

// Workers share their libraries, which tells nothing about the data that they map: until
// it was read what that counts, it counts in full.
func TestBudgetOfWhatLibrariesShare(t *testing.T) {
	const kept, counted = 20 * rss.MiB, 4 * rss.MiB
	for _, c := range []struct {
		what              string
		data, most, sure  rss.Bytes // of each, in MiB, beside its libraries
		used, left, right rss.Bytes // MiB; the budget is in between
	}{
		{"no data yet", 0, 0, 0, 1000, 300, 350},
		{"data not read yet", 100, 100, 0, 1000, 300, 350},
		{"data read, each has its own", 100, 100, 100, 1400, 300, 350},
		{"data read, all have the same", 100, 25, 25, 1100, 1100, 1400},
		{"read when there was less", 100, 63, 25, 1100, 480, 560},
	} {
		in := Bound{
			Limit: event.Limit{Accounting: event.AccountingPSS, Used: c.used * rss.MiB, Limit: 3000 * rss.MiB},
			Rung:  2550 * rss.MiB,
		}
		workers := fourWorkers(20+c.data, 0)
		for i := range workers {
			w := &workers[i]
			w.Kept, w.CountedKept = kept, counted
			w.CountedMapped, w.CountedSure = counted+c.most*rss.MiB, counted+c.sure*rss.MiB
		}
		if b := budget(in, workers, 0); b < c.left*rss.MiB || b > c.right*rss.MiB {
			t.Errorf("%s: %v, want %d to %d MiB", c.what, b, c.left, c.right)
		}
	}
}

// What is certain of a sum of PSS may be far from it where much is mapped: what is
// anonymous is known all the same, and leaves no room that is not there.
func TestBudgetOfTheLeastRest(t *testing.T) {
	in := Bound{
		Limit: event.Limit{Accounting: event.AccountingPSS, Used: 1500 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:  2550 * rss.MiB,
	}
	unknown := budget(in, fourWorkers(300, 250), 0) // 500 beside
	in.Rest = 1450 * rss.MiB
	if b := budget(in, fourWorkers(300, 250), 0); b < 190*rss.MiB || b > 240*rss.MiB || unknown < 2*b { // (2550 − 1450 − 300) / 4, shared by 1.2
		t.Errorf("%v, and %v where the rest is not known", b, unknown)
	}
}

// What mapped pages count under pss is known once it was read.
func TestBudgetWaitsForPSS(t *testing.T) {
	in := Bound{Limit: event.Limit{Accounting: event.AccountingPSS, Used: 700 * rss.MiB, Limit: 3000 * rss.MiB}, Rung: 2550 * rss.MiB}
	for _, last := range []rss.Bytes{0, 512 * rss.MiB} {
		if b := budget(in, fourWorkers(300, 0), last); b != last {
			t.Errorf("%v became %v", last, b)
		}
	}
}

// TestBudgetOfSeveralLimits is the least of them, and before any loader has said how many
// workers it has, it leaves room for eight.
func TestBudgetOfSeveralLimits(t *testing.T) {
	bound := func(limit rss.Bytes) Bound {
		return Bound{Limit: event.Limit{Accounting: event.AccountingRSS, Limit: limit}, Rung: limit.Scale(0.85)}
	}
	w := New(Options{})
	each, rung, known := w.Budget([]Bound{bound(8 * rss.GiB), bound(4 * rss.GiB), {Limit: event.Limit{Accounting: event.AccountingCgroup}}}, 0)
	if each != 384*rss.MiB || rung != bound(4*rss.GiB).Rung || known != 0 {
		t.Errorf("%v below %v for %d", each, rung, known)
	}
	w = staffed(11, 12)
	if each, _, known := w.Budget([]Bound{bound(4 * rss.GiB)}, 0); each != 1536*rss.MiB || known != 2 {
		t.Errorf("%v for %d", each, known)
	}
}

// TestWhichProcessIsALoaderWorker: process 11 is one, unless a row says otherwise.
func TestWhichProcessIsALoaderWorker(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*traced)
		auto    bool
	}{
		"a fork of the command": {func(*traced) {}, true},
		"the only fork":         {func(w *traced) { w.end(13) }, false},
		"the only one left": {func(w *traced) {
			w.look(event.AccountingRSS, false)
			w.end(13)
		}, true},
		"another program":             {func(w *traced) { w.put(11, 1, "python", "/usr/bin/perl", 200*rss.MiB) }, false},
		"one that cannot be read":     {func(w *traced) { w.put(11, 1, "python", "", 200*rss.MiB) }, false},
		"another name":                {func(w *traced) { w.put(11, 1, "wandb-service", python, 200*rss.MiB) }, false},
		"named by PyTorch 2.6":        {func(w *traced) { w.put(11, 1, "pt_data_worker", python, 200*rss.MiB) }, true},
		"named so by another program": {func(w *traced) { w.put(11, 1, "pt_data_worker", "/bin/x", 200*rss.MiB) }, false},
		"an orphan":                   {func(w *traced) { w.put(11, 0, "python", python, 200*rss.MiB) }, false},
		"a trainer with workers":      {func(w *traced) { w.put(12, 11, "python", python, rss.MiB) }, false},
		"a trainer between two epochs": {func(w *traced) {
			w.put(12, 11, "python", python, rss.MiB)
			w.look(event.AccountingRSS, false)
			w.end(12)
		}, false},
		"with a helper of another kind": {func(w *traced) { w.put(12, 11, "gzip", "/bin/gzip", rss.MiB) }, true},
		"a rank":                        {func(w *traced) { w.readEnviron(w.t, w.s.Find(11), "LOCAL_RANK=0\x00") }, false},
		"too small":                     {func(w *traced) { w.put(11, 1, "python", python, TrimFloor+3*rss.MiB) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for all, want := range map[bool]bool{false: c.auto, true: name != "too small"} {
				w := newTraced(t)
				c.prepare(w)
				if list, _ := w.look(event.AccountingRSS, all); slices.Contains(list, 11) != want {
					t.Errorf("all %v: %v", all, list)
				}
			}
		})
	}
}

// TestHookedAreNotTraced: what the hook trims is not stopped, unless all are to be.
func TestHookedAreNotTraced(t *testing.T) {
	w := newTraced(t)
	w.put(1, 0, "python", python, 90*rss.MiB)
	w.put(2, 1, "python", python, 90*rss.MiB)  // the trainer
	w.put(11, 2, "python", python, 90*rss.MiB) // has the hook
	w.put(12, 2, "python", python, 90*rss.MiB) // of a pool of its own
	w.put(99, 2, "python", python, 90*rss.MiB) // never
	w.SetTrainers([]event.Trainer{{ID: w.s.Find(2).ID, Loaders: []event.DataLoader{{NumWorkers: 1, Workers: []int{11}}}}})
	if list, _ := w.look(event.AccountingRSS, false); !slices.Equal(list, []int{12}) {
		t.Errorf("traced %v, want the one without the hook", list)
	}
	if list, _ := w.look(event.AccountingRSS, true); !slices.Equal(list, []int{1, 2, 11, 12}) {
		t.Errorf("all: %v, want trainer and command, too", list)
	}
}

// TestTraceableInTheOrderOfGain: as the limit counts, which is not as they are large.
func TestTraceableInTheOrderOfGain(t *testing.T) {
	w := newTraced(t)
	for pid, c := range map[int][2]rss.Bytes{11: {300, 30}, 12: {200, 100}, 13: {100, 50}} {
		p := w.put(pid, 1, "python", python, c[0]*rss.MiB)
		p.PSS = &rss.PSS{PSS: c[1] * rss.MiB, RSS: p.RSS}
	}
	if list, _ := w.look(event.AccountingRSS, true); !slices.Equal(list, []int{11, 12, 13}) {
		t.Errorf("rss: %v", list)
	}
	if list, _ := w.look(event.AccountingPSS, true); !slices.Equal(list, []int{12, 13, 11}) {
		t.Errorf("pss: %v", list)
	}
	w.Trimmed(12, 198*rss.MiB)
	if list, _ := w.look(event.AccountingRSS, true); !slices.Equal(list, []int{11, 13}) {
		t.Errorf("after a trim: %v", list)
	}
}

// TestNoneTraceable says what there is instead.
func TestNoneTraceable(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*traced)
		want    Traceable
	}{
		"no worker":      {func(w *traced) { w.end(11) }, Traceable{}},
		"a trainer":      {func(w *traced) { w.end(11); w.put(1, 0, "python", python, 200*rss.MiB) }, Traceable{Trainer: true}},
		"small ones":     {func(w *traced) { w.put(11, 1, "python", python, 30*rss.MiB) }, Traceable{Small: true}},
		"not read yet":   {func(w *traced) { delete(w.roles.places.seen, program{w.s.Find(11).ID, "python"}) }, Traceable{Trainer: true, Small: true, Unread: true}},
		"matched by now": {func(w *traced) { w.put(11, 1, "reader", "/opt/reader", 0).Role = rss.RoleWorker }, Traceable{Small: true}},
	} {
		w := newTraced(t)
		c.prepare(w)
		if _, found := w.look(event.AccountingRSS, false); len(found.List) > 0 || found.Trainer != c.want.Trainer || found.Small != c.want.Small || found.Unread != c.want.Unread {
			t.Errorf("%s: %+v, want %+v", name, found, c.want)
		}
	}
}
