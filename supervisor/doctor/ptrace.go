package doctor

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// ptraceFacts are what ptrace may do here.
type ptraceFacts struct {
	Supported bool   // the processor is one that trimming by ptrace was run on
	Arch      string // its name
	// Scope is Yama's ptrace_scope, empty where the kernel has no Yama.
	Scope string
	// The seccomp mode and the number of filters, -1 if unknown; what we start has the
	// same.
	Seccomp, Filters int
	// Dumpable is PR_GET_DUMPABLE of our own process.
	Dumpable bool
	// Why a child of ours may not be trimmed, or could not be stopped; both empty if it
	// worked.
	Refused, Failed string
}

// ptraceCheck says whether --trim ptrace and --trim auto would work.
func ptraceCheck(f ptraceFacts) Check {
	c := Check{Name: NamePtrace, Status: OK, Source: "a child was stopped and let go"}
	const hook = "keep --trim hook, the default, which needs no ptrace"
	switch {
	case !f.Supported:
		c.Source = "the program was built for " + f.Arch
		return c.as(Off, hook, "--trim ptrace was only ever run on amd64")
	case f.Scope != "" && f.Scope != "0" && f.Scope != "1":
		c.Source = "/proc/sys/kernel/yama/ptrace_scope"
		return c.as(Off, hook, "Yama's ptrace_scope is %s: no process may be stopped for a trim", f.Scope)
	case f.Refused != "":
		return c.as(Off, hook, "a child of rsswarden may not be trimmed: %s", f.Refused)
	case f.Failed != "":
		return c.as(Off, hook+"; in a container, its seccomp profile may forbid ptrace", "a child of rsswarden could not be stopped: %s", f.Failed)
	}
	c.Found = "--trim auto and --trim ptrace can stop what rsswarden starts"
	switch f.Scope {
	case "":
		c.Found += "; no Yama"
	case "0":
		c.Found += "; Yama's ptrace_scope is 0"
	case "1":
		c.Found += "; Yama's ptrace_scope is 1: rsswarden trim and attach cannot use it"
	}
	if f.Seccomp != 0 {
		c.Found += fmt.Sprintf("; under %d seccomp filters, as is what it starts", f.Filters)
	}
	if !f.Dumpable {
		c = c.as(Limited, "chmod a+r the program", "%s; this rsswarden is not dumpable: its file may not be read by you", c.Found)
	}
	return c
}

// ptrace stops a child by ptrace as a trim would, and lets it go.
func (d *prober) ptrace() []Check {
	f := ptraceFacts{Supported: runtime.GOARCH == "amd64", Arch: runtime.GOARCH}
	if b, err := procfile.Read("/proc/sys/kernel/yama/ptrace_scope", procfile.Small); err == nil {
		f.Scope = strings.TrimSpace(string(b))
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err == nil {
		f.Dumpable = n == 1
	}
	f.Seccomp, f.Filters = seccomp()
	f.Refused, f.Failed = tryPtrace()
	c := ptraceCheck(f)
	d.ptraceWorks = c.Status == OK
	return []Check{c}
}

// seccomp is the mode of this process and the number of its filters, -1 if unknown.
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
		return "", fmt.Sprintf("%s cannot be started: %v", filepath.Base(cat), errnoOf(err))
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

// stopOnce stops a process and releases it. The end of its thread would release it too.
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
