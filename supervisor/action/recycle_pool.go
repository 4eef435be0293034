package action

import (
	"errors"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"golang.org/x/sys/unix"
)

func (a recycling) replace(f *Flight, p *rss.Proc) Running {
	owner := a.Workers.Pools.Owner(p)
	size := len(a.Workers.Pools.Members(owner))
	kill := func(id rss.ProcID, sig syscall.Signal) error {
		err := a.Kill(id, sig)
		if err == nil {
			a.Workers.Pools.Signalled(owner, id, size, ReplaceDeadline)
		}
		return err
	}
	f.Acted.Pool = a.Workers.Pools.Workers()
	return Replace(kill, p.ID, syscall.Signal(a.Settings.WorkerSignal), func() int { return len(a.Workers.Pools.Members(owner)) }, size, f.Began)
}

// Replace signals one worker of a pool that respawns (--worker-signal) and
// ends when the worker is gone and as many processes match as before, so that
// the next is not taken while its replacement is missing.
func Replace(kill Killer, worker rss.ProcID, sig syscall.Signal, matching func() int, before int, now time.Duration) Running {
	return &replace{
		worker: worker, matching: matching, before: before,
		err: kill(worker, sig), deadline: now + ReplaceDeadline,
	}
}

type replace struct {
	worker   rss.ProcID
	matching func() int // how many processes match now
	before   int
	err      error
	deadline time.Duration
}

func (a *replace) Step(w World) (Result, bool) {
	r := Result{PID: a.worker.PID, Reason: event.ReasonDone}
	if a.err != nil && !errors.Is(a.err, unix.ESRCH) {
		r.Reason, r.Detail = event.ReasonError, a.err.Error()
		return r, true
	}
	if w.Sample == nil {
		return Result{}, false
	}
	p := w.Sample.Find(a.worker.PID)
	gone := p == nil || p.ID != a.worker || p.State == 'Z' || p.State == 'X'
	if gone && a.matching() >= a.before {
		r.OK = true
		return r, true
	}
	if w.Now < a.deadline {
		return Result{}, false
	}
	r.Reason = event.ReasonTimeout
	r.Detail = "the worker did not end"
	if gone {
		r.Detail = "no replacement appeared"
	}
	return r, true
}
