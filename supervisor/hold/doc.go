// Package hold is the process between whoever started us and the user's
// command. The command runs as if it had been started bare, its end becomes
// ours, and nothing that happens to the watcher changes either.
// docs/promises.md lists what still differs; the twin tests compare the rest.
//
// # Who does what
//
// The holder starts the command and then the watcher, both as its children in
// its own process group and session. It alone waits: it polls the command's
// pidfd, or takes SIGCHLD where the kernel has no pidfd (before 5.3), and
// reaps it by PID with waitid(2). It looks at other children (the watcher,
// orphans when we are a subreaper) without reaping them and then reaps each by
// PID, so that it never takes the command for another; it leaves ptrace stops
// alone. Where a seccomp filter refuses waitid(2), wait4(2) replaces it, and a
// command stopped by ^Z does not stop the holder. A system call that keeps
// failing slows the loop to a hundred rounds a second. The holder alone
// forwards signals. When the command has ended it tells the watcher, waits for
// it for Options.Flush at most, and Status.Die ends the process with the same
// status, or by the same signal without a core.
//
// Outside Slurm the holder is a subreaper from the command's first moment; in
// a job it becomes one once the watcher finds that slurmstepd does not sum by
// parent.
//
// All of that is one goroutine around poll(2). While all is well it allocates
// nothing and reads no file except, on a signal, the watcher's status and the
// sender's parents. Its threads exist before the command does, so that a full
// pids.max later does not matter; where there is no room for a second process
// at all, the command is executed in our place. Starting a watcher may hang
// (the program may lie on a dead file system), so it has its own thread.
//
// # Before the Go runtime
//
// When the first argument is "run", a C constructor notes what the runtime
// would change: ignored and blocked signals, the soft RLIMIT_NOFILE, closed
// standard descriptors, the parent death signal. It hides the variables that
// steer a Go runtime from ours. Where there is no room for a runtime (files,
// tasks, address space), it executes the command itself. The command is made
// by clone(CLONE_VM|CLONE_VFORK) and gets all of it back by system calls
// alone, the mask last; then execve(2), and /bin/sh for a script without "#!",
// as execvp(3) does. One C handler replaces the runtime's, which unblocks many
// signals in every thread, and os/signal knows neither si_code nor si_pid.
// Signals that stay blocked come through a signalfd. Faults of our own go on
// to the runtime.
//
// # What is forwarded
//
// Each signal that reaches us and that the command has not got, once, to the
// command's PID; one sent by sigqueue(3) with its value. Not forwarded: what
// is about us (SIGCHLD, SIGXCPU and the like from the kernel) and what the
// command got together with us, being in our process group. The terminal's
// SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU and SIGWINCH always go to a
// group; the kernel marks them. A signal to us from the command or a process
// below it was meant for the command's parent ($PPID in every subshell) and
// goes to ours, unless the group may have been meant and our parent is not in
// it. SIGHUP and SIGCONT at a hangup may go to the session's leader alone. And
// kill(2) with a negative PID (scancel -f) looks just like one to us alone.
//
// Whether a sender is below the command is read in /proc as soon as poll(2)
// returns. A sender that ends at once, as the kill(1) of os.system("kill ..."),
// may be gone by then: about one in ten where each CPU has eight programs to
// run. So may the process that led from the sender to the command, and where
// we are no subreaper an orphan of the command's has no line to it. Each of
// these counts as a stranger, whose signal is forwarded: sending a stranger's
// signal past the command, to a batch script that it ends, would be worse.
//
// The watcher is the witness of a signal to the group: same group, all these
// signals blocked, so that its copy stays pending, which ShdPnd in
// /proc/PID/status shows. The kernel walks a group newest member first and the
// watcher is younger than we are: when we have the signal, so has it.
//
// A bit in ShdPnd must never swallow a signal it does not belong to; a lost
// signal is worse than a doubled one. So:
//   - One copy is evidence once. The watcher is asked to take it (the request
//     is numbered, an older answer frees nothing), and until it answers the
//     bit says nothing: the next signal of that number waits for the answer,
//     which takes microseconds, 200 ms at most. From a watcher that does not
//     answer in time nothing more is expected until it does; meanwhile such
//     signals are forwarded, and one to the group arrives twice. A direct
//     real-time signal delivered beside a group one may take its evidence;
//     then the group one is forwarded in its place: the command counts the same.
//   - A signal below 32 that kill(2) sent is judged 0.2 ms after it came.
//     Equal ones of the same process, one to the group, that came by then are
//     one, as in a process that has not yet handled the first: timeout(1)
//     sends such pairs, 10 µs apart, and a handler that began with the first
//     would be entered again. A bare command may count two.
//   - A bit that no signal of ours needed (someone signalled the watcher
//     alone) is reported by the watcher after 20 ms and taken when the holder,
//     having read all its own signals, says so; not where the holder has used
//     it meanwhile. The watcher is called rss-watcher, so that a pkill by our
//     name misses it. What remains is a sender that signals us and then the
//     watcher by PID within 20 ms, but not the command.
//   - While the watcher is being started a signal waits in the same way: the
//     watcher may have its copy before we know its PID.
//   - A stopped or dead watcher, one in another group, or none: no witness.
//     Then kill(2) is forwarded, and SIGHUP and SIGCONT from the kernel if we
//     lead the session.
//   - SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGPROF, 32 and 33 have no
//     witness: the runtime needs them open. Sent to the group they are doubled.
//   - Two equal signals below 32 that wait at once are one, here as in any
//     process. So of two to the group within the 0.1 ms in which the watcher
//     takes its copy of the first, the second, from another process, may
//     arrive twice. Real-time signals queue, in the watcher too.
//
// # Stop and continue
//
// When SIGTSTP, SIGTTIN or SIGTTOU has stopped the command, the holder stops
// itself by the same signal: a shell sees its job stopped. A SIGSTOP to the
// command alone is not repeated, unless it answers ^Z. SIGCONT to the holder
// goes on to the command. Link.Unstick continues a holder that is stopped
// beside a command that is not. In an orphaned process group the kernel
// ignores these three signals for us, as it does for a bare command.
//
// # What may hang
//
// A thread in a system call on a file whose server does not answer may outlast
// SIGKILL, and keeps its process from ending. The holder makes no such call
// once there is a command: whatever has to ask a file system that may not be
// this node's asks by Aside, in a process that nobody waits for. A page of the
// program itself may have to be read again, so Options.Slim gives back only
// what lies on file systems of this node.
//
// # When memory runs out
//
// The OOM killer takes the largest resident size plus oom_score_adj
// (oom_badness in mm/oom_kill.c). The watcher's is 50 above the command's, 5 %
// of the limit: it goes before the holder and small processes, and is started
// again; what fills the limit goes before it, and it can say so. With 1000 it
// went first every time, and no record had the end of a job that the kernel
// killed. Programs that it starts for the user get the command's value. The
// holder cannot lower its own and is made small instead (Options.Slim). With
// about 7 MiB where the page cache has large folios (Linux 6.18), 2.3 of them
// its own, it is still larger than a shell or cp(1): where such programs fill
// a cgroup by files in /dev/shm, it is killed before them.
//
// # When the holder fails
//
// A panic of the loop, or while a signal is handled, ends both for good: what
// remains passes signals on, waits for the command's end and then for the
// watcher's last messages. It does not ask the witness: a signal to the whole
// group arrives twice. A panic of the starter counts as a watcher that did not
// start; one of the logger costs its line. Before there is a command, it is
// executed in our place.
//
// A system call that fails, once or for ever, changes nothing: its purpose is
// met in another way, tried again later, or dropped. TestInject of
// cmd/rsswarden/hunt has each system call of a holder fail and names those
// without which no Go program runs: futex, epoll, the signal mask and stack,
// what the runtime does with fcntl at its start, and an interrupted or delayed
// call that package os repeats for ever. With a seccomp filter that refuses
// one of these the command is executed in our place.
//
// A fault in C, a page of the program that its file system does not give, and
// SIGKILL end the holder. The kernel then makes the command a child of the
// nearest subreaper or of PID 1 and, where whoever started us had set
// PR_SET_PDEATHSIG, sends that signal, once for each of our threads. Else the
// command runs on, and the watcher ends. Whoever waits for us takes that for
// the command's end: Slurm ends the step, and kills what is left of it.
package hold
