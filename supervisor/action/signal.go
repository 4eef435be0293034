package action

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Kill sends a signal to exactly the process id names. Its error wraps ESRCH
// where that process is gone, whoever has its PID now.
func Kill(id rss.ProcID, sig syscall.Signal, start func(pid int) (uint64, error)) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	// The descriptor holds on to the process that has the PID now; only then
	// does a look at the start time prove anything.
	now, serr := start(id.PID)
	if serr != nil || now != id.Start {
		return fmt.Errorf("cannot signal process %v: %w", id, unix.ESRCH)
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMFILE) {
		err = killByNumber(id.PID, sig) // before Linux 5.3, or where pidfds are filtered
	}
	if err != nil {
		return fmt.Errorf("cannot signal process %v: %w", id, err)
	}
	return nil
}

// killByNumber is kill(2) that spares a thread, as pidfd_open(2) does: /proc has a thread
// under its own number too, and kill(2) with that reaches all of its process.
func killByNumber(pid int, sig syscall.Signal) error {
	if err := unix.Tgkill(pid, pid, 0); err != nil {
		return err
	}
	return unix.Kill(pid, sig)
}

// Killer sends a signal to one process.
type Killer func(rss.ProcID, syscall.Signal) error

// Replace signals one worker of a pool that respawns (--worker-signal) and
// ends when the worker is gone and as many processes match as before, so that
// the next is not taken while its replacement is missing.
func Replace(kill Killer, worker rss.ProcID, sig syscall.Signal, matching func(*rss.Sample) []rss.ProcID, before int, now time.Duration) Running {
	return &replace{
		worker: worker, matching: matching, before: before,
		err: kill(worker, sig), deadline: now + ReplaceDeadline,
	}
}

type replace struct {
	worker   rss.ProcID
	matching func(*rss.Sample) []rss.ProcID
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
	if gone && len(a.matching(w.Sample)) >= a.before {
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

// Stop ends processes: TERM to each of first at once, KILL to all that is meant
// of a sample where that has not ended after grace. The caller has told the
// holder the exit status.
func Stop(kill Killer, first []rss.ProcID, meant func(*rss.Sample) []rss.ProcID, grace, now time.Duration) Running {
	a := &stop{kill: kill, meant: meant, deadline: now + grace}
	for _, id := range first {
		if err := kill(id, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			a.pid, a.err = id.PID, errors.Join(a.err, err)
		}
	}
	return a
}

type stop struct {
	kill     Killer
	meant    func(*rss.Sample) []rss.ProcID
	deadline time.Duration
	pid      int
	err      error
}

func (a *stop) Step(w World) (Result, bool) {
	if a.err != nil {
		return Result{PID: a.pid, Reason: event.ReasonError, Detail: a.err.Error()}, true
	}
	if w.Sample == nil {
		return Result{}, false
	}
	meant := a.meant(w.Sample)
	if w.Now < a.deadline {
		// Where others go on nobody else tells that these have ended.
		if len(meant) == 0 && len(w.Sample.Procs) > 0 {
			return done(event.ReasonDone)
		}
		return Result{}, false
	}
	// Each look kills what is there now: a tree may fork while it dies. What
	// cannot be killed is not waited for: it may never end.
	left := 0
	var refused Result
	for _, id := range meant {
		err := a.kill(id, unix.SIGKILL)
		if errors.Is(err, unix.EPERM) {
			refused = Result{PID: id.PID, Reason: event.ReasonError, Detail: err.Error()}
			continue
		}
		left++ // what is gone is out of the next sample
	}
	switch {
	case left > 0:
		return Result{}, false
	case refused.PID != 0:
		return refused, true
	}
	return done(event.ReasonDone)
}

// Signal sends sig once to each of the processes, which are known to catch it.
// It ends at once: what they do about it is theirs. detail says whom it does not
// go to.
func Signal(kill Killer, to []*rss.Proc, sig syscall.Signal, detail string) Result {
	var got, missed []string
	var failed error
	r := Result{}
	for _, p := range to {
		name := strconv.Itoa(p.ID.PID)
		if err := kill(p.ID, sig); err != nil {
			missed = append(missed, name)
			if failed == nil || !errors.Is(err, unix.ESRCH) {
				failed = err
			}
			continue
		}
		got = append(got, name)
		r.PID = p.ID.PID
	}
	switch {
	case len(got) > 0:
		r.OK, r.Reason = true, event.ReasonDone
	case errors.Is(failed, unix.ESRCH):
		r.Reason = event.ReasonVanished
	default:
		r.Reason = event.ReasonError
	}
	if len(got) != 1 {
		r.PID = 0 // several
	}
	var parts []string
	if len(got) > 0 {
		word := "process "
		if len(got) > 1 {
			word = "processes "
		}
		parts = append(parts, word+strings.Join(got, ", "))
	}
	if len(missed) > 0 {
		parts = append(parts, fmt.Sprintf("not to %s: %v", strings.Join(missed, ", "), failed))
	}
	if detail != "" {
		parts = append(parts, detail)
	}
	r.Detail = strings.Join(parts, "; ")
	return r
}

// Catches says whether a process has a handler for the signal: bit sig-1 of
// SigCgt in PROC/PID/status (proc(5)). One without would be ended by most
// signals.
func Catches(proc string, pid int, sig syscall.Signal) (bool, error) {
	b, err := procfile.Read(fmt.Sprintf("%s/%d/status", proc, pid), procfile.Status)
	if err != nil {
		return false, fmt.Errorf("cannot read which signals process %d catches: %w", pid, err)
	}
	set, ok := parseCaught(b)
	if !ok {
		return false, fmt.Errorf("cannot read which signals process %d catches: no SigCgt in its status", pid)
	}
	return sig > 0 && sig <= 64 && set>>(sig-1)&1 == 1, nil
}

// parseCaught reads SigCgt of /proc/PID/status: "SigCgt:\t0000000180004203\n",
// 16 hexadecimal digits.
func parseCaught(status []byte) (set uint64, ok bool) {
	for line := range bytes.Lines(status) {
		digits, found := bytes.CutPrefix(line, []byte("SigCgt:"))
		if !found {
			continue
		}
		set, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 16, 64)
		return set, err == nil
	}
	return 0, false
}
