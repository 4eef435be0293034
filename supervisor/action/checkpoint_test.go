package action

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// queue plays the watcher for a requeue.
type queue struct {
	said  []string // what was asked for, in order
	deaf  bool     // no process catches the signal
	ended *Result
}

func (q *queue) Ask() Result {
	q.said = append(q.said, "ask")
	if q.deaf {
		return Result{Reason: event.ReasonNotCaught, Detail: "USR1, process 12"}
	}
	return Result{OK: true, Reason: event.ReasonDone}
}
func (q *queue) PutBack() { q.said = append(q.said, "start") }
func (q *queue) Ended() (Result, bool) {
	if q.ended == nil {
		return Result{}, false
	}
	return *q.ended, true
}

func alive() *rss.Sample { return &rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 12}}}} }

func TestRequeue(t *testing.T) {
	at := func(s float64, procs *rss.Sample) World {
		return World{Now: time.Duration(s * float64(time.Second)), Sample: procs}
	}
	unwritten := func() *fileWatch { return &fileWatch{first: &fileState{}} }
	for _, c := range []struct {
		name  string
		c     Checkpoint
		deaf  bool
		steps func(a *Requeuing, c *Checkpoint) // until it is started
		said  string
		saved string
	}{
		{"no checkpoint is wanted", Checkpoint{}, false, func(*Requeuing, *Checkpoint) {}, "start", ""},
		{"no process catches the signal", Checkpoint{Wanted: true, Timeout: time.Minute}, true, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
		}, "ask start", "no checkpoint: the process does not catch this signal; USR1, process 12"},
		{"the file is written", Checkpoint{Wanted: true, Timeout: time.Minute, File: unwritten()}, false, func(a *Requeuing, c *Checkpoint) {
			a.Step(at(1, alive()))
			a.Step(at(2, alive()))
			c.File.written = true
			a.Step(at(4.5, alive()))
		}, "ask start", "the checkpoint was written after 3.5 s"},
		{"the command ends", Checkpoint{Wanted: true, Timeout: time.Minute}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
			a.Step(at(3, &rss.Sample{}))
		}, "ask start", "the command ended after 2.0 s"},
		{"the command ends", Checkpoint{Wanted: true, Timeout: time.Minute}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
			a.put("the command ended")
		}, "ask start", "the command ended"},
		{"no end is seen", Checkpoint{Wanted: true, Timeout: time.Minute, File: unwritten()}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
			a.Step(at(60.9, alive()))
			a.Step(at(61, alive()))
		}, "ask start", "no end of a checkpoint was seen within 1m0s"},
		{"the limit comes near", Checkpoint{Wanted: true, Timeout: time.Minute, Near: func() bool { return true }}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
		}, "ask start", "the limit came too near after 0.0 s of waiting for the checkpoint"},
		{"the file system hangs", Checkpoint{Wanted: true, Timeout: 5 * time.Second, File: &fileWatch{}}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(0.9, alive()))
			if a.started || a.asked {
				panic("asked before the file was looked at")
			}
			a.Step(at(1, alive()))
			a.Step(at(6, alive()))
		}, "ask start", "no end of a checkpoint was seen within 5s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &queue{deaf: c.deaf}
			a := Requeue(q, c.c, 0)
			c.steps(a, &a.checkpoint)
			if !a.started || strings.Join(q.said, " ") != c.said {
				t.Fatalf("started %v, asked for %q, want %s", a.started, q.said, c.said)
			}
			if _, done := a.Step(at(100, alive())); done {
				t.Fatal("done before the job was in the queue")
			}
			if a.Wakes() <= 100*time.Second {
				t.Errorf("looks again at %v", a.Wakes())
			}
			q.ended = &Result{OK: true, Reason: event.ReasonDone, Detail: "with 375 MiB"}
			r, done := a.Step(at(101, alive()))
			want := strings.TrimSuffix("with 375 MiB; "+c.saved, "; ")
			if !done || !r.OK || r.Detail != want || strings.Join(q.said, " ") != c.said {
				t.Errorf("%+v, %v, want %q; asked for %q", r, done, want, q.said)
			}
		})
	}
}

// looks has the file looked at for so long, as if time flew.
func (f *fileWatch) looks(t *testing.T, span time.Duration) {
	t.Helper()
	for end := f.next + span; f.next < end; {
		f.look(f.next)
		if f.Busy() && !f.Wait(time.Minute) {
			t.Fatal("not looked at within a minute")
		}
	}
}

func TestFileWatch(t *testing.T) {
	write := func(path, text string) {
		wardentest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, c := range []struct {
		name          string
		before, after func(path string)
	}{
		{"made", func(string) {}, func(path string) { write(path, "1") }},
		{"written over", func(path string) { write(path, "old") }, func(path string) { write(path, "newer") }},
		{"renamed into place, as long as the one before", func(path string) { write(path, "old") }, func(path string) {
			write(path+".new", "new")
			wardentest.NoError(t, os.Rename(path+".new", path))
		}},
		{"a directory into which one is renamed", func(path string) {
			wardentest.NoError(t, os.Mkdir(path, 0o700))
		}, func(path string) { write(filepath.Join(path, "model.pt"), "1") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checkpoint")
			c.before(path)
			f := watchFile(path)
			f.looks(t, 2*fileStill)
			if f.first == nil || f.written {
				t.Fatal("written before it was")
			}
			c.after(path)
			f.looks(t, fileStill)
			if f.written {
				t.Error("written while it may still change")
			}
			if f.looks(t, 3*fileLook); !f.written {
				t.Error("not written")
			}
		})
	}
}

// TestFileWatchStillWritten: a file that grows at each look is not done; nor is one
// that is removed first, or one that stays as it was; nor while the file system hangs.
func TestFileWatchStillWritten(t *testing.T) {
	for name, state := range map[string]func(n int) fileState{
		"grows": func(n int) fileState { return fileState{exists: true, size: int64(n)} },
		"stays": func(int) fileState { return fileState{exists: true} },
		"goes":  func(n int) fileState { return fileState{exists: n == 0} },
	} {
		n := 0
		f := &fileWatch{Reader: probe.New(nil, func(string) fileState { n++; return state(n - 1) })}
		if f.looks(t, 10*fileStill); f.written || f.first == nil {
			t.Errorf("a file that %s counts as written", name)
		}
	}
	gate := make(chan struct{})
	defer close(gate)
	f := &fileWatch{Reader: probe.New(nil, func(string) fileState { <-gate; return fileState{} })}
	for now := range 10 * time.Second / fileLook {
		f.look(now * fileLook)
	}
	if f.first != nil || f.written {
		t.Error("ready without an answer")
	}
}

func parsed(t *testing.T, text string) event.Rule {
	t.Helper()
	r, err := event.ParseRule(text)
	wardentest.NoError(t, err)
	return r
}

// TestNewSize: what each form of the rule comes to.
func TestNewSize(t *testing.T) {
	a := &requeuing{Env: &Env{Settings: &settings.Policy{Requeue: settings.Requeue{MaxRequeues: 3}}, View: &view.View{}}}
	l := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: 980 * rss.MiB, Limit: 1000 * rss.MiB}
	facts := jobFacts{job: slurm.RunningJob{ID: "46", State: "RUNNING", Requeue: true, Batch: true, MiB: 1000, CPUs: 2, Nodes: 1}, room: slurm.MaxMemory{MiB: 8000}}
	for text, want := range map[string]uint64{
		"97%:requeue": 1250, "97%:requeue=+25%": 1250, "97%:requeue=+50%": 1500, "97%:requeue=3G": 3072, "97%:requeue=20G": 8000,
		"97%:requeue=advice": 1536, // half as much again, as a size that people write
	} {
		if got, h := a.newSize(parsed(t, text), &l, &facts); got != want || !h.OK {
			t.Errorf("%s: %d MiB, %+v; want %d", text, got, h, want)
		}
	}
	l.Name, l.Scope, l.Limit = event.LimitSlurm, event.ScopeStep, 500*rss.MiB
	if _, h := a.newSize(parsed(t, "97%:requeue"), &l, &facts); h.OK || h.Reason != event.ReasonNoHelp {
		t.Errorf("a step by srun --mem: %+v", h)
	}
}

// TestKeepRequeue: when a command has ended by itself its own rsswarden sees a requeue
// through that waited for its checkpoint, and the next leader begins none.
func TestKeepRequeue(t *testing.T) {
	for asked, kept := range map[string]bool{"": true, "SIGTERM": false} {
		ladder := policy.New([]event.Rule{parsed(t, "85%:requeue")}, 1)
		l := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: 90, Limit: 100}
		in := policy.Input{Now: time.Second, Limits: []event.Limit{l}}
		ladder.Observe(in.Now, in.Limits)
		for due := range ladder.Asks(&in) {
			in.Feasible[due.Ask] = event.Feasibility{OK: true}
		}
		d := ladder.Judge(in).Decisions
		if len(d) != 1 {
			t.Fatalf("decided %+v", d)
		}
		s := &Set{Env: &Env{Ladder: ladder}, requeue: &requeuing{asked: asked}, flight: &Flight{Decision: d[0], Before: l}}
		s.KeepRequeue()
		m := ladder.Snapshot(time.Second, time.Second, 0)
		if fired := len(m.Rungs) == 1 && m.Rungs[0].Fired; fired != kept {
			t.Errorf("asked by %q to end: handed over as done: %v", asked, fired)
		}
	}
}

// TestTraceTimes: twice the last time counts, and no more than a second.
func TestTraceTimes(t *testing.T) {
	var times traceTimes
	if got := times.expected(); got != firstTraceTime {
		t.Errorf("%v before the first", got)
	}
	times.add(50 * time.Millisecond)
	if got := times.expected(); got != 100*time.Millisecond {
		t.Errorf("%v after one of 50 ms", got)
	}
	times.add(10 * time.Second)
	if got := times.expected(); got != 2*firstTraceTime {
		t.Errorf("%v after one of 10 s", got)
	}
}
