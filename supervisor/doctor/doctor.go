// Package doctor examines what works on this node and in this job: each check tries
// something, and says what was found, where, and what to do. The judgement of a check is
// a function over the facts that its probe has read.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Examine makes all checks, in the order in which they are printed.
func Examine(s Setup) Report {
	d := &prober{Setup: s}
	go d.obey()
	var all []Check
	for _, checks := range []func(*prober) []Check{
		(*prober).program, (*prober).trial, (*prober).limits, (*prober).ptrace, (*prober).loaders, (*prober).records, (*prober).kernel,
		(*prober).numbers, (*prober).alerts,
	} {
		all = append(all, checks(d)...)
	}
	r := Conclude(all)
	r.Works = phrase.WhatWorks(d.found, d.Rules, d.unable)
	return r
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
	WhyBare     func() error // why a task like this process gets no watcher from TaskProlog
	LookPath    func(name string) (string, error)
	Sample      func(set *limit.Set, proc string, pid int) (*rss.Sample, error)
	CommandLine func(pid int) []string
	Counts      func(pid int, procs []rss.Proc) []event.Limit // limits on numbers
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

// progress shows on a terminal what takes seconds, for as long as it does.
func (d *prober) progress(what string) (done func()) {
	if _, err := unix.IoctlGetTermios(int(d.Stderr.Fd()), unix.TCGETS); err != nil {
		return func() {}
	}
	fmt.Fprintf(d.Stderr, "%s … ", text.Plain(what))
	return func() { fmt.Fprint(d.Stderr, "\r\x1b[K") }
}

func (d *prober) program() []Check { return programChecks(d.Program) }

// programChecks says what rsswarden is, and how it was set up.
func programChecks(f ProgramFacts) []Check {
	c := Check{Name: NameProgram, Status: OK, Found: f.Version + " at " + f.Path, Source: "/proc/self/exe"}
	if f.Off {
		c.Source = "RSSWARDEN=off in the environment"
		return []Check{c.as(Off, "unset RSSWARDEN", "%s; run executes the command in its place and watches nothing", c.Found).inPart("RSSWARDEN=off makes run a plain exec")}
	}
	s := Check{Name: NameSettings, Status: OK, Found: "all options at their defaults"}
	sources := slices.DeleteFunc([]string{"RSSWARDEN_*", f.User, f.Site}, func(s string) bool { return s == "" })
	s.Source = strings.Join(sources, ", ")
	if len(f.Chosen) > 0 {
		s.Found = strings.Join(f.Chosen, ", ")
	}
	if len(f.Locked) > 0 {
		s.Found += "; locked by the site: " + strings.Join(f.Locked, ", ")
	}
	switch {
	case f.Usage != nil:
		s = s.as(Off, f.Hint, "run would start nothing: %v", f.Usage).inPart("run would start nothing: " + f.Usage.Error())
	case len(f.Warnings) > 0:
		s = s.as(Limited, "fix what the warning names, or unset it", "%s; %s", s.Found, strings.Join(f.Warnings, "; "))
	}
	return []Check{c, s}
}

type runFacts struct {
	Err     error  // it could not be started, or ended otherwise than the command
	Watched bool   // the watcher said that it watches
	Took    string // from its start to its end
	Said    string // its last words on stderr
}

// runCheck says whether holder and watcher can start here.
func runCheck(f runFacts) Check {
	c := Check{Name: NameRun, Source: "rsswarden run -- cat /proc/self/limits"}
	switch {
	case f.Err != nil:
		return c.as(Off, "run it by hand: rsswarden run -- true", "a trial run failed: %v%s", f.Err, aside(f.Said)).inPart("a trial run failed")
	case !f.Watched:
		return c.as(Off, "raise what it names; rsswarden run -- true says the same", "a trial run was not watched%s", aside(f.Said)).inPart("the command would run unwatched")
	}
	return c.as(OK, "", "a trial run was watched to its end, and took %s", f.Took)
}

// trial is a run of a command that prints its limits and ends. The user's own options are
// left out: they were checked already, and a trial leaves nothing behind.
func (d *prober) trial() (checks []Check) {
	if d.Program.Off || d.Program.Usage != nil {
		return nil
	}
	var t runFacts
	defer func() { checks = []Check{runCheck(t)} }()
	read, write, err := os.Pipe()
	if err != nil {
		t.Err = err
		return
	}
	defer read.Close()
	args := []string{
		"run", "--at", "none", "--dry-run", "--record", "none", "--loader", "off", "--events", "/dev/fd/3", "--", "cat", "/proc/self/limits",
	}
	var out, errs text.Bounded
	began := time.Now()
	err = d.start("/proc/self/exe", args, trialPatience, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &errs, []*os.File{write}
		for _, kv := range d.Environ {
			if !strings.HasPrefix(kv, "RSSWARDEN_") {
				cmd.Env = append(cmd.Env, kv)
			}
		}
	})
	t.Took = fmt.Sprintf("%.0f ms", time.Since(began).Seconds()*1e3)
	write.Close()
	var events text.Bounded
	_ = read.SetReadDeadline(time.Now().Add(time.Second)) // a process may still have the other end
	_, _ = events.ReadFrom(read)
	t.Err, t.Said, d.trialLimits = err, errs.LastLine(), out.String()
	// A site may lock either of the two.
	t.Watched = strings.Contains(events.String(), `"event":"start"`) || strings.Contains(errs.String(), " watching ")
	return
}

// alerts tries the receivers that run would have.
func (d *prober) alerts() (checks []Check) {
	if !d.TryAlerts {
		return nil
	}
	if len(d.Alerts) == 0 {
		return []Check{Check{Name: NameAlert}.as(Off, "name receivers in RSSWARDEN_ALERT, one URL a line, or a file that RSSWARDEN_CONFIG names", "no receiver of alerts is named")}
	}
	p := alert.NewProgram(d.AlertProgram, hold.Environ(), (*exec.Cmd).Start)
	for _, t := range d.Alerts {
		a := alert.Try(context.Background(), slurm.NodeName(d.Lookup), t, alert.Options{Token: d.AlertToken, TokenFile: d.AlertTokenFile, Send: p.Send})
		c := Check{Name: NameAlert}.as(OK, "", "%s took a test alert, and that it is over", t)
		switch {
		case a.Error != "":
			c = c.as(Off, "check the URL, and what the receiver is to know us by, in RSSWARDEN_ALERT", "%s: %s", t, a.Error)
		case t.Kind == alert.Alertmanager:
			c = c.as(OK, "", "%s took a test alert, RsswardenTest, which ends by itself after a minute; its routes decide who is notified", t)
		}
		checks = append(checks, c)
	}
	return checks
}
