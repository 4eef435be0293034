package hunt

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
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
			must(t, err)
			must(t, cmd.Start())
			defer cmd.Process.Kill()
			if _, err := out.Read(make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			before := processorTime(t, cmd.Process.Pid)
			time.Sleep(time.Second)
			if used := processorTime(t, cmd.Process.Pid) - before; used > 500*time.Millisecond {
				t.Errorf("the holder used %v of a second", used)
			}
			must(t, cmd.Process.Signal(syscall.SIGTERM))
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
	must(t, err)
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}

// alike runs a command bare and under "rsswarden run --quiet" and compares exit status
// and standard output. prepare makes the command of a command line.
func alike(t *testing.T, prepare func(argv ...string) *exec.Cmd, argv ...string) {
	t.Helper()
	bare := finishWithin(t, 20*time.Second, prepare(argv...))
	held := finishWithin(t, 20*time.Second, prepare(append([]string{binary, "run", "--quiet", "--"}, argv...)...))
	if bare.status != held.status || bare.stdout != held.stdout {
		t.Errorf("bare %d %q, held %d %q %s", bare.status, bare.stdout, held.status, held.stdout, held.stderr)
	}
}

// TestTwinStartLookup: a name is looked up in PATH as env(1) does it, by execvp(3).
func TestTwinStartLookup(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), mode))
	}
	file("directory/foo/x", "", 0o644)
	file("plain/foo", "#!/bin/sh\necho plain\n", 0o644)
	file("lost/foo", "#!/none/such\n", 0o755)
	file("good/foo", "#!/bin/sh\necho \"$0\" \"$@\"\n", 0o755)
	file("bare/foo", "echo no first line, \"$0\" \"$@\"\n", 0o755)
	file("file", "", 0o644)
	for name, path := range map[string]string{
		"a directory first":              "directory:good",
		"a file without x first":         "plain:good",
		"its interpreter is not there":   "lost:good",
		"many that cannot be":            "none:file:plain:lost:directory:bare:good",
		"a script without #!":            "bare",
		"a directory alone":              "directory",
		"a file without x alone":         "plain",
		"a file without x, then nothing": "plain:none:lost",
		"nowhere":                        "none",
	} {
		t.Run(name, func(t *testing.T) {
			var dirs []string
			for _, d := range strings.Split(path, ":") {
				dirs = append(dirs, filepath.Join(dir, d))
			}
			alike(t, func(argv ...string) *exec.Cmd {
				cmd := exec.Command("/usr/bin/env", argv...)
				cmd.Env = append(os.Environ(), "PATH="+strings.Join(dirs, ":"))
				return cmd
			}, "foo", "a", "b c")
		})
	}
	for name, path := range map[string]string{"PATH is empty": "", "its first is empty": ":/usr/bin", "its last is empty": "/usr/bin:"} {
		t.Run(name, func(t *testing.T) {
			alike(t, func(argv ...string) *exec.Cmd {
				cmd := exec.Command("/usr/bin/env", argv...)
				cmd.Dir = filepath.Join(dir, "good")
				cmd.Env = append(os.Environ(), "PATH="+path)
				return cmd
			}, "foo")
		})
	}
	t.Run("with a slash", func(t *testing.T) {
		for _, name := range []string{"good/foo", "./bare/foo", "plain/foo", "directory/foo", "lost/foo", "none/foo", ""} {
			alike(t, func(argv ...string) *exec.Cmd {
				cmd := exec.Command("/usr/bin/env", argv...)
				cmd.Dir = dir
				return cmd
			}, name)
		}
	})
}

func init() {
	// environ executes the command behind "--" with the entries before it, as they are.
	roles["environ"] = func(args []string) int {
		at := slices.Index(args, "--")
		fmt.Fprintln(os.Stderr, syscall.Exec(args[at+1], args[at+1:], args[:at]))
		return 2
	}
}

// TestTwinStartEnvironment: the environment is handed on byte for byte.
func TestTwinStartEnvironment(t *testing.T) {
	given := []string{
		"FOO=1", "FOO=2", "", "no equals sign", "=value alone", "=", "EMPTY=", "GODEBUG=gctrace=1", "GODEBUG=again", "GOMEMLIMIT=lots", "GOGC=x",
		"PATH=/usr/bin:/bin", "PATH=/none", "\x01ODD=1", "\xff\xfe=\xfd", "FOO=3",
		"PYTHONPATH=/first", "PYTHONPATH=/second",
	}
	home := "HOME=" + t.TempDir()
	look := func(argv ...string) []string {
		r := finishWithin(t, 20*time.Second, role("environ", slices.Concat(given, []string{home, "--"}, argv, []string{"/bin/cat", "/proc/self/environ"})...))
		if r.status != 0 {
			t.Fatal(r)
		}
		return strings.Split(r.stdout, "\x00")
	}
	bare, held := look(), look(binary, "run", "--quiet", "--")
	held = slices.DeleteFunc(held, func(v string) bool { return strings.HasPrefix(v, "RSSWARDEN_DIR=") })
	hooks := 0
	for i, v := range held {
		if hook, rest, ok := strings.Cut(v, ":/"); ok && strings.HasPrefix(v, "PYTHONPATH=") && strings.Contains(hook, "/hook-") {
			held[i] = "PYTHONPATH=/" + rest
			hooks++
		}
	}
	if hooks != 2 { // C takes the first, a shell the last
		t.Errorf("the hook is in %d of 2 PYTHONPATHs", hooks)
	}
	if !slices.Equal(bare, held) {
		t.Errorf("bare %q\nheld %q", bare, held)
	}
}

// TestTwinStartTooLong: our variables make the environment too long for execve(2). The
// command has the user's, and that the hook is left out is said and recorded.
func TestTwinStartTooLong(t *testing.T) {
	dir := t.TempDir()
	events := filepath.Join(dir, "events")
	home := filepath.Join(dir, strings.Repeat("long", 50))
	must(t, os.Mkdir(home, 0o700))
	held := func(env ...string) *exec.Cmd {
		cmd := exec.Command(binary, "run", "--", "/bin/sh", "-c", "echo ${#PYTHONPATH}; exit 4")
		cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + home, "RSSWARDEN_RECORD=none", "RSSWARDEN_EVENTS=" + events}, env...)
		return cmd
	}
	// One string may have 128 KiB (MAX_ARG_STRLEN of include/uapi/linux/binfmts.h).
	longest := "PYTHONPATH=/" + strings.Repeat("p", 128<<10-len("PYTHONPATH=/")-1)
	// All together may have a quarter of the stack: the most that still starts us.
	most, filler := 0, strings.Repeat("x", 100<<10)
	full := func(n int) (env []string) {
		for n > 0 {
			some := min(n, len(filler))
			env = append(env, fmt.Sprintf("F%03d=%s", len(env), filler[:some]))
			n -= some
		}
		return env
	}
	for step := 8 << 20; step > 0; step /= 2 {
		cmd := held(full(most + step)...)
		if err := cmd.Start(); errors.Is(err, syscall.E2BIG) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		cmd.Process.Kill()
		cmd.Wait()
		most += step
	}
	for name, env := range map[string][]string{"one string": {longest}, "all together": full(most), "all but 100 bytes": full(most - 100)} {
		os.Remove(events)
		r := finishWithin(t, 20*time.Second, held(env...))
		if want := strconv.Itoa(len(env[0]) - len("PYTHONPATH=")); r.status != 4 || name == "one string" && strings.TrimSpace(r.stdout) != want {
			t.Errorf("%s: status %d, want 4; PYTHONPATH of %q bytes\n%s", name, r.status, r.stdout, r.stderr)
		}
		const says = "no room for our variables"
		b, err := os.ReadFile(events)
		if err != nil || !strings.Contains(string(b), says) || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %v, not said: %q\n%s\n%s", name, err, says, r.stderr, b)
		}
	}
}

// TestTwinStartNoThread: no thread or no process can be made for a reason that is in none
// of the kernel's counts. The command runs.
func TestTwinStartNoThread(t *testing.T) {
	for name, rules := range map[string][]string{
		"clone3, EPERM":      {rule(unix.SYS_CLONE3, unix.EPERM)},
		"clone3, EAGAIN":     {rule(unix.SYS_CLONE3, unix.EAGAIN)},
		"no process, EAGAIN": {rule(unix.SYS_CLONE, unix.EAGAIN) + vforks},
		"no process, EPERM":  {rule(unix.SYS_CLONE, unix.EPERM) + vforks},
		"no process, ENOMEM": {rule(unix.SYS_CLONE, unix.ENOMEM) + vforks},
	} {
		t.Run(name, func(t *testing.T) {
			prepare := func(argv ...string) *exec.Cmd { return refusedTo(rules, argv...) }
			alike(t, prepare, "sh", "-c", "echo $RSSWARDEN_DIR; exit 3")
			alike(t, prepare, "sh", "-c", "kill -SEGV $$")
		})
	}
}

// vforks has a rule for clone(2) meet only the processes that the holder makes.
var vforks = fmt.Sprintf("&%d", unix.CLONE_VFORK)

// TestTwinStartPolicy: the scheduling policy is the command's too.
func TestTwinStartPolicy(t *testing.T) {
	needRoot(t)
	for _, policy := range []string{
		"-R -f 1", "-f 1", "-R -r 2", "-R -b 0", "-i 0", "-d --sched-runtime 1000000 --sched-deadline 50000000 --sched-period 50000000 0",
	} {
		t.Run(policy, func(t *testing.T) {
			// It does not fork: that fails under SCHED_DEADLINE.
			look := func(argv ...string) (int, string) {
				argv = slices.Concat([]string{"chrt"}, strings.Fields(policy), argv, []string{"sh", "-c", "exec chrt -p $$"})
				r := finishWithin(t, 20*time.Second, exec.Command(argv[0], argv[1:]...))
				return r.status, regexp.MustCompile(`\d+'s`).ReplaceAllString(r.stdout, "PID")
			}
			status, text := look()
			if status != 0 {
				t.Skipf("the kernel does not let us: status %d", status)
			}
			if held, now := look(binary, "run", "--quiet", "--"); held != status || now != text {
				t.Errorf("bare %s\nheld %d %s", text, held, now)
			}
		})
	}
}

// waitForSignals says each of two real-time signals, which queue, and ends at the second.
const waitForSignals = `
import signal
both = {44, 45}
signal.pthread_sigmask(signal.SIG_BLOCK, both)
print("ready", flush=True)
while True:
    got = signal.sigwait(both)
    print(int(got), flush=True)
    if got == 45: break
`

// TestTwinStartManyGroups: a signal to the process group arrives once, however many
// groups the user is in.
func TestTwinStartManyGroups(t *testing.T) {
	needRoot(t)
	for _, n := range []int{100, 1600, 10000} {
		cmd := exec.Command(binary, "run", "--quiet", "--record", "none", "--", "python3", "-c", waitForSignals)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{}}
		for g := range n {
			cmd.SysProcAttr.Credential.Groups = append(cmd.SysProcAttr.Credential.Groups, uint32(1_000_000_000+g))
		}
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		var got []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			got = append(got, lines.Text())
			switch lines.Text() {
			case "ready":
				awaitWatcher(t, cmd.Process.Pid)
				syscall.Kill(-cmd.Process.Pid, 44)
			case "44":
				// Behind what the holder may forward of the first.
				syscall.Kill(cmd.Process.Pid, 45)
			}
		}
		cmd.Wait()
		if want := []string{"ready", "44", "45"}; !slices.Equal(got, want) {
			t.Errorf("with %d groups: %q, want %q", n, got, want)
		}
	}
}

// awaitWatcher waits until a holder's watcher blocks its signals, and so is a witness.
func awaitWatcher(t *testing.T, holder int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", holder, holder))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", holder))
		for _, task := range tasks {
			more, _ := os.ReadFile(task)
			b = append(b, more...)
		}
		for _, child := range strings.Fields(string(b)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(comm)) == "rss-watcher" {
				return
			}
		}
	}
	t.Fatal("no watcher")
}

// TestTwinStartUmask: no directory is made that its owner cannot enter.
func TestTwinStartUmask(t *testing.T) {
	needRoot(t)
	for _, umask := range []string{"777", "700", "277"} {
		home := owned(t, filepath.Join(shared(t, 0o755), "home"), victim, 0o700)
		prepare := func(argv ...string) *exec.Cmd {
			cmd := as(victim, exec.Command("sh", append([]string{"-c", "umask " + umask + `; exec "$@"`, "sh"}, argv...)...))
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home}
			return cmd
		}
		alike(t, prepare, "sh", "-c", "umask; exit 3")
		r := finish(t, prepare(binary, "run", "--limit", "50M", "--at", "user 1%:warn", "--interval", "50ms", "--", "sleep", "0.5"))
		if r.status != 0 {
			t.Errorf("%d %s", r.status, r.stderr)
		}
		made := 0
		err := filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
			if err != nil || path == home {
				return err
			}
			made++
			info, err := d.Info()
			if err == nil && d.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
				t.Errorf("umask %s: %s has mode %v", umask, path, info.Mode())
			}
			return err
		})
		if err != nil || made == 0 {
			t.Errorf("%d made in the home directory: %v", made, err)
		}
	}
}
