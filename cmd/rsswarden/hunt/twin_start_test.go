package hunt

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() { roles["refusing"] = refusing }

// refusing executes the command after "--" with system calls refused by seccomp. A rule
// is CALL=ERRNO or CALL=ERRNO&MASK, which refuses where the first argument has a bit of
// the mask.
func refusing(args []string) int {
	runtime.LockOSThread()
	const load, equal, anyBit, answer = 0x20, 0x15, 0x45, 0x06 // of linux/bpf_common.h
	var filter []unix.SockFilter
	for len(args) > 0 && args[0] != "--" {
		var number, errno, mask uint32
		if n, _ := fmt.Sscanf(args[0], "%d=%d&%d", &number, &errno, &mask); n < 2 {
			fmt.Fprintf(os.Stderr, "not a rule: %q\n", args[0])
			return 2
		}
		filter = append(filter, unix.SockFilter{Code: load, K: 0}, unix.SockFilter{Code: equal, Jf: 1, K: number})
		if mask != 0 {
			filter[len(filter)-1].Jf = 3
			filter = append(filter, unix.SockFilter{Code: load, K: 16}, unix.SockFilter{Code: anyBit, Jf: 1, K: mask})
		}
		filter = append(filter, unix.SockFilter{Code: answer, K: 0x00050000 | errno}) // SECCOMP_RET_ERRNO
		args = args[1:]
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: 0x7fff0000}) // SECCOMP_RET_ALLOW
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, 2, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	path, err := exec.LookPath(args[1])
	if err == nil {
		err = syscall.Exec(path, args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 2
}

const pollCall = 7 // poll(2) on amd64, where package unix has it; arm64 has none

// rule refuses a system call.
func rule(call uintptr, errno syscall.Errno) string { return fmt.Sprintf("%d=%d", call, int(errno)) }

// refusedTo is a command that starts with these rules.
func refusedTo(rules []string, argv ...string) *exec.Cmd {
	return role("refusing", append(append(rules, "--"), argv...)...)
}

// ours is the command line under "rsswarden run".
func ours(argv ...string) []string { return append([]string{binary, "run", "--"}, argv...) }

// TestTwinStartCallRefused: a call of the holder fails for good, by a seccomp filter. The
// command's status is its own, a signal reaches it, and the holder waits, rather than spin.
func TestTwinStartCallRefused(t *testing.T) {
	for name, rules := range map[string][]string{
		"waitid, EPERM":                  {rule(unix.SYS_WAITID, unix.EPERM)},
		"waitid, ENOSYS":                 {rule(unix.SYS_WAITID, unix.ENOSYS)},
		"waitid and pidfd_open":          {rule(unix.SYS_WAITID, unix.EPERM), rule(unix.SYS_PIDFD_OPEN, unix.EPERM)},
		"pidfd_open and the pidfd calls": {rule(unix.SYS_PIDFD_OPEN, unix.ENOSYS), rule(unix.SYS_PIDFD_SEND_SIGNAL, unix.ENOSYS)},
		"poll":                           {rule(pollCall, unix.EPERM)},
		"poll, ENOMEM":                   {rule(pollCall, unix.ENOMEM)},
		"sendto":                         {rule(unix.SYS_SENDTO, unix.EPERM)},
		"socketpair":                     {rule(unix.SYS_SOCKETPAIR, unix.EPERM)},
		"signalfd":                       {rule(unix.SYS_SIGNALFD4, unix.EPERM)},
		"nanosleep":                      {rule(unix.SYS_NANOSLEEP, unix.EPERM), rule(pollCall, unix.EPERM)},
		"prctl":                          {rule(unix.SYS_PRCTL, unix.EPERM)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := finishWithin(t, 20*time.Second, refusedTo(rules, ours("sh", "-c", "exit 3")...)).status
			if status != 3 {
				t.Errorf("status %d, want 3", status)
			}
			if status = finishWithin(t, 20*time.Second, refusedTo(rules, ours("sh", "-c", "kill -SEGV $$")...)).status; status != 128+11 {
				t.Errorf("status %d, want that of SIGSEGV", status)
			}
			cmd := refusedTo(rules, ours("sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			if _, err := out.Read(make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			before := processorTime(t, cmd.Process.Pid)
			time.Sleep(time.Second)
			if used := processorTime(t, cmd.Process.Pid) - before; used > 500*time.Millisecond {
				t.Errorf("the holder used %v of a second", used)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { cmd.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("not ended after TERM")
			}
			if status := cmd.ProcessState.ExitCode(); status != 7 {
				t.Errorf("status %d after TERM, want 7", status)
			}
		})
	}
}

// processorTime is what a process has used, utime and stime of proc_pid_stat(5).
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
