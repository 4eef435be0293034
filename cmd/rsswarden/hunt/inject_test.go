package hunt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// noFault are the system calls that return nothing to fail with, or that strace needs.
var noFault = []string{"execve", "exit", "exit_group", "rt_sigreturn", "restart_syscall"}

// injected is a user of no other process, for what a wrong PID may do.
const injected = 1003

// leftOut are the system calls, errors and how often they fail that are not tried, with
// the reason. All of them end any Go program, or have it wait for ever; no kernel gives
// such errors. A seccomp filter can, and one that refuses what the runtime rests on is
// found before the runtime starts (supervisor/hold/refused.c): TestTwin has these cases.
var leftOut = map[string]string{
	"getpid":                  "kill(2) takes -1 for all processes",
	"futex":                   "the runtime ends the process (runtime.futexwakeup, and locks that are not had)",
	"epoll_create1":           "the runtime ends the process (runtime.netpollinit)",
	"epoll_ctl":               "the runtime ends the process (runtime.netpollinit)",
	"eventfd2":                "the runtime ends the process (runtime.netpollinit)",
	"epoll_pwait":             "the runtime ends the process (runtime.netpoll)",
	"rt_sigprocmask":          "the runtime ends the process (runtime.rtsigprocmask)",
	"sigaltstack":             "the runtime ends the process (runtime.sigaltstack)",
	"fcntl 1+":                "the runtime ends the process (runtime.checkfds)",
	"nanosleep 1+":            "a pause that ends at once, always: the runtime's own loops spin",
	"openat2 EAGAIN 1+":       "os.Root opens again, in the watcher of a parked holder, which executes no program",
	"rt_sigpending ENOMEM 1+": "the watcher of a parked holder, which executes no program, looks again at once",
	"read EAGAIN 1":           "os.File waits until the file can be read",
	"read EAGAIN 1+":          "os.File waits until the file can be read",
}

func init() {
	// Package os does again what a signal has interrupted.
	for _, call := range []string{"fchmodat", "flock", "fstat", "ftruncate", "getdents64", "mkdirat", "newfstatat", "openat", "openat2", "ppoll", "pread64", "read", "readlinkat", "renameat", "unlinkat", "write"} {
		leftOut[call+" EINTR 1+"] = "package os does it again, for ever (os.ignoringEINTR)"
	}
}

// fault is one system call of the holder's that fails.
type fault struct {
	phase string // "start": from our first instruction; "steady": once the command runs
	call  string
	errno string
	skip  int    // how many are made before
	when  string // of strace's: "1" or "1+"
	dies  bool   // the command dies of SIGTERM, else it exits with status 7
}

func (f *fault) inject() string {
	when := fmt.Sprint(f.skip + 1)
	return fmt.Sprintf("inject=%s:error=%s:when=%s", f.call, f.errno, when+strings.TrimPrefix(f.when, "1"))
}

// command is the user's: it is ready, takes a signal or not, and ends.
func (f *fault) command(dir string) (argv []string, want int) {
	end, want := "exit 7", 7
	if f.dies {
		end, want = "kill -TERM $$", 128+15
	}
	return []string{"sh", "-c", `trap : USR1; : >` + dir + `/ready; sleep .4 & wait; wait; ` + end}, want
}

// outcome is what became of one run.
type outcome struct {
	status, want int
	hang         bool
	calls        int // that failed
}

func (o outcome) String() string {
	switch {
	case o.hang:
		return "hang"
	case o.status != o.want:
		return fmt.Sprintf("%d for %d", o.status, o.want)
	}
	return fmt.Sprintf("spins %d", o.calls)
}

// spins says that a call was made again and again: one that waits for 10 ms between two
// is made 800 times in the longest run.
func (o outcome) spins() bool { return o.calls > 3000 }

func (o outcome) bad() bool { return o.hang || o.status != o.want || o.spins() }

// run has the fault happen.
func (f *fault) run(t *testing.T) (o outcome) {
	dir, err := os.MkdirTemp("/tmp", "rsswarden-hunt-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chown(dir, injected, injected))
	trace := filepath.Join(dir, "trace")
	argv, want := f.command(dir)
	held := append([]string{binary, "run", "--quiet", "--record", "none", "--"}, argv...)
	// The command and the watcher are let go when they execute their programs.
	strace := []string{"strace", "-f", "-b", "execve", "-qq", "-o", trace, "-e", "trace=" + f.call, "-e", f.inject()}
	if f.phase == "start" {
		held = append(append(strace, "-D"), held...)
	}
	cmd := as(injected, exec.Command(held[0], held[1:]...))
	cmd.SysProcAttr.Setpgid = true
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_CACHE_HOME="+dir, "TMPDIR="+dir)
	must(t, cmd.Start())
	ended := make(chan struct{})
	var werr error
	go func() { werr = cmd.Wait(); close(ended) }()
	if f.phase == "steady" {
		pid := cmd.Process.Pid
		awaited(func() bool { _, err := os.Stat(dir + "/ready"); return err == nil && watcherOf(pid) != 0 })
		tracer := as(injected, exec.Command(strace[0], append(strace[1:], "-p", fmt.Sprint(pid))...))
		must(t, tracer.Start())
		defer tracer.Wait()
		defer tracer.Process.Kill()
		awaited(func() bool { return traced(pid) })
		syscall.Kill(pid, syscall.SIGUSR1)
	}
	select {
	case <-ended:
	case <-time.After(8 * time.Second):
		o.hang = true
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	var exit *exec.ExitError
	if werr != nil && !errors.As(werr, &exit) {
		t.Error(werr)
	}
	w := cmd.ProcessState.Sys().(syscall.WaitStatus)
	o.want, o.status = want, w.ExitStatus()
	if w.Signaled() {
		o.status = 128 + int(w.Signal())
	}
	text, _ := os.ReadFile(trace)
	o.calls = bytes.Count(text, []byte("(INJECTED)"))
	return o
}

// traced says that every thread of a process is, or that it is gone.
func traced(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, task := range tasks {
		if b, err := os.ReadFile(task); err == nil && bytes.Contains(b, []byte("TracerPid:\t0\n")) {
			return false
		}
	}
	return true
}

// holderFaults are the calls of a run without faults: all since our first instruction,
// which is behind the dynamic linker's, and those once the command runs.
func holderFaults(t *testing.T) (all []fault) {
	dir := t.TempDir()
	for _, phase := range []string{"start", "steady"} {
		f := fault{phase: phase, call: "all", errno: "ENOSYS", skip: 1 << 15, when: "1"}
		argv, _ := f.command(dir)
		argv = append([]string{binary, "run", "--quiet", "--record", "none", "--"}, argv...)
		trace := filepath.Join(dir, phase)
		strace := []string{"-f", "-b", "execve", "-qq", "-o", trace}
		if phase == "start" {
			finish(t, exec.Command("strace", append(strace, argv...)...))
		} else {
			cmd := exec.Command(argv[0], argv[1:]...)
			must(t, cmd.Start())
			tracer := exec.Command("strace", append(strace, "-p", fmt.Sprint(cmd.Process.Pid))...)
			awaited(func() bool { return watcherOf(cmd.Process.Pid) != 0 })
			must(t, tracer.Start())
			awaited(func() bool { return traced(cmd.Process.Pid) })
			cmd.Process.Signal(syscall.SIGUSR1)
			cmd.Wait()
			tracer.Wait()
		}
		text, err := os.ReadFile(trace)
		must(t, err)
		before, counting := map[string]int{}, phase == "start"
		names := map[string]bool{}
		for l := range strings.Lines(string(text)) {
			_, call, _ := strings.Cut(l, " ")
			call = strings.TrimSpace(call)
			name, args, ok := strings.Cut(call, "(")
			if !ok || strings.ContainsAny(name, " <+-=") || slices.Contains(noFault, name) {
				continue
			}
			if name == "rt_sigaction" && strings.HasPrefix(args, "SIGHUP, NULL") {
				counting = false // the constructor of supervisor/hold/early.c
			}
			if counting {
				before[name]++
			} else {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			for _, errno := range slices.Sorted(maps.Keys(errnos)) {
				for _, when := range []string{"1", "1+"} {
					all = append(all, fault{phase: phase, call: name, errno: errno, skip: before[name], when: when, dies: len(all)%3 == 0})
				}
			}
		}
	}
	return all
}

// leftOut says that a case is among those.
func (f *fault) leftOut() bool {
	return leftOut[f.call] != "" || leftOut[f.call+" "+f.when] != "" || leftOut[f.call+" "+f.errno+" "+f.when] != ""
}

// Whatever system call of the holder's fails, once or for ever, the command's status is
// the holder's, and the holder neither hangs nor spins.
func TestInject(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	var group sync.WaitGroup
	var ran, omitted, bad atomic.Int32
	slots := make(chan bool, 2*runtime.NumCPU())
	for i, f := range holderFaults(t) {
		if f.leftOut() {
			omitted.Add(1)
			continue
		}
		if !full && i%7 != 0 {
			continue
		}
		ran.Add(1)
		slots <- true
		group.Go(func() {
			defer func() { <-slots }()
			if o := f.run(t); o.bad() {
				bad.Add(1)
				t.Errorf("%s, %s %s when=%s: %v", f.phase, f.call, f.errno, f.when, o)
			}
		})
	}
	group.Wait()
	t.Logf("%d faults, once and for ever: %d changed a status, hung or span; %d left out", ran.Load(), bad.Load(), omitted.Load())
}
