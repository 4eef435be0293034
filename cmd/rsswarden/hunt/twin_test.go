package hunt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// twin is one case: a bash script in which RUN stands before the command that is held.
// Bare it is replaced by nothing, wrapped by "rsswarden run --".
type twin struct {
	area, name, script string
	// statusOnly is set where the shell that starts the command bare says on stderr what
	// rsswarden says in other words.
	statusOnly bool
	// execvp is set where what execvp(3) does is meant, which shells do in other ways: bare
	// the command is started by env(1).
	execvp bool
	// slow cases, and one in a family of many that are alike, are left to "make hunt".
	more bool
}

//go:embed testdata/twin
var twinFiles embed.FS

// twinCases are the cases of testdata/twin, in blocks of "# name [options]" and a script,
// and those that are made for each signal, limit and system call.
func twinCases(t testing.TB) []twin {
	t.Helper()
	var all []twin
	files, err := fs.Glob(twinFiles, "testdata/twin/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases: ", err)
	}
	for _, file := range files {
		text, err := twinFiles.ReadFile(file)
		must(t, err)
		area := strings.TrimSuffix(filepath.Base(file), ".txt")
		for i, block := range strings.Split("\n"+string(text), "\n# ") {
			if i == 0 {
				continue // what stands before the first case says what the file is
			}
			name, script, _ := strings.Cut(block, "\n")
			c := twin{area: area}
			name, options, _ := strings.Cut(strings.TrimSuffix(name, "]"), " [")
			for _, o := range strings.Fields(options) {
				switch o {
				case "status":
					c.statusOnly = true
				case "execvp":
					c.execvp, c.statusOnly = true, true
				case "more":
					c.more = true
				default:
					t.Fatalf("%s: %s: unknown option %q", file, name, o)
				}
			}
			c.name, c.script = name, script
			all = append(all, c)
		}
	}
	all = append(all, signalTwins()...)
	all = append(all, limitTwins()...)
	all = append(all, refusedTwins()...)
	seen := map[string]bool{}
	for _, c := range all {
		if key := c.area + "/" + c.name; seen[key] {
			t.Fatalf("two cases are called %s", key)
		} else {
			seen[key] = true
		}
		if !strings.Contains(c.script, "RUN ") {
			t.Fatalf("%s/%s holds no command: RUN is missing", c.area, c.name)
		}
	}
	return all
}

// catchable are the signals that a program can catch; bash knows the first two real-time
// signals of the C library by number only.
func catchable() (all []syscall.Signal) {
	for s := syscall.Signal(1); s <= 64; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP && s != 32 && s != 33 {
			all = append(all, s)
		}
	}
	return all
}

var stopSignals = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

func signalTwins() (all []twin) {
	add := func(more bool, name, script string) {
		all = append(all, twin{area: "signal", name: name, script: script, more: more})
	}
	for i, s := range catchable() {
		more := i%4 != 0 && s != syscall.SIGTERM && s != syscall.SIGINT && s != syscall.SIGUSR1
		stop := slices.Contains(stopSignals, s)
		if !stop {
			add(more, fmt.Sprintf("the command dies by %d", s),
				fmt.Sprintf(`ulimit -c 0; RUN bash -c 'kill -%d $$; echo alive; exit 3'; echo $?`, s))
			add(more, fmt.Sprintf("%d is sent to what was started", s),
				fmt.Sprintf(`ulimit -c 0; RUN bash -c ': >ready; while [ -e ready ]; do sleep .02; done; exit 3' & p=$!
until [ -e ready ]; do sleep .01; done; kill -%d $p; (sleep .3; rm -f ready) & wait $p; echo $?; wait`, s))
		}
		add(more, fmt.Sprintf("%d is caught", s),
			fmt.Sprintf(`set -m; RUN bash -c 'trap "echo caught; exit 5" %[1]d; : >ready; while :; do sleep .02; done' & p=$!
until [ -e ready ]; do sleep .01; done; kill -%[1]d $p; wait $p; echo $?`, s))
		add(more, fmt.Sprintf("%d is ignored", s),
			fmt.Sprintf(`trap '' %[1]d; RUN bash -c 'kill -%[1]d $$; grep SigIgn /proc/self/status; exit 4'; echo $?`, s))
	}
	// A shell runs its trap once its child has ended. The senders live on for a moment: of
	// one that is gone nothing tells whose it was (package hold, "What is forwarded").
	senders := map[string]string{
		"the command":   `kill -%s $PPID; sleep .1`,
		"a subshell":    `( kill -%s $PPID; sleep .2 ); true`,
		"a background":  `( sleep .1; kill -%s $PPID; sleep .2 ) & wait`,
		"a grandchild":  `( ( kill -%s $PPID; sleep .2 ); true ); true`,
		"python":        `/usr/bin/python3 -c "import os, signal, time; os.kill(int(os.environ[\"UP\"]), signal.SIG%s); time.sleep(.2)"; true`,
		"another group": `setsid -w sh -c "kill -%s $UP; sleep .2"; true`,
		"an orphan":     `( (sleep .1; kill -%s $UP; sleep .3) & ); sleep 1; true`,
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range senders {
			if !yield(n) {
				return
			}
		}
	}) {
		for i, s := range []string{"USR1", "HUP", "TERM", "INT", "QUIT", "USR2", "WINCH", "CONT", "URG", "ALRM"} {
			add(i > 1, fmt.Sprintf("%s sends %s to the parent", name, s),
				fmt.Sprintf(`trap 'echo %[1]s' %[1]s; RUN bash -c 'export UP=$PPID; %[2]s; echo done'; echo $?`, s, fmt.Sprintf(senders[name], s)))
		}
	}
	return all
}

// limitTwins are limits below which the kernel can map our program: with less data or
// address space than the program itself takes, execve(2) ends in SIGSEGV.
func limitTwins() (all []twin) {
	values := map[string][]string{
		"c": {"0", "1", "1000"}, "d": {"60000", "200000", "1000000"}, "e": {"0", "10"},
		"f": {"0", "1", "100", "100000"}, "i": {"0", "10", "1000"}, "l": {"0", "64", "4096"},
		"m": {"1000", "1000000"}, "n": {"4", "5", "6", "8", "10", "13", "16", "20", "24", "28", "32", "64", "256", "1000", "2000"},
		"q": {"0", "1000"}, "r": {"0", "5"}, "s": {"128", "512", "4096", "100000"},
		"t": {"5", "100"}, "u": {"1000", "100000"}, "v": {"60000", "100000", "600000", "1300000", "1500000", "2000000", "8000000"},
		"x": {"0", "100"},
	}
	for i, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range values {
			if !yield(n) {
				return
			}
		}
	}) {
		for j, v := range values[name] {
			all = append(all, twin{area: "rlimit", name: fmt.Sprintf("ulimit -%s %s", name, v), more: (i+j)%2 == 1 && name != "n" && name != "v",
				script: fmt.Sprintf(`ulimit -c 0; ulimit -%s %s; RUN /bin/sh -c 'ulimit -Sa; ulimit -Ha; exit 3'; echo $?`, name, v)})
			all = append(all, twin{area: "rlimit", name: fmt.Sprintf("ulimit -S -%s %s", name, v), more: true,
				script: fmt.Sprintf(`ulimit -S -c 0; ulimit -S -%s %s; RUN /bin/sh -c 'ulimit -Sa; ulimit -Ha; kill -TERM $$'; echo $?`, name, v)})
		}
	}
	return all
}

// TestTwin runs each case bare and wrapped, and expects the same of both.
func TestTwin(t *testing.T) {
	for _, need := range []string{"bash", "script", "unshare", "setpriv", "/usr/bin/python3", "strace"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip("needs ", err)
		}
	}
	needRoot(t)
	cases := twinCases(t)
	turns := make(chan struct{}, 4) // most of them wait
	var ran, differ atomic.Int32
	began := time.Now()
	t.Cleanup(func() {
		report("twin: %d cases in %.0f s, %d differ", ran.Load(), time.Since(began).Seconds(), differ.Load())
	})
	for i, c := range cases {
		if (c.more || i%2 == 1) && !full {
			continue // every second case, and `make hunt` has them all
		}
		t.Run(c.area+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			defer func() {
				ran.Add(1)
				if t.Failed() {
					differ.Add(1)
				}
			}()
			prefix := ""
			if c.execvp {
				prefix = "/usr/bin/env "
			}
			bare, wrapped := c.run(t, prefix), c.run(t, binary+" run "+c.options()+"-- ")
			if c.statusOnly {
				bare.stderr, wrapped.stderr = "", ""
			}
			for what, of := range map[string]func(twinResult) string{
				"status": func(r twinResult) string { return fmt.Sprint(r.status) },
				"stdout": func(r twinResult) string { return r.stdout },
				"stderr": func(r twinResult) string { return r.stderr },
				"files":  func(r twinResult) string { return r.files },
			} {
				if b, w := of(bare), of(wrapped); b != w {
					t.Errorf("%s\nbare:\n%s\nwrapped:\n%s\nscript:\n%s\nof ours:\n%s", what, b, w, c.script, wrapped.ours)
				}
			}
		})
	}
}

// options of run: below a terminal what it says would stand among what the command says.
func (c *twin) options() string {
	if c.area == "terminal" {
		return "--quiet "
	}
	return ""
}

type twinResult struct {
	result
	files string // those in the working directory
	ours  string // what rsswarden said
}

// PIDs and times in what shells say of a job of theirs.
var shellJob = regexp.MustCompile(`(?m)^(bash|.*): line \d+: +\d+ `)

func init() {
	// init COMMAND...: the first process of a PID namespace, which ends with its command
	// and takes along what that has left. With a system call refused, a script may signal
	// every process that it can see.
	roles["init"] = func(args []string) int {
		for _, m := range []struct {
			source, target, kind string
			flags                uintptr
		}{{"none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE}, {"proc", "/proc", "proc", 0}} {
			if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
				fmt.Fprintf(os.Stderr, "cannot mount %s: %v\n", m.target, err)
				return 2
			}
		}
		path, err := exec.LookPath(args[0])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		for {
			var status syscall.WaitStatus
			switch ended, err := syscall.Wait4(-1, &status, 0, nil); {
			case err == syscall.EINTR:
			case err != nil:
				fmt.Fprintln(os.Stderr, "cannot wait:", err)
				return 2
			case ended == pid && status.Signaled():
				return 128 + int(status.Signal())
			case ended == pid:
				return status.ExitStatus()
			}
		}
	}
}

// run runs the script in an empty directory, with an environment that is always the same.
func (c *twin) run(t *testing.T, prefix string) twinResult {
	t.Helper()
	top := shared(t, 0o1777)
	dir := filepath.Join(top, "work")
	home := filepath.Join(top, "home")
	for d, mode := range map[string]os.FileMode{dir: 0o777, home: 0o755} {
		must(t, os.Mkdir(d, 0o777))
		must(t, os.Chmod(d, mode))
	}
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command("/proc/self/exe", "init", "bash", "-c", strings.ReplaceAll(c.script, "RUN ", prefix), "bash")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8", "TERM=dumb", "HOME=" + home,
		"XDG_STATE_HOME=" + filepath.Join(home, "state"), "TWIN=" + self, "TMPDIR=" + top,
	}
	if park, ok := os.LookupEnv("RSSWARDEN_PARK"); ok {
		cmd.Env = append(cmd.Env, "RSSWARDEN_PARK="+park)
	}
	// Files, not pipes: what a script leaves running may keep them.
	out, errs := create(t, filepath.Join(top, "out")), create(t, filepath.Join(top, "err"))
	cmd.Stdout, cmd.Stderr = out, errs
	// The namespace ends with the thread that made it, an interrupted test's too.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skip("cannot make a PID namespace: ", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), rsstest.Patience)
	defer cancel()
	late := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	ended := late()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r twinResult
	r.status = cmd.ProcessState.ExitCode()
	r.stdout = strings.ReplaceAll(contents(t, out), top, "TOP")
	for l := range strings.Lines(contents(t, errs)) {
		if strings.HasPrefix(l, "rsswarden: ") {
			r.ours += l
			continue
		}
		r.stderr += strings.ReplaceAll(shellJob.ReplaceAllString(l, "$1: "), top, "TOP")
	}
	if prefix != "" { // shells name the jobs that they tell of
		r.stdout, r.stderr = strings.ReplaceAll(r.stdout, prefix, ""), strings.ReplaceAll(r.stderr, prefix, "")
	}
	if !ended {
		t.Errorf("not ended after %v (prefix %q)\nstdout:\n%s\nstderr:\n%s", rsstest.Patience, prefix, r.stdout, r.stderr)
	}
	r.files = strings.ReplaceAll(tree(t, dir, top), top, "TOP")
	return r
}

func create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	must(t, err)
	return string(b)
}

// tree lists the files below dir, with mode, size and a digest of what is in them.
func tree(t *testing.T, dir, top string) string {
	t.Helper()
	var list bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&list, "%s %v", name, info.Mode())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b = bytes.ReplaceAll(b, []byte(top), nil)
			fmt.Fprintf(&list, " %d %x", len(b), sha256.Sum256(b))
		}
		fmt.Fprintln(&list)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return list.String()
}

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

// TestTwinStartPythonPathTwice: C takes the first of two, a shell the last; the hook is in both.
func TestTwinStartPythonPathTwice(t *testing.T) {
	r := finish(t, role("environ", "PYTHONPATH=/first", "PYTHONPATH=/second", "HOME="+t.TempDir(), "--", binary, "run", "--quiet", "--", "/bin/cat", "/proc/self/environ"))
	if n := len(regexp.MustCompile(`PYTHONPATH=/[^:]*/hook-[^:]*:/(first|second)\x00`).FindAllString(r.stdout, -1)); n != 2 {
		t.Errorf("the hook is in %d of 2\n%q %s", n, r.stdout, r.stderr)
	}
}

// TestTwinStartUmask: no directory is made that its owner cannot enter.
func TestTwinStartUmask(t *testing.T) {
	needRoot(t)
	for _, umask := range []string{"777", "700", "277"} {
		home := owned(t, filepath.Join(shared(t, 0o755), "home"), victim, 0o700)
		cmd := as(victim, exec.Command("sh", "-c", "umask "+umask+`; exec "$@"`, "sh", binary, "run", "--limit", "50M", "--at", "user 1%:warn", "--interval", "50ms", "--", "sleep", "0.5"))
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home}
		if r := finish(t, cmd); r.status != 0 {
			t.Errorf("%d %s", r.status, r.stderr)
		}
		made := 0
		must(t, filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
			if err != nil || path == home {
				return err
			}
			made++
			info, err := d.Info()
			if err == nil && d.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
				t.Errorf("umask %s: %s has mode %v", umask, path, info.Mode())
			}
			return err
		}))
		if made == 0 {
			t.Error("nothing was made in the home directory")
		}
	}
}
