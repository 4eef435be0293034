package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	patience      = 2 * time.Second  // for a file system that may hang
	trialPatience = 10 * time.Second // for what takes milliseconds
)

var errLate = errors.New("it took too long and was killed")

// start runs a program in a process group of its own, which is killed when its time is
// over.
func (d *prober) start(path string, args []string, patience time.Duration, prepare func(*exec.Cmd)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what left the group may keep our pipes open
	prepare(cmd)
	d.mu.Lock()
	err := cmd.Start()
	if err == nil {
		d.child = cmd.Process.Pid
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	d.mu.Lock()
	d.child = 0
	d.mu.Unlock()
	if ctx.Err() != nil {
		return errLate
	}
	return err
}

// obey ends us at a signal that asks for it, after what we have started and made.
func (d *prober) obey() {
	s := (<-d.Ends).(syscall.Signal)
	d.mu.Lock() // for good
	if d.child != 0 {
		_ = syscall.Kill(-d.child, syscall.SIGKILL)
	}
	d.remove()
	d.DieBy(s)
}

// within asks a file system; false if it does not answer in time.
func within[T any](ask func() T) (T, bool) {
	c := make(chan T, 1)
	go func() { c <- ask() }()
	select {
	case v := <-c:
		return v, true
	case <-time.After(patience):
		var none T
		return none, false
	}
}

// errnoOf strips the path that the standard library puts around an errno.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Setup is what doctor needs of the program that asks.
type Setup struct {
	Program   ProgramFacts
	Lookup    func(string) (string, bool)
	Environ   []string
	Stderr    *os.File // for progress, where it is a terminal
	Warn      func(text string)
	Ends      <-chan os.Signal // end the examination
	DieBy     func(syscall.Signal)
	PID       int           // the process whose limits count
	Pythons   []string      // named by the user; none for those of PATH
	Patience  time.Duration // for each Python
	TryAlerts bool
	TryTorch  bool

	settings.Settings                            // of a run without options
	Origin            func(option string) string // where it was chosen, as the user wrote it

	Prepare     func() (loader.Prepared, error)
	LookPath    func(name string) (string, error)
	Sample      func(set *limit.Set, proc string, pid int) (*rss.Sample, error)
	CommandLine func(pid int) []string
	Counts      func(pid int, procs []rss.Proc) []event.Limit // limits on numbers
}

type prober struct {
	Setup
	trialLimits string    // /proc/PID/limits of the trial run's command
	room        rss.Bytes // left before a limit or the node's end, where known
	roomKnown   bool
	found       []event.Limit
	unable      map[event.Action]string // why an action cannot be carried out here
	ptraceWorks bool

	mu    sync.Mutex // held for good once a signal asked for the end
	child int        // the leader of the process group that we have started, else 0
	dir   string     // the run directory that we have made
}

func (d *prober) get(name string) string {
	v, _ := d.Lookup(name)
	return strings.TrimSpace(v)
}

// ProgramFacts are about rsswarden and its settings.
type ProgramFacts struct {
	Version, Path string
	// Off says that RSSWARDEN=off is in the environment.
	Off bool
	// Options not at their default, "limit=3G (environment)", and those that the site
	// locks.
	Chosen, Locked []string
	// The configuration files that were read.
	Site, User string
	Warnings   []string // of options that are not used as they were written
	// Usage is why run would start nothing, and Hint what to do.
	Usage error
	Hint  string
}

// leave removes the run directory. Where that fails the next run sweeps it.
func (d *prober) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove()
}

func (d *prober) remove() {
	if d.dir != "" {
		_ = loader.Remove(d.dir)
		d.dir = ""
	}
}

// progress shows on a terminal what takes seconds, for as long as it does.
func (d *prober) progress(what string) (done func()) {
	if _, err := unix.IoctlGetTermios(int(d.Stderr.Fd()), unix.TCGETS); err != nil {
		return func() {}
	}
	fmt.Fprintf(d.Stderr, "%s … ", text.Plain(what))
	return func() { fmt.Fprint(d.Stderr, "\r\x1b[K") }
}
