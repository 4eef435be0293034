package hold

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

type Options struct {
	// Paths are the files that may be the command: the first that can be executed
	// is, as execvp(3) does with the directories of PATH.
	Paths []string
	Args  []string // argv, the name included
	// Env is the command's environment. Where it is too long (E2BIG), the command
	// has [Environ] instead, and Begin says so.
	Env []string

	// Watcher is the watcher's argv; [0] is the path to execute
	// (/proc/self/exe survives an upgrade). Empty: no watcher.
	Watcher []string
	// Setup is handed to the watcher in Begin, at most 128 KiB.
	Setup json.RawMessage
	// KeepFDs are the descriptors of the user that the watcher needs
	// (--events /dev/fd/3). 1 keeps the user's stdout open in it. Standard
	// error it always has.
	KeepFDs []int
	// Subreaper has orphans become the holder's children from the command's first
	// moment. Leave it to the watcher ([Link.Subreaper]) where an enforcer may sum
	// by parent PID.
	Subreaper bool
	// Flush is how long an ended command's watcher may take, 2 s when zero.
	Flush time.Duration
	// Trim gives a part of a mapping of another process back, on a goroutine of
	// its own; nil where that is not asked for.
	Trim func(TrimRequest) TrimAnswer
	// Slim gives back what only the start has needed. It is called on the starter's
	// goroutine, each time that a watcher has been started; nil where there is none.
	Slim func()
	// Log takes, on a goroutine of its own, what failed on our side.
	Log func(string)
}

type Status struct {
	Code   int // exit status, when Signal is 0
	Signal int // the signal it died of
}

// StartError says that the command could not be executed. It unwraps to the
// errno of execve(2).
type StartError struct {
	Name  string // argv[0]
	Errno syscall.Errno
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot execute %s: %v", e.Name, e.Errno) }

func (e *StartError) Unwrap() error { return e.Errno }

// ErrNotHolder: the process was not started with "run" as its first argument,
// so the signal state it was given is not known.
var ErrNotHolder = errors.New("cannot hold a command: the first argument of this process is not \"run\"")

// Run starts the command, watches over it and returns how it ended. The
// process is the command's stand-in from then on: call Status.Die next. Run
// locks the calling goroutine to its thread for good.
func Run(o Options) (Status, error) {
	if !active() {
		return Status{}, ErrNotHolder
	}
	runtime.LockOSThread()
	var h *holder
	var err error
	broke := sound(func() {
		fault.Point("holder-start")
		h, err = newHolder(o)
	})
	if err != nil || broke != nil {
		// Without our descriptors there is nothing to hold with; the command
		// does not need us.
		return Status{}, Exec(o.Paths, o.Args)
	}
	if broke = sound(func() { err = h.start() }); broke != nil && h.pid == 0 {
		return Status{}, Exec(o.Paths, o.Args)
	}
	if err != nil {
		return Status{}, err
	}
	var st Status
	if broke == nil {
		broke = sound(func() { st = h.loop() })
	}
	if h.broke == nil {
		h.broke = broke
	}
	if h.broke != nil {
		return h.lastResort(), nil
	}
	return st, nil
}

// Exec replaces this process by the command, with the environment, signals, limits
// and descriptors that the user gave; for paths and args see [Options]. It returns
// only a *StartError, or ErrNotHolder.
func Exec(paths, args []string) error {
	if !active() {
		return ErrNotHolder
	}
	return &StartError{Name: args[0], Errno: execInPlace(paths, args, Environ())}
}

// Die ends this process as the command ended: with its exit status, or by the
// same signal, without a core of our own. It never returns.
func (s Status) Die() {
	if s.Signal == 0 {
		os.Exit(s.Code)
	}
	dieBy(s.Signal)
	// The first process of a PID namespace is not killed by its own signals.
	os.Exit(128 + s.Signal)
}
