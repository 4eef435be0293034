package action

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// fakeLoader answers every request with the number 7.
type fakeLoader struct {
	err    error
	worker int
	mode   event.Mode
}

func (f *fakeLoader) Trim(pids ...int) (uint64, []int, error) { return 7, pids, f.err }

func (f *fakeLoader) GC(pids ...int) (uint64, []int, error) { return 7, pids, f.err }

func (f *fakeLoader) Recycle(worker int, mode event.Mode) (uint64, error) {
	f.worker, f.mode = worker, mode
	return 7, f.err
}

func said(what event.Loader, request uint64, pid, worker int) Said {
	return Said{LoaderSaid: event.LoaderSaid{What: what, PID: pid, Worker: worker, Freed: 100 * rss.MiB, Paused: 0.007}, Request: request}
}

func tree(pids ...int) *rss.Sample {
	s := &rss.Sample{}
	for _, pid := range pids {
		s.Procs = append(s.Procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S'})
	}
	return s
}

// look is one step of an action and what is expected of it.
type look struct {
	w    World
	done bool
	want event.Reason
}

func follow(t *testing.T, a Running, looks []look) Result {
	t.Helper()
	var last Result
	for i, l := range looks {
		r, done := a.Step(l.w)
		if done != l.done || done && r.Reason != l.want {
			t.Fatalf("look %d: done %v with %q, want %v with %q", i, done, r.Reason, l.done, l.want)
		}
		last = r
	}
	return last
}

func TestTrim(t *testing.T) {
	t.Run("ends when all have answered", func(t *testing.T) {
		r := follow(t, trimByHook(&fakeLoader{}, []int{11, 12}, 0), []look{
			{w: World{Said: []Said{said(event.LoaderTrimmed, 6, 11, 0)}}}, // an older request
			{w: World{Said: []Said{said(event.LoaderTrimmed, 7, 11, 0)}}},
			{w: World{Said: []Said{said(event.LoaderTrimmed, 7, 11, 0)}}}, // again: counts once
			{w: World{Said: []Said{said(event.LoaderTrimmed, 7, 10, 12)}}, done: true, want: event.ReasonDone},
		})
		if !r.OK || r.Detail != "2 of 2 workers gave back 200 MiB of mapped pages" {
			t.Errorf("result %+v", r)
		}
	})
	t.Run("does not wait for the dead", func(t *testing.T) {
		follow(t, trimByHook(&fakeLoader{}, []int{11, 12}, 0), []look{
			{w: World{Said: []Said{said(event.LoaderTrimmed, 7, 11, 0)}, Sample: tree(11)}, done: true, want: event.ReasonDone},
		})
	})
	t.Run("does not wait for who refused", func(t *testing.T) {
		follow(t, trimByHook(&fakeLoader{}, []int{11}, 0), []look{
			{w: World{Said: []Said{said(event.LoaderRefused, 7, 10, 11)}, Sample: tree(11)}, done: true, want: event.ReasonVanished},
		})
	})
	t.Run("deadline", func(t *testing.T) {
		follow(t, trimByHook(&fakeLoader{}, []int{11}, 0), []look{
			{w: World{Now: TrimDeadline - 1, Sample: tree(11)}},
			{w: World{Now: TrimDeadline, Sample: tree(11)}, done: true, want: event.ReasonTimeout},
		})
	})
	t.Run("request cannot be written", func(t *testing.T) {
		follow(t, trimByHook(&fakeLoader{err: errors.New("disk full")}, []int{11}, 0), []look{{done: true, want: event.ReasonError}})
	})
}

func TestCollect(t *testing.T) {
	slow := said(event.LoaderCollected, 7, 10, 10)
	slow.Paused = 0.25
	r := follow(t, Collect(&fakeLoader{}, []int{10, 11, 12}, []int{10}, 0), []look{
		{w: World{Said: []Said{said(event.LoaderTrimmed, 7, 10, 11), slow}}},
		{w: World{Said: []Said{said(event.LoaderCollected, 7, 10, 11), said(event.LoaderRefused, 7, 10, 12)}}, done: true, want: event.ReasonDone},
	})
	if !r.OK || r.Paused != 250*time.Millisecond || r.Detail != "2 of 3 processes gave back 200 MiB of anonymous memory" {
		t.Errorf("result %+v", r)
	}
	follow(t, Collect(&fakeLoader{}, []int{10}, nil, 0), []look{
		{w: World{Now: CollectDeadline - 1, Sample: tree(10)}},
		{w: World{Now: CollectDeadline, Sample: tree(10)}, done: true, want: event.ReasonTimeout},
	})
}

func TestRecycle(t *testing.T) {
	f := &fakeLoader{}
	r := follow(t, Recycle(f, 11, event.Swap, 0), []look{
		{w: World{Said: []Said{said(event.LoaderAccepted, 7, 10, 11)}, Sample: tree(10, 11)}},
		{w: World{Said: []Said{said(event.LoaderRecycled, 7, 10, 11)}, Sample: tree(10)}, done: true, want: event.ReasonDone},
	})
	if f.worker != 11 || f.mode != event.Swap || !r.OK || r.PID != 11 || r.Paused != 7*time.Millisecond {
		t.Errorf("asked for %d by %s, result %+v", f.worker, f.mode, r)
	}
	refused := said(event.LoaderRefused, 7, 10, 11)
	refused.Reason = string(event.ReasonForkRefused)
	follow(t, Recycle(f, 11, event.Drain, 0), []look{{w: World{Said: []Said{refused}}, done: true, want: event.ReasonForkRefused}})
	follow(t, Recycle(f, 11, event.Drain, 0), []look{
		{w: World{Now: RecycleDeadline, Sample: tree(10, 11)}, done: true, want: event.ReasonTimeout},
	})
	follow(t, Recycle(f, 11, event.Drain, 0), []look{{w: World{Sample: tree()}, done: true, want: event.ReasonVanished}})
	for _, why := range overtaken {
		refused.Reason = why
		follow(t, Recycle(f, 11, event.Drain, 0), []look{{w: World{Said: []Said{refused}, Sample: tree(10)}, done: true, want: event.ReasonVanished}})
	}
	refused.Reason = "its loader changed"
	follow(t, Recycle(f, 11, event.Drain, 0), []look{{w: World{Said: []Said{refused}}, done: true, want: event.ReasonUnsupported}})
	refused.Reason = "fork refused: Resource temporarily unavailable"
	follow(t, Recycle(f, 11, event.Drain, 0), []look{{w: World{Said: []Said{refused}}, done: true, want: event.ReasonForkRefused}})
	deferred := said(event.LoaderAccepted, 7, 10, 11)
	deferred.Reason = string(event.ReasonDeferred)
	if r := follow(t, Recycle(f, 11, event.Drain, 0), []look{{w: World{Said: []Said{deferred}}, done: true, want: event.ReasonDeferred}}); r.OK {
		t.Errorf("put off to the next epoch, and done: %+v", r)
	}
}

func all(s *rss.Sample) []rss.ProcID {
	var ids []rss.ProcID
	for _, p := range s.Procs {
		ids = append(ids, p.ID)
	}
	return ids
}

func TestReplaceWaitsForTheReplacement(t *testing.T) {
	var sent []rss.ProcID
	kill := func(id rss.ProcID, _ syscall.Signal) error {
		sent = append(sent, id)
		return nil
	}
	old := rss.ProcID{PID: 11, Start: 1}
	match := 2
	matching := func() int { return match }
	a := Replace(kill, old, unix.SIGTERM, matching, 2, 0)
	follow(t, a, []look{{w: World{Sample: tree(11, 12)}}})
	match = 1
	follow(t, a, []look{{w: World{Sample: tree(12)}}})
	match = 2
	follow(t, a, []look{{w: World{Sample: tree(12, 13)}, done: true, want: event.ReasonDone}})
	if !slices.Equal(sent, []rss.ProcID{old}) {
		t.Errorf("signalled %v, want the worker once", sent)
	}
	reused, zombie := tree(11, 12), tree(11, 12)
	reused.Procs[0].ID.Start = 99
	zombie.Procs[0].State = 'Z'
	for _, s := range []*rss.Sample{reused, zombie} {
		follow(t, Replace(kill, old, unix.SIGTERM, matching, 2, 0), []look{{w: World{Sample: s}, done: true, want: event.ReasonDone}})
	}
	match = 1
	r := follow(t, Replace(kill, old, unix.SIGTERM, matching, 2, 0), []look{
		{w: World{Now: ReplaceDeadline, Sample: tree(12)}, done: true, want: event.ReasonTimeout},
	})
	if r.Detail != "no replacement appeared" {
		t.Errorf("detail %q", r.Detail)
	}
	refuse := func(rss.ProcID, syscall.Signal) error { return unix.EPERM }
	follow(t, Replace(refuse, old, unix.SIGTERM, matching, 2, 0), []look{{done: true, want: event.ReasonError}})
}

// TestStopOfSome: a process out of scope is left alone, and does not prevent the stop.
func TestStopOfSome(t *testing.T) {
	var shots []int
	refused := 0
	kill := func(id rss.ProcID, sig syscall.Signal) error {
		shots = append(shots, id.PID*100+int(sig))
		if id.PID == refused && sig == unix.SIGKILL {
			return unix.EPERM
		}
		return nil
	}
	meant := func(s *rss.Sample) []rss.ProcID {
		return slices.DeleteFunc(all(s), func(id rss.ProcID) bool { return id.PID >= 20 })
	}
	first := []rss.ProcID{{PID: 10}, {PID: 11}}
	follow(t, Stop(kill, first, meant, time.Second, 0), []look{
		{w: World{Now: 1, Sample: tree(10, 11, 20)}},
		{w: World{Now: 2, Sample: tree(11, 20)}},
		{w: World{Now: 3, Sample: tree(20)}, done: true, want: event.ReasonDone}, // on TERM
	})
	follow(t, Stop(kill, first, meant, time.Second, 0), []look{
		{w: World{Now: time.Second, Sample: tree(11, 12, 20)}},
		{w: World{Now: time.Second + 1, Sample: tree(20)}, done: true, want: event.ReasonDone},
	})
	want := []int{1015, 1115, 1015, 1115, 1109, 1209}
	if !slices.Equal(shots, want) {
		t.Errorf("sent %v, want %v", shots, want)
	}
	refused = 12
	r := follow(t, Stop(kill, first, meant, time.Second, 0), []look{
		{w: World{Now: time.Second, Sample: tree(11, 12, 20)}},
		{w: World{Now: time.Second + 1, Sample: tree(12, 20)}, done: true, want: event.ReasonError},
	})
	if r.OK || r.PID != 12 {
		t.Errorf("what may not be killed: %+v", r)
	}
}

func TestKillSparesWhoeverHasThePIDNow(t *testing.T) {
	child, _ := rsstest.Sleeper(t)
	start := func(int) (uint64, error) { return 5, nil }
	err := Kill(rss.ProcID{PID: child.Process.Pid, Start: 4}, unix.SIGKILL, start)
	if !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process's PID: %v, want ESRCH", err)
	}
	if err := child.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) {
		t.Fatal("the wrong process was killed")
	}
	wardentest.NoError(t, Kill(rss.ProcID{PID: child.Process.Pid, Start: 5}, unix.SIGTERM, start))
	var died *exec.ExitError
	if err := child.Wait(); !errors.As(err, &died) || died.Sys().(syscall.WaitStatus).Signal() != unix.SIGTERM {
		t.Errorf("the right process ended with %v", err)
	}
}

func TestSignal(t *testing.T) {
	var got []int
	kill := func(id rss.ProcID, sig syscall.Signal) error {
		if sig != syscall.SIGUSR2 {
			t.Errorf("signal %v", sig)
		}
		switch id.PID {
		case 13:
			return unix.ESRCH
		case 14:
			return unix.EPERM
		}
		got = append(got, id.PID)
		return nil
	}
	to := func(pids ...int) []*rss.Proc {
		var list []*rss.Proc
		for _, pid := range pids {
			list = append(list, &rss.Proc{ID: rss.ProcID{PID: pid}})
		}
		return list
	}
	for _, c := range []struct {
		to   []*rss.Proc
		want Result
	}{
		{to(11), Result{OK: true, Reason: event.ReasonDone, PID: 11, Detail: "process 11; why"}},
		{to(11, 12), Result{OK: true, Reason: event.ReasonDone, Detail: "processes 11 and 12; why"}},
		{to(11, 13), Result{OK: true, Reason: event.ReasonDone, PID: 11, Detail: "process 11; not to process 13: no such process; why"}},
		{to(13), Result{Reason: event.ReasonVanished, Detail: "not to process 13: no such process; why"}},
		{to(13, 14), Result{Reason: event.ReasonError, Detail: "not to processes 13 and 14: operation not permitted; why"}},
	} {
		if r := Signal(kill, c.to, syscall.SIGUSR2, "why"); r != c.want {
			t.Errorf("result %+v, want %+v", r, c.want)
		}
	}
	if !slices.Equal(got, []int{11, 11, 12, 11}) {
		t.Errorf("signalled %v: each once", got)
	}
}

// ended is an action that has ended.
type ended Result

func (e ended) Step(World) (Result, bool) { return Result(e), true }

func TestThen(t *testing.T) {
	first := ended{OK: true, Reason: event.ReasonDone, Detail: "a", Paused: 3}
	for name, c := range map[string]struct {
		first ended
		next  Running
		want  Result
	}{
		"was enough":    {first, nil, Result(first)},
		"both":          {first, ended{OK: true, Reason: event.ReasonDone, Detail: "b", Stopped: 4}, Result{OK: true, Reason: event.ReasonDone, Detail: "a; b", Paused: 3, Stopped: 4}},
		"the second no": {first, ended{Reason: event.ReasonTraced, Detail: "b"}, Result{OK: true, Reason: event.ReasonDone, Detail: "a; b", Paused: 3}},
		"neither":       {ended{Reason: event.ReasonTimeout, Detail: "a"}, ended{Reason: event.ReasonTraced}, Result{Reason: event.ReasonTraced, Detail: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, done := Then(c.first, func(World) Running { return c.next }).Step(World{})
			if !done || r != c.want {
				t.Errorf("done %v, %+v; want %+v", done, r, c.want)
			}
		})
	}
}

func TestParseSignals(t *testing.T) {
	for in, want := range map[string]uint64{
		"SigCgt:\t0000000180004203\n":                                           0x180004203,
		"Name:\tSigCgt\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000800\n": 1 << 11,
		"SigCgt:\tffffffffffffffff":                                             1<<64 - 1,
	} {
		if got, ok := parseSignals([]byte(in), "SigCgt:"); got != want || !ok {
			t.Errorf("%q: %x, %v; want %x", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "SigCgt:\n", "SigCgt:\tx\n", "SigCgt:\t10000000000000000\n", "SigIgn:\t0\n"} {
		if got, ok := parseSignals([]byte(in), "SigCgt:"); ok {
			t.Errorf("%q: %x", in, got)
		}
	}
}

func FuzzParseSignals(f *testing.F) {
	f.Add([]byte("Name:\tx\nSigCgt:\t0000000180004203\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parseSignals(b, "SigCgt:") })
}

func TestCatches(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	defer signal.Stop(c)
	if caught, err := Catches("/proc", os.Getpid(), syscall.SIGUSR2); !caught || err != nil {
		t.Errorf("USR2 of this process: %v, %v", caught, err)
	}
	if caught, err := Catches("/proc", 1<<22+1, syscall.SIGUSR2); caught || err == nil {
		t.Errorf("of a process that is not there: %v, %v", caught, err)
	}
	dir := t.TempDir()
	wardentest.NoError(t, os.Mkdir(filepath.Join(dir, "7"), 0o700))
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "7", "status"), []byte("Name:\tx\nSigCgt:\t8000000000000001\n"), 0o600))
	for sig, want := range map[syscall.Signal]bool{1: true, 2: false, 64: true, 0: false, 65: false} {
		if caught, err := Catches(dir, 7, sig); caught != want || err != nil {
			t.Errorf("signal %d: %v, %v; want %v", sig, caught, err, want)
		}
	}
}
