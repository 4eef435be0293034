package hold

import "golang.org/x/sys/unix"

type arrival struct {
	signo  int
	code   int32 // si_code: above 0 from the kernel
	pid    int   // sender, 0 for the kernel or another PID namespace
	uid    uint32
	value  uint64 // of sigqueue(3)
	parent int    // of the sender when the signal was read, 0: gone, or none
	time   uint64 // CLOCK_MONOTONIC in ns when the handler ran; 0 from the signalfd
}

// mayMerge says that two of these that wait at once are one, and that we know when it came.
func (a *arrival) mayMerge() bool { return a.code == siUser && a.signo < sigRTMin && a.time != 0 }

type verdict int

const (
	toCommand verdict = iota // forward it
	toParent                 // the command's tree sent it to the command's parent, which bare is ours
	hasIt                    // the group got it, the command with it
	ours                     // it is about this process, not about the command
)

type circumstances struct {
	self, watcher int
	within        bool // the sender is the command or descends from it
	sameGroup     bool // the command is in our process group
	parentToo     bool // our parent is in it
	leader        bool // we lead our session
	early         bool // it was pending before there was a command
	brought       bool // and before we were executed
	witness       bool // the watcher can testify for this signal
	seen          bool // and has it pending: the group got it
	doubtful      bool // what it has pending has served as evidence already, or it came later
	overtaken     bool // a SIGCONT, and the group was stopped again since
}

var (
	// The kernel sends these to the whole foreground group.
	fromTerminal = setOf(unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH)
	// A shell's ^Z, and what stops a background job at the terminal.
	stopping = setOf(unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	// These, at a hangup, to the session leader alone, or to a group.
	fromHangup = setOf(unix.SIGHUP, unix.SIGCONT)
	// Our own use of a resource; the command's is counted on its own.
	ownUse = setOf(unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPROF, unix.SIGCHLD)
)

const (
	siUser   = 0  // si_code of kill(2)
	siTkill  = -6 // si_code of tgkill(2), by which the runtime preempts threads
	sigRTMin = 32 // the first signal that queues
)

// judge is the one place that decides what is forwarded. Where it cannot know,
// it forwards: a signal lost is worse than a signal doubled.
func judge(a *arrival, c *circumstances) verdict {
	kernel := a.code > 0
	switch {
	case c.brought && a.code != siTkill:
		// Not even our own PID: until exec it was the user's.
		return toCommand
	case c.early && a.pid != c.self && !(kernel && ownUse.has(a.signo)):
		return toCommand
	case !kernel && a.pid != 0 && (a.pid == c.self || a.pid == c.watcher):
		return ours
	case kernel && ownUse.has(a.signo):
		return ours
	case !kernel && c.within:
		// Either to the command's parent ($PPID in each subshell of a script) or
		// to the group. Never to the command: bare, it gets neither from us. In
		// doubt, as before there is a watcher, the parent gets it only if it is of
		// the group too: then it gets nothing that was meant for others alone.
		inDoubt := c.doubtful || !c.witness
		if c.sameGroup && (c.seen || inDoubt && !c.parentToo) {
			return hasIt
		}
		return toParent
	case !c.sameGroup:
		return toCommand
	case c.overtaken:
		// A stop signal takes SIGCONT out of what is pending, in the witness
		// too: what it has not got says nothing, and sent now SIGCONT would
		// undo the stop.
		return hasIt
	case kernel && fromTerminal.has(a.signo):
		return hasIt
	case c.witness && c.seen:
		return hasIt
	case kernel && fromHangup.has(a.signo) && !c.witness && !c.leader:
		return hasIt
	}
	return toCommand
}
