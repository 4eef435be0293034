// Package attach replaces the holder for a command that we did not start, and says what
// cannot be done to that from outside.
package attach

import (
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// Process replaces the holder of a process, or of a job, that we did not start: it
// tells that this has ended, and nothing more. Only its parent learns how, and what a holder
// does as an ancestor of the command cannot be done. The process is not touched: it is
// neither traced nor stopped nor waited for.
type Process struct {
	// Conf is SLURM_CONF for programs that we start; empty: as we have it.
	Conf string

	begin    hold.Begin
	messages chan hold.Message // has room for both that there are
	ended    chan struct{}     // closed once the end is in messages
	lives    func() bool
	once     sync.Once
}

// Follow follows the process until it has ended, also one that has ended already.
func Follow(proc string, id rss.ProcID) *Process {
	e := proctree.Expect(proc, id)
	return FollowAll(id, func() bool { return proctree.Lives(proc, id) }, func() {
		for !e.Wait(time.Hour) {
		}
	})
}

// Beside follows a task of Slurm's beside which we were started, and stands in the holder's
// place: ranks are met and loaders asked as a holder's watcher does.
func Beside(proc string, id rss.ProcID, self int) *Process {
	p := Follow(proc, id)
	p.begin.Holder = self
	return p
}

// FollowAll follows several processes, one of which is spoken of as the command. lives says
// whether one of them does; wait returns when the last has ended.
func FollowAll(command rss.ProcID, lives func() bool, wait func()) *Process {
	p := &Process{
		begin:    hold.Begin{PID: command.PID, Start: command.Start, Attempt: 1},
		messages: make(chan hold.Message, 2),
		ended:    make(chan struct{}),
		lives:    lives,
	}
	probe.Run(func() {
		wait()
		p.messages <- hold.Exit{}
		close(p.ended)
	})
	return p
}

// Begin names the process. There is no holder: its PID is 0, and our own beside a task.
func (p *Process) Begin() hold.Begin { return p.begin }

// Messages yields an Exit, whose code and signal mean nothing, when the process has ended,
// and Gone after [Process.Leave]. No signals come by us.
func (p *Process) Messages() <-chan hold.Message { return p.messages }

// endPatience is how long a process that is dead may take until its end is in the messages.
const endPatience = time.Second

// Ended reports whether the process has ended. One that has just ended may take a moment
// until [Process.Messages] tells: it waits for that.
func (p *Process) Ended() bool {
	if p.lives() {
		return false
	}
	select {
	case <-p.ended:
		return true
	case <-time.After(endPatience):
		return false // others of the job live that were not known
	}
}

// Leave ends the watch. The process runs on.
func (p *Process) Leave() { p.once.Do(func() { p.messages <- hold.Gone{} }) }

// Subreaper does nothing: orphans of a process go to a subreaper above it, and we are not
// above it.
func (p *Process) Subreaper(bool) error { return nil }

// Override does nothing: the exit status is the process's own.
func (p *Process) Override(int) error { return nil }

// Unstick does nothing: nothing waits for us.
func (p *Process) Unstick() error { return nil }

// Prepare does nothing: there is no holder, and nobody waits for us.
func (p *Process) Prepare() error { return nil }

// Trim fails: who attaches is not the holder, and nothing is traced.
func (p *Process) Trim(hold.TrimRequest) error {
	return errors.New("cannot trim by ptrace: not supported for what was attached to")
}

// Start is cmd.Start: our signals are as we were given them.
func (p *Process) Start(cmd *exec.Cmd) error {
	if p.Conf != "" && cmd.Args[0] == "scontrol" {
		cmd.Env = append(cmd.Environ(), "SLURM_CONF="+p.Conf)
	}
	return cmd.Start()
}

// Abilities are what can be done for what is watched. Each field says why not, and is empty
// where it can be done: the zero value is for a command that we started.
type Abilities struct {
	Hook    string // ask a loader for anything
	Ptrace  string // trim by ptrace
	Requeue string // put the job into the queue again
	Comment string // write the job's comment
	Ranks   string // meet the other ranks on this node
	Exit    string // know how the command ended
	// Cannot is what cannot be done from outside and why, a sentence each.
	Cannot []string
}

// FromOutside are the abilities for what we attached to. noHook is why no loader can be
// asked for anything: one of cannot, in short.
func FromOutside(noHook string, cannot []string) Abilities {
	return Abilities{
		Hook:    noHook,
		Ptrace:  "who attaches is not the holder",
		Requeue: "only what rsswarden run has started is requeued",
		Comment: "it may be another user's job",
		Ranks:   "every attach watches by itself",
		Exit:    "its parent alone learns that",
		Cannot:  cannot,
	}
}

// FromBeside are the abilities for a task of Slurm's that we watch beside it.
func FromBeside() Abilities {
	return Abilities{
		Ptrace:  "who watches beside a task is not its parent",
		Requeue: "only what rsswarden run has started is requeued",
		Exit:    "slurmstepd alone learns that",
	}
}

// Rest is for ranks, of which an attached process is none.
func (p *Process) Rest(hold.Rest, func()) error { return errors.ErrUnsupported }
