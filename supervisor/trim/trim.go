// Package trim lowers the resident memory of a process that knows nothing of
// us: it stops the process for a moment by ptrace(2), has one of its threads
// call madvise(MADV_DONTNEED) on read-only shared mappings of files, and lets
// it go. The pages leave the page tables and stay in the page cache; a
// later access gets them back by a minor fault.
//
// A [Planner] reads what could be trimmed, and says why a process may not be
// touched; a [Tracer] does it, one [Piece] at a time.
//
// # The promise
//
// The process never notices but for the time it stood still:
//   - Nothing is lost. Only what is mapped "r--s" from a regular file is named
//     to the kernel, and it is looked up again when all threads of the process
//     stand still, so nothing can have put other memory in its place.
//   - No call fails. A thread that slept in a system call sleeps on in it; those
//     calls that report EINTR at every stop (signal(7)) are made again. A transfer
//     that had moved a part of its bytes returns that part, as at any stop: recv(2)
//     with MSG_WAITALL, write(2) of much to a pipe, getrandom(2) of megabytes.
//   - No signal is lost or kept waiting, and no handler runs on borrowed registers.
//   - Every wait is bounded. What cannot be stopped or brought back in time is
//     left by ending the thread that traces, upon which the kernel detaches.
//   - Should we be killed in the middle, the process lives: the call is made at
//     the system call instruction that the thread slept in, so it comes back
//     from there, as from a spurious wake-up. Only calls that allow for one
//     lend their thread. (A call of the kind that reports EINTR at every stop may
//     do so, once, where we die within microseconds of the stop.)
//
// What it cannot see: another process that shares the memory (clone(2) with
// CLONE_VM and without CLONE_THREAD) may change mappings while all threads stand;
// and an execve(2) of a set-user-ID program in that moment is made without its
// privilege, as under any tracer.
//
// It was run on amd64. Elsewhere all is refused as Unsupported: on arm64 the
// kernel prepares the restart of a call before a tracer sees the thread, and
// kernels of 2026 differ in what can be read of it then.
package trim

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Piece is a part of one mapping, to be trimmed while its process is stopped
// once. Whatever has changed since it was planned is not touched.
type Piece struct {
	ID     rss.ProcID
	Lo, Hi uint64 // addresses, multiples of the page size
	Offset uint64 // of Lo in the file
	Dev    uint64 // unix.Mkdev of what /proc/PID/maps shows
	Inode  uint64

	Resident rss.Bytes // when it was planned
}

type Answer struct {
	// Refusal says why nothing was done, None where it was.
	Refusal Refusal
	// Advised is the length of the range that the kernel was told of, which is
	// no measurement of what was resident in it.
	Advised rss.Bytes
	// Stop is from when the first thread was asked to stop until all that
	// stopped in time went on, Attached the part of it before all stood still.
	Stop, Attached time.Duration
	Dropping       time.Duration // … and that which the kernel took for it
	Threads        int

	ended bool // the thread that traced has to end
}

// Refusal says why a process was not touched. Its numbers go over the link
// between watcher and holder, which are one program.
type Refusal uint8

const (
	None        Refusal = iota
	Vanished            // the process has ended
	OtherUser           // its user IDs are not all ours
	Stranger            // Yama allows ancestors alone (ptrace_scope 1), and we are none
	Yama                // ptrace_scope 2 or 3
	Undumpable          // prctl(PR_SET_DUMPABLE, 0), or a file that only root may read
	Traced              // another process traces it: a debugger
	Stopped             // by a signal
	Waiting             // in uninterruptible sleep (state D): it could not be stopped
	Seccomp             // under filters that we are not under
	Not64Bit            // a 32-bit program
	Device              // it has /dev/nvidia*, /dev/kfd or /dev/infiniband open
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
	Ours: event.ReasonOurs, NoSleeper: event.ReasonNoSleeper, Crowded: event.ReasonCrowded,
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
