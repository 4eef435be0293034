package trim

import "github.com/rsswarden/rsswarden/supervisor/event"

// Refusal says why a process was not touched. Its numbers go over the link
// between watcher and holder, which are one program.
type Refusal uint8

// The refusals.
const (
	None        Refusal = iota
	Vanished            // the process has ended
	OtherUser           // its user IDs are not all ours
	Stranger            // Yama allows ancestors alone (ptrace_scope 1), and we are none
	Yama                // ptrace_scope 2 or 3
	Undumpable          // prctl(PR_SET_DUMPABLE, 0), or a file that only root may read
	Traced              // somebody else traces it: a debugger
	Stopped             // by a signal
	Waiting             // in uninterruptible sleep (state D): it could not be stopped
	Seccomp             // under filters that we are not under
	Not64Bit            // a 32-bit program
	Device              // it has /dev/nvidia*, /dev/kfd or /dev/infiniband open
	Trainer             // the trainer itself, or the command, without --trim ptrace
	Ours                // a process of rsswarden's
	NoSleeper           // no thread sleeps in a call that may wake without a cause
	Crowded             // more threads or mappings than can be looked at in a moment
	Changed             // the mapping is no longer what was planned
	Signalled           // a signal came before our call
	Slow                // its threads did not stop in time
	Unsupported         // the kernel or the processor is not one that this was run on
	Failed              // ptrace or madvise returned an error
	Broken              // given up after several processes that could not be stopped
	refusals
)

var reasons = [refusals]event.Reason{
	None: event.ReasonDone, Vanished: event.ReasonVanished, OtherUser: event.ReasonOtherUser, Stranger: event.ReasonStranger,
	Yama: event.ReasonYama, Undumpable: event.ReasonUndumpable, Traced: event.ReasonTraced, Stopped: event.ReasonStopped,
	Waiting: event.ReasonWaiting, Seccomp: event.ReasonSeccomp, Not64Bit: event.ReasonNot64Bit, Device: event.ReasonDevice,
	Trainer: event.ReasonIsTrainer, Ours: event.ReasonOurs, NoSleeper: event.ReasonNoSleeper, Crowded: event.ReasonCrowded,
	Changed: event.ReasonChanged, Signalled: event.ReasonSignalled, Slow: event.ReasonSlow, Unsupported: event.ReasonUnsupported, Failed: event.ReasonError,
	Broken: event.ReasonGivenUp,
}

// Reason is the word for it in events.
func (r Refusal) Reason() event.Reason {
	if r >= refusals {
		return event.ReasonError
	}
	return reasons[r]
}

// Passing says that the same process may be asked again soon: it was only at a
// bad moment.
func (r Refusal) Passing() bool {
	switch r {
	case Waiting, NoSleeper, Changed, Signalled, Slow, Traced, Stopped, Failed:
		return true
	}
	return false
}
