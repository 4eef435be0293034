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
