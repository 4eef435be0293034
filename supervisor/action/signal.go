package action

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/population"
)

// Kill sends a signal to exactly the process id names. Its error wraps ESRCH
// where that process is gone, even if its PID is used again.
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

// Kill signals one process of the tree. Never ourselves: an attach may run in
// what it watches; and never an excluded process.
func (a *Env) Kill(id rss.ProcID, sig syscall.Signal) error {
	if id.PID == a.Self {
		return nil
	}
	if a.Pop.Excluded(id) {
		return fmt.Errorf("cannot signal process %v: the step %s is spared", id, a.Pop.Step(id))
	}
	return Kill(id, sig, func(pid int) (uint64, error) { return proctree.StartTime(a.Proc, pid) })
}

// killByNumber is kill(2) that spares a thread, as pidfd_open(2) does: /proc has a thread
// under its own number too, and kill(2) with that reaches all of its process.
func killByNumber(pid int, sig syscall.Signal) error {
	if err := unix.Tgkill(pid, pid, 0); err != nil {
		return err
	}
	return unix.Kill(pid, sig)
}

type Killer func(rss.ProcID, syscall.Signal) error

// Signal sends sig once to each of the processes, which are known to catch it.
// It ends at once: what they do about it is theirs. detail names the processes that do not
// get it.
func Signal(kill Killer, to []*rss.Proc, sig syscall.Signal, detail string) Result {
	var got, missed []*rss.Proc
	var failed error
	for _, p := range to {
		if err := kill(p.ID, sig); err == nil {
			got = append(got, p)
		} else if missed = append(missed, p); failed == nil || !errors.Is(err, unix.ESRCH) {
			failed = err
		}
	}
	r := Result{Reason: event.ReasonError}
	sent, not := "", ""
	switch {
	case len(got) > 0:
		r.OK, r.Reason, sent = true, event.ReasonDone, phrase.Processes(got)
	case errors.Is(failed, unix.ESRCH):
		r.Reason = event.ReasonVanished
	}
	if len(got) == 1 {
		r.PID = got[0].ID.PID
	}
	if len(missed) > 0 {
		not = fmt.Sprintf("not to %s: %v", phrase.Processes(missed), failed)
	}
	r.Detail = join(sent, not, detail)
	return r
}

// Catches says whether a process has a handler for the signal. One without would be ended
// by most signals.
func Catches(proc string, pid int, sig syscall.Signal) (bool, error) {
	return signalIn(proc, pid, sig, "SigCgt:")
}

// signalIn says whether one of these sets of signals in PROC/PID/status (proc(5)) has the
// signal, as bit sig-1: "SigCgt:" of those that it has a handler for, "SigIgn:" of those that
// it ignores.
func signalIn(proc string, pid int, sig syscall.Signal, sets ...string) (in bool, err error) {
	b, err := procfile.Read(fmt.Sprintf("%s/%d/status", proc, pid), procfile.Status)
	for _, name := range sets {
		set, ok := parseSignals(b, name)
		if err == nil && !ok {
			err = fmt.Errorf("no %s in its status", name)
		}
		in = in || sig > 0 && sig <= 64 && set>>(sig-1)&1 == 1
	}
	if err != nil {
		return false, fmt.Errorf("cannot read which signals process %d catches: %w", pid, err)
	}
	return in, nil
}

// parseSignals reads a set of /proc/PID/status: "SigCgt:\t0000000180004203\n", 16
// hexadecimal digits.
func parseSignals(status []byte, name string) (set uint64, ok bool) {
	for line := range bytes.Lines(status) {
		if digits, found := bytes.CutPrefix(line, []byte(name)); found {
			set, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 16, 64)
			return set, err == nil
		}
	}
	return 0, false
}

// signalling sends a signal to those who train.
type signalling struct{ *Env }

func (a signalling) Can(r event.Rule, l *event.Limit) event.Feasibility {
	_, h := a.receivers(r, l)
	return h
}

// hookless says that no process can say hello, so that only the environment shows
// which ones train.
func (a signalling) hookless() bool {
	return a.Pop.Attached() || a.Loader == nil && len(a.Workers.Trainers()) == 0
}

// receivers returns the processes that get the signal of a rule where l was crossed: every
// trainer that said hello, or without a hook has the environment of one, else the
// command, or what that runs in a container; of these those that catch it. h says why it
// goes to no process.
func (a signalling) receivers(r event.Rule, l *event.Limit) (to []*rss.Proc, h event.Feasibility) {
	return a.receiversAmong(r, l, func(int) bool { return true })
}

// receiversAmong returns those of the receivers whose PID is meant.
func (a signalling) receiversAmong(r event.Rule, l *event.Limit, means func(pid int) bool) (to []*rss.Proc, h event.Feasibility) {
	sig, rank0, ok := r.Signal()
	if !ok {
		return nil, event.Feasibility{Reason: event.ReasonUnsupported}
	}
	step, hookless := a.Limits.Step(l), a.hookless()
	all := slices.DeleteFunc(a.Workers.Training(hookless), func(p *rss.Proc) bool { return !a.Pop.InScope(p.ID, step) })
	if len(all) == 0 {
		all = population.InContainers(&a.View.Sample, a.Pop.Commands(&a.View.Sample, step))
		switch {
		case len(all) == 0:
			return nil, event.Feasibility{Reason: event.ReasonVanished}
		case all[0].Role == rss.RoleAgent && !hookless:
			return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "the command only starts ranks, and none of them said hello"}
		case all[0].Role == rss.RoleAgent:
			return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "the command only starts ranks, and there is none now"}
		}
		all = slices.DeleteFunc(all, func(p *rss.Proc) bool { return p.Role == rss.RoleAgent })
	}
	if a.Pop.Attached() && a.Workers.Unsure(all) {
		return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "who trains is not known yet", Later: true}
	}
	if all = slices.DeleteFunc(all, func(p *rss.Proc) bool { return !means(p.ID.PID) }); len(all) == 0 {
		return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "of those that are meant none trains"}
	}
	if rank0 {
		if all, h.Detail, h.Later = a.Workers.Rank0(all); len(all) == 0 {
			h.Reason = event.ReasonNoRank0
			return nil, h
		}
	}
	var deaf []*rss.Proc
	for _, p := range all {
		// What cannot be read does not catch it as far as we know.
		if caught, _ := Catches(a.Proc, p.ID.PID, sig); caught {
			to = append(to, p)
		} else {
			deaf = append(deaf, p)
		}
	}
	if len(deaf) > 0 {
		h.Detail = "not to " + phrase.Processes(deaf) + ", without a handler for " + event.SignalName(sig)
	}
	if len(to) == 0 {
		return nil, event.Feasibility{Reason: event.ReasonNotCaught, Detail: event.SignalName(sig) + ", " + phrase.Processes(deaf)}
	}
	if !a.Pop.IsAll(&a.View.Sample, step) {
		h.Detail = strings.TrimPrefix(h.Detail+"; only "+a.Pop.Target(step)+" is meant", "; ")
	}
	h.OK = true
	return to, h
}

func (a signalling) Ask(d event.Decision, l *event.Limit) (Result, bool) {
	sig, _, _ := d.Rung.Signal()
	to, h := a.receivers(d.Rung, l)
	if !h.OK {
		return Result{Reason: h.Reason, Detail: h.Detail}, true
	}
	return Signal(a.Kill, to, sig, h.Detail), true
}
