// Package trim lowers the resident memory of a process that knows nothing of
// us: it stops the process for a moment by ptrace(2), has one of its threads
// call madvise(MADV_DONTNEED) on read-only shared mappings of files, and lets
// it go. The pages leave the page tables and stay in the page cache; whoever
// touches them again gets them back by a minor fault.
//
// [Plan] reads what could be trimmed, and says why a process may not be
// touched; a [Tracer] does it, one [Piece] at a time.
//
// # The promise
//
// The process never notices but for the time it stood still:
//   - Nothing is lost. Only what is mapped "r--s" from a regular file is named
//     to the kernel, and it is looked up again when all threads of the process
//     stand still, so nobody can have put other memory in its place.
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
