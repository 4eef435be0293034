package hunt

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The errors that a refused system call is given.
var errnos = map[string]unix.Errno{
	"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS, "EINTR": unix.EINTR, "EAGAIN": unix.EAGAIN, "ENOMEM": unix.ENOMEM,
}

func init() {
	// refuse NUMBER ERRNO COMMAND...: executes the command below a seccomp filter that
	// gives the system call with this number this error, to it and all its descendants;
	// with ERRNO&MASK only where its first argument has a bit of the mask.
	roles["refuse"] = func(args []string) int {
		errno, bits, _ := strings.Cut(args[1], "&")
		mask, _ := strconv.Atoi(bits)
		number, err := strconv.Atoi(args[0])
		if err != nil || len(args) < 3 {
			fmt.Fprintln(os.Stderr, "usage: refuse NUMBER ERRNO[&MASK] COMMAND...")
			return 2
		}
		path, err := exec.LookPath(args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		// Free pages for what Exec allocates below a filter that refuses mmap.
		runtime.KeepAlive(make([]byte, 16<<20))
		runtime.GC()
		runtime.LockOSThread()
		if err := refuse(number, errnos[errno], mask); err != nil {
			fmt.Fprintln(os.Stderr, "cannot install a seccomp filter:", err)
			return 2
		}
		err = unix.Exec(path, args[2:], os.Environ())
		fmt.Fprintln(os.Stderr, err)
		return 126
	}
}

// refuse installs a filter in the calling thread (seccomp(2)): the system call with this
// number fails, all others are made.
func refuse(number int, errno unix.Errno, mask int) error {
	const (
		load, end     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
		equal, anyBit = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		fail, allow   = 0x00050000, 0x7fff0000 // SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
		firstArgument = 16                     // in seccomp_data
	)
	filter := []unix.SockFilter{{Code: load}, {Code: equal, K: uint32(number), Jf: 1}} // of seccomp_data.nr
	if mask != 0 {
		filter[1].Jf = 3
		filter = append(filter, unix.SockFilter{Code: load, K: firstArgument}, unix.SockFilter{Code: anyBit, K: uint32(mask), Jf: 1})
	}
	filter = append(filter, unix.SockFilter{Code: end, K: fail | uint32(errno)}, unix.SockFilter{Code: end, K: allow})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// holderCalls are the system calls that the holder makes from its first instruction to
// its end, as strace sees them.
var holderCalls = sync.OnceValue(func() (names []string) {
	trace, err := os.CreateTemp("", "hunt-trace-")
	if err != nil {
		return nil
	}
	defer os.Remove(trace.Name())
	defer trace.Close()
	// The command and the watcher are let go when they execute their programs.
	cmd := exec.Command("strace", "-f", "-b", "execve", "-qq", "-o", trace.Name(), binary, "run", "--", "sh", "-c", "sleep .3; exit 7")
	_ = cmd.Run()
	text, _ := os.ReadFile(trace.Name())
	for l := range strings.Lines(string(text)) {
		_, call, _ := strings.Cut(strings.TrimSpace(l), " ")
		call = strings.TrimSpace(call)
		if name, _, ok := strings.Cut(call, "("); ok && name != "" && !strings.ContainsAny(name, " <+-") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// callNumbers are the numbers of the system calls on this machine, by name, as the C
// compiler has them.
var callNumbers = sync.OnceValue(func() map[string]int {
	cmd := exec.Command("cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null")
	text, err := cmd.Output()
	if err != nil {
		return nil
	}
	numbers := map[string]int{}
	for l := range strings.Lines(string(text)) {
		f := strings.Fields(l)
		if len(f) != 3 {
			continue
		}
		if name, ok := strings.CutPrefix(f[1], "__NR_"); ok {
			if n, err := strconv.Atoi(f[2]); err == nil {
				numbers[name] = n
			}
		}
	}
	return numbers
})

// irreplaceable are the system calls that no program can be refused and end as it would.
var irreplaceable = map[string]string{
	"exit":         "a thread that may not end does not, and each Go program has several",
	"exit_group":   "a command that may not end does not",
	"rt_sigreturn": "what has handled a signal dies of it, and the Go runtime handles some at any time",
}

// refusedTwins refuse one system call of the holder's to it, its watcher and the command,
// and those that it falls back to when another is refused.
func refusedTwins() (all []twin) {
	numbers := callNumbers()
	add := func(more bool, name, script string) {
		all = append(all, twin{area: "refused", name: name, statusOnly: true, more: more, script: "ulimit -c 0; " + script})
	}
	refused := func(more bool, errno string, calls ...string) {
		var below string
		for _, call := range calls {
			below += fmt.Sprintf(`"$TWIN" refuse %d %s `, numbers[call], errno)
		}
		add(more, strings.Join(calls, " and ")+" "+errno, fmt.Sprintf(`%[1]sRUN sh -c 'exit 7'; echo $?
%[1]sRUN sleep 20.$$ & p=$!
slept() { for c in $(grep -lsx sleep /proc/[0-9]*/comm); do d=${c%%comm}; [ "$(tr '\0' ' ' <$d/cmdline)" = "sleep 20.$$ " ] && grep -q '^%[2]d ' $d/syscall && return; done; false; } 2>/dev/null
until slept || grep -qs "^State:.Z" /proc/$p/status || ! [ -d /proc/$p ]; do sleep .02; done; kill $p; wait $p; echo $?`, below, unix.SYS_CLOCK_NANOSLEEP))
	}
	for i, name := range holderCalls() {
		if _, ok := numbers[name]; !ok || irreplaceable[name] != "" {
			continue
		}
		for j, errno := range slices.Sorted(maps.Keys(errnos)) {
			if errno != "EINTR" { // means "once more": Go's library never gives up on it
				refused((i+j)%len(errnos) != 0, errno, name)
			}
		}
	}
	if numbers == nil {
		return all
	}
	refused(false, "EPERM", "waitid", "pidfd_open")
	refused(false, "ENOSYS", "pidfd_open", "pidfd_send_signal")
	refused(false, "EPERM", "nanosleep", "poll")
	for _, errno := range []string{"EAGAIN", "EPERM", "ENOMEM"} {
		below := fmt.Sprintf(`"$TWIN" refuse %d "%s&%d" RUN `, numbers["clone"], errno, unix.CLONE_VFORK)
		add(false, "no process, "+errno, below+`sh -c 'echo $RSSWARDEN_DIR; exit 3'; echo $?; `+below+`sh -c 'kill -SEGV $$'; echo $?`)
	}
	return all
}

func init() {
	// environ ENTRY... -- COMMAND...: executes the command with these entries, in this
	// order, as its whole environment.
	roles["environ"] = func(args []string) int {
		i := slices.Index(args, "--")
		if i < 0 || i == len(args)-1 {
			fmt.Fprintln(os.Stderr, "usage: environ ENTRY... -- COMMAND...")
			return 2
		}
		fmt.Fprintln(os.Stderr, unix.Exec(args[i+1], args[i+1:], args[:i]))
		return 126
	}
}
