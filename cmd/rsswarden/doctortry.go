package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// trialPatience is how long what takes milliseconds may take.
const trialPatience = 10 * time.Second

// trialRun is what came of a run of a command that ends at once.
type trialRun struct {
	doctor.RunFacts
	limits string // /proc/PID/limits of the command
}

// tryRun has holder and watcher start, over a command that prints its limits.
// The user's own options are left out: they were looked at already, and a trial
// leaves nothing behind.
func (d *diagnosis) tryRun() (t trialRun) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Err = err
		return t
	}
	defer read.Close()
	args := []string{
		"run", "--at", "none", "--dry-run", "--record", "none", "--loader", "off", "--events", "/dev/fd/3", "--", "cat", "/proc/self/limits",
	}
	var out, errs text.Bounded
	began := time.Now()
	err = d.start("/proc/self/exe", args, trialPatience, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &errs, []*os.File{write}
		for _, kv := range d.p.env {
			if !strings.HasPrefix(kv, variablePrefix) {
				cmd.Env = append(cmd.Env, kv)
			}
		}
	})
	t.Took = fmt.Sprintf("%.0f ms", time.Since(began).Seconds()*1e3)
	write.Close()
	var events text.Bounded
	_ = read.SetReadDeadline(time.Now().Add(time.Second)) // whoever still has the other end
	_, _ = events.ReadFrom(read)
	t.Err, t.Said, t.limits = err, errs.LastLine(), out.String()
	// A site may lock either of the two.
	t.Watched = strings.Contains(events.String(), `"event":"start"`) || strings.Contains(errs.String(), " watching ")
	return t
}

var errLate = errors.New("it took too long and was killed")

// start runs a program in a process group of its own, which is killed when its
// time is over.
func (d *diagnosis) start(path string, args []string, patience time.Duration, prepare func(*exec.Cmd)) error {
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

// obey ends us at a signal that asks for it, once what we have started and made
// is gone.
func (d *diagnosis) obey(stop <-chan os.Signal) {
	s := (<-stop).(syscall.Signal)
	d.mu.Lock() // for good
	if d.child != 0 {
		_ = syscall.Kill(-d.child, syscall.SIGKILL)
	}
	d.remove()
	dieBy(s)
}

// ptrace stops a child by ptrace as a trim would, and lets it go.
func (d *diagnosis) ptrace() doctor.PtraceFacts {
	f := doctor.PtraceFacts{Supported: runtime.GOARCH == "amd64", Arch: runtime.GOARCH}
	if b, err := procfile.Read("/proc/sys/kernel/yama/ptrace_scope", procfile.Small); err == nil {
		f.Scope = strings.TrimSpace(string(b))
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err == nil {
		f.Dumpable = n == 1
	}
	f.Seccomp, f.Filters = seccomp()
	f.Refused, f.Failed = tryPtrace()
	return f
}

// seccomp is the mode of this process and how many filters it has, -1 where the
// kernel does not say.
func seccomp() (mode, filters int) {
	filters = -1
	b, _ := procfile.Read("/proc/self/status", procfile.Status)
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "Seccomp: %d", &mode)
		_, _ = fmt.Sscanf(line, "Seccomp_filters: %d", &filters)
	}
	return mode, filters
}

// tryPtrace says why a child may not be trimmed, or could not be stopped.
func tryPtrace() (refused, failed string) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		return "", err.Error()
	}
	child := exec.Command(cat)
	stdin, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		return "", fmt.Sprintf("%s cannot be started: %v", filepath.Base(cat), plain(err))
	}
	defer func() {
		stdin.Close() // it ends by itself
		_ = child.Wait()
	}()
	id := rss.ProcID{PID: child.Process.Pid}
	if id.Start, err = proctree.StartTime("/proc", id.PID); err != nil {
		return "", err.Error()
	}
	if r, detail := trim.Check(trim.CheckOptions{Proc: "/proc", ID: id}); r != trim.None && !r.Passing() {
		return fmt.Sprintf("%s, %s", r.Reason(), detail), ""
	}
	stopped, ok := within(func() error { return stopOnce(id.PID) })
	switch {
	case !ok:
		_ = child.Process.Kill()
		return "", "it did not stop"
	case stopped != nil:
		return "", stopped.Error()
	}
	return "", ""
}

// stopOnce stops a process and lets it go. The thread is not used again: its end
// lets go of whatever it has attached to.
func stopOnce(pid int) error {
	runtime.LockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return fmt.Errorf("PTRACE_SEIZE: %w", err)
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		return fmt.Errorf("PTRACE_INTERRUPT: %w", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait4: %w", err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		return fmt.Errorf("PTRACE_DETACH: %w", err)
	}
	return nil
}
