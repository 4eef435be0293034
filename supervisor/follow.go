package supervisor

import (
	"errors"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// Follower stands where the holder stands for a command that we started: it
// tells when a process that somebody else started has ended, and nothing more.
// How that ended its parent alone is told, and nothing that the holder does for
// an ancestor of the command can be done. The process is not touched: it is
// neither traced nor stopped nor waited for.
type Follower struct {
	// Conf is SLURM_CONF for programs that we start; empty: as we have it.
	Conf string

	begin    hold.Begin
	messages chan hold.Message // has room for both that there are
	ended    chan struct{}     // closed once the end is in messages
	lives    func() bool       // one of the processes that are known does
	once     sync.Once
}

// endPause is how often a process is looked at where its end cannot be waited
// for: before Linux 5.3, or where pidfds are filtered.
const endPause = 100 * time.Millisecond

// Follow follows the process until it has ended. One that has ended already is
// told at once.
func Follow(proc string, id rss.ProcID) *Follower {
	f := newFollower(id)
	f.lives = func() bool { return proctree.Lives(proc, id) }
	e := expect(proc, id)
	go func() {
		for !e.wait(time.Hour) {
		}
		f.end()
	}()
	return f
}

func newFollower(id rss.ProcID) *Follower {
	return &Follower{
		begin:    hold.Begin{PID: id.PID, Start: id.Start, Attempt: 1},
		messages: make(chan hold.Message, 2),
		ended:    make(chan struct{}),
	}
}

// Begin names the process. There is no holder: its PID is 0.
func (f *Follower) Begin() hold.Begin { return f.begin }

// Messages yields an Exit, whose code and signal mean nothing, when the process has ended,
// and Gone after [Follower.Leave]. No signals come by us.
func (f *Follower) Messages() <-chan hold.Message { return f.messages }

func (f *Follower) end() {
	f.messages <- hold.Exit{}
	close(f.ended)
}

// Ended reports whether the process has ended. What is dead when it is asked may
// take a moment until [Follower.Messages] tells: it waits for that.
func (f *Follower) Ended() bool {
	if f.lives() {
		return false
	}
	select {
	case <-f.ended:
		return true
	case <-time.After(lookAgain):
		return false // others of the job live that were not known
	}
}

// Leave ends the watch. The process runs on.
func (f *Follower) Leave() { f.once.Do(func() { f.messages <- hold.Gone{} }) }

// Subreaper does nothing: orphans of a process go to a subreaper above it, and
// we are not above it.
func (f *Follower) Subreaper(bool) error { return nil }

// Override does nothing: the exit status is the process's own.
func (f *Follower) Override(int) error { return nil }

// Unstick does nothing: nobody waits for us.
func (f *Follower) Unstick() error { return nil }

// Trim fails: who attaches is not the holder, and nothing is traced.
func (f *Follower) Trim(hold.TrimRequest) error {
	return errors.New("cannot trim by ptrace: not supported for what was attached to")
}

// Start is cmd.Start: our signals are as we were given them.
func (f *Follower) Start(cmd *exec.Cmd) error {
	if f.Conf != "" && cmd.Args[0] == "scontrol" {
		cmd.Env = append(cmd.Environ(), "SLURM_CONF="+f.Conf)
	}
	return cmd.Start()
}

// ending is the end of one process, to be waited for.
type ending struct {
	proc string
	id   rss.ProcID
	fd   int // pidfd, -1 where there is none to be had
	gone bool
}

// expect begins to wait for the end of a process.
func expect(proc string, id rss.ProcID) *ending {
	e := &ending{proc: proc, id: id, fd: -1}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err == nil {
		e.fd = fd
	}
	// The descriptor holds on to the process that has the PID now; only then
	// does a look at the start time prove anything.
	e.gone = errors.Is(err, unix.ESRCH) || !proctree.Lives(proc, id)
	return e
}

// wait returns whether the process has ended, as soon as it has, and after
// that time at the latest.
func (e *ending) wait(most time.Duration) bool {
	for end := time.Now().Add(most); !e.gone; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		if e.fd < 0 {
			time.Sleep(min(endPause, left))
			e.gone = !proctree.Lives(e.proc, e.id)
			continue
		}
		p := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		switch {
		case err == nil && n > 0:
			e.gone = true
		case err != nil && err != unix.EINTR:
			e.close()
		}
	}
	e.close()
	return true
}

// close gives the descriptor back.
func (e *ending) close() {
	if e.fd >= 0 {
		unix.Close(e.fd)
		e.fd = -1
	}
}
