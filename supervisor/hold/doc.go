// Package hold is the process between whoever started us and the user's
// command. It promises that the command runs as if it had been started bare,
// that its end is ours, and that nothing that happens to the watcher changes
// either.
//
// # Who does what
//
// The holder starts the command and then the watcher, both as its children in
// its own process group and session. It alone waits: the command's pidfd is
// polled, or SIGCHLD tells where the kernel has none (before 5.3), and one
// waitid(2) by PID takes its status. Other children (the watcher, orphans
// when we are a subreaper) are found by a look that leaves them zombies and
// taken by PID, so the command is never taken for another; ptrace stops are
// left alone. Where a seccomp filter refuses waitid(2), wait4(2) takes them, and a
// command that ^Z has stopped does not stop the holder. A system call that keeps
// failing slows the loop down, to a hundred rounds a second. The holder alone forwards signals. When the command has ended it
// tells the watcher, waits for it for Options.Flush at most, and Status.Die
// ends the process with the same status, or by the same signal without a
// core.
//
// Outside Slurm the holder is a subreaper from the command's first moment; in a job
// it becomes one where the watcher has found that slurmstepd does not sum by parent.
//
// All of that is one goroutine around poll(2). While all is well it allocates
// nothing and reads no file but, on a signal, the watcher's status and whose child
// the sender is. Its threads
// exist before the command does, so that a full pids.max later is no matter;
// where there is no room for a second process at all, the command is executed
// in our place. Starting a watcher may hang (the program may lie on a dead
// file system), so it has its own thread.
//
// # Before the Go runtime
//
// When the first argument is "run", a C constructor notes what the runtime
// would change: ignored and blocked signals, the soft RLIMIT_NOFILE, which
// standard descriptors are closed, the parent death signal. The variables that
// steer a Go runtime are hidden from ours. Where there is no room for a runtime
// (files, tasks, address space), the constructor executes the command itself. The command is
// made by clone(CLONE_VM|CLONE_VFORK) and gets all of it back by system calls
// alone, the mask last; then execve(2), and /bin/sh for a script without
// "#!", as execvp(3) does. Signals come through one C handler in place of the
// runtime's: the runtime unblocks many in every thread, whatever the mask it
// was given, and os/signal knows neither si_code nor si_pid. Those that stay
// blocked come through a signalfd. Faults of our own go on to the runtime.
//
// # What is forwarded
//
// Each signal that reaches us and that the command has not got, once, to the
// command's PID; what came by sigqueue(3) with its value. Not forwarded: what
// tells of us (SIGCHLD, SIGXCPU and the like from the kernel) and what the
// command got together with us, being in our process group. The terminal's
// SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU and SIGWINCH always go to a group;
// the kernel marks them. What the command or a process below it sends to us was
// meant for the command's parent, as $PPID names it in every subshell, and goes to
// ours, unless the group may have been meant and our parent is not of it. SIGHUP and SIGCONT at a hangup may go
// to the session's leader alone. And kill(2) with a negative PID (scancel -f) looks
// just like one to us alone.
//
// Whether a sender is below the command is read in /proc as soon as poll(2) returns.
// One that ends at once, as the kill(1) of os.system("kill ..."), may be gone by then:
// about one in ten is where each CPU has eight programs to run. So may the process
// that led from the sender to the command, and where we are no subreaper an orphan of
// the command's has no line to it. Each of these counts as a stranger, whose signal is
// forwarded: to send a stranger's signal past the command, to a batch script that
// it ends, would be worse.
//
// The witness of that is the watcher: same group, all these signals blocked,
// so that a signal to the group stays pending in it, where ShdPnd in
// /proc/PID/status shows it. The kernel walks a group newest member first and
// the watcher is younger than we are: when we have the signal, so has it.
//
// A bit in ShdPnd must never swallow a signal it does not belong to; a lost
// signal is worse than a doubled one. So:
//   - One copy is evidence once. The watcher is asked to take it (the request
//     is numbered, an older answer frees nothing), and until it has said so the
//     bit says nothing: the next signal of that number waits for its word, which
//     takes microseconds, 200 ms at most. Of a watcher that does not answer in
//     time nothing more is expected until it does; meanwhile such signals are
//     forwarded, and one to the group arrives twice. A direct real-time signal that
//     the kernel delivers beside a group one may take its evidence; then the group
//     one is forwarded in its place, and the command counts the same.
//   - A signal below 32 that kill(2) sent is judged 0.2 ms after it came. Equal ones
//     of the same process, one to the group, that came by then are one, as they are
//     in a process that has not yet handled the first: timeout(1) sends such pairs,
//     10 µs apart, and a handler that began with the first, forwarded, would be
//     entered again. A bare command that handles the first at once may count two.
//   - A bit that no signal of ours needed (somebody signalled the watcher
//     alone) is reported by the watcher after 20 ms and taken when the holder,
//     having read all its own signals, says so; not where the holder has used it
//     meanwhile. The watcher is called rss-watcher, lest a pkill by our name
//     meets it too. What remains is a sender that signals first us and then the
//     watcher by PID within 20 ms, but not the command.
//   - While the watcher is being started a signal waits for that, in the same
//     way: it may be there and have its copy before we know its PID.
//   - A stopped or dead watcher, one in another group, or none: no witness.
//     Then kill(2) is forwarded, and SIGHUP and SIGCONT from the kernel if we
//     lead the session.
//   - SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGPROF, 32 and 33 have no
//     witness: the runtime needs them open. Sent to the group they are doubled.
//   - Two equal signals below 32 that wait at once are one, here as in any
//     process. So of two to the group within the time in which the watcher takes
//     its copy of the first, some 0.1 ms, the second, of another process, may arrive twice. Real-time
//     signals queue, in the watcher too, which takes one copy at a time.
//
// # Stop and continue
//
// When the command has been stopped by SIGTSTP, SIGTTIN or SIGTTOU, the holder
// stops itself by the same signal: a shell sees its job stopped. A SIGSTOP to
// the command alone is not repeated, unless it answers ^Z. SIGCONT to the
// holder goes on to the command. A holder that is stopped beside a command
// that is not is continued by Link.Unstick. In an orphaned process group the
// kernel ignores these three signals for us, as it does for a bare command.
//
// # What may hang
//
// A thread in a system call on a file whose server says nothing may outlast SIGKILL, and
// keeps its process from ending, so from having a status. The holder makes no such call
// once there is a command, and what has to ask a file system that it does not know to be
// this node's asks by Aside, in a process that nobody waits for.
//
// A page of the program itself may have to be read again. So only what lies on file
// systems of this node is given back by Options.Slim.
//
// # When memory runs out
//
// The OOM killer takes who has most resident, plus oom_score_adj (oom_badness in
// mm/oom_kill.c). The watcher's is 50 above the command's, which is 5 % of the limit: it
// goes before the holder and before small processes, and is started again like any
// watcher that died; what fills the limit goes before it, and it can say so. With 1000 it
// went before everything, and no record had the end of a job that the kernel killed. What
// it starts for the user has the command's. The holder cannot
// lower its own, and is made small instead (Options.Slim). With about 7 MiB where the page cache
// has large folios (Linux 6.18), of which 2.3 are its own, it is still larger than a
// shell or cp(1): where such small programs fill a cgroup by files in /dev/shm,
// it is killed before them.
//
// # When the holder fails
//
// A panic of the loop, or of a thing done with a signal, ends both for good: what
// remains passes signals on, waits for the command's end and then for the watcher's
// last words. It does not ask the witness: a signal to the whole group arrives twice.
// A panic of the starter counts as a watcher that did not start; one of the logger
// costs its line. Before there is a command, it is executed in our place.
//
// A system call that fails, once or for ever, changes nothing: what it was for is had in
// another way, tried again later, or left. TestInject of cmd/rsswarden/hunt has each
// system call of a holder fail and names those without which no Go program runs: futex,
// epoll, the signal mask and stack, what the runtime does with fcntl at its start, and
// an interrupted or delayed call that package os repeats for ever. With a
// seccomp filter that refuses one of these the command is executed in our place.
//
// A fault in C, a page of the program that its file system does not give, and
// SIGKILL end the holder. The kernel then makes the command a child of the nearest
// subreaper or of PID 1 and, where whoever started us had set PR_SET_PDEATHSIG, sends
// that signal, once for each of our threads that ends. Else the command runs on, and
// the watcher ends. Who waits for us takes that for the command's end: Slurm ends the
// step then, and kills what is left of it.
//
// # What tells a held command from a bare one
//
// docs/promises.md has the same list, and a test holds both to it. All else that a
// command inherits is compared by the twin tests.
//   - RSSWARDEN_DIR is set, and PYTHONPATH begins with the loader hook, where
//     the environment has room for both.
//   - Its PID is not the one that its parent started, and its parent is the
//     holder.
//   - It leads neither a process group nor a session where it would: setsid(2)
//     works, and setpgid(0, 0) leaves the group.
//   - Where the holder is a subreaper, as outside Slurm, an orphan's getppid(2)
//     is the holder's PID and never 1.
//   - A forwarded signal has the holder as its sender; one sent by sigqueue(3)
//     keeps its own.
//   - Interval timers, POSIX record locks, pending signals and children that
//     came through exec are the holder's. SIGALRM and pending signals are
//     forwarded; the locks last as long as the holder.
//   - SigQ in /proc/PID/status counts the signals that are queued for all of
//     the user's processes, ours included.
//   - The shell's variable _ names what the shell started, which is rsswarden.
//   - A core dump of the command does not show in the exit status.
//   - What wait4(2) and getrusage(2) tell the parent includes the holder and
//     the watcher.
//   - Standard error, and files that are neither pipe nor socket, stay open in
//     the holder until it ends; pipes and sockets do not.
//   - The holder and the watcher count against the job's memory limit. Where
//     only processes of less than 12 MB fill it, such as cp to /dev/shm, the
//     kernel's OOM killer ends the holder, and whoever started it sees SIGKILL.
//   - SIGKILL to the process that was started ends the holder and not the
//     command.
//   - Where a seccomp filter refuses waitid(2), ^Z stops the command and not
//     the holder.
//   - Under ulimit -d below 34 MB or ulimit -v below 50 MB the kernel or the
//     dynamic linker ends rsswarden before its first instruction, and the
//     command does not start.
package hold
