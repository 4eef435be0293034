package hold

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// counted is a holder whose command counts signals.
type counted struct {
	cmd                      *exec.Cmd
	file, log                string
	watched                  bool // there is a watcher
	holder, command, watcher int
}

// newCounted is one that is not started, and its command line.
func newCounted(t *testing.T, c config) (k *counted, argv []string) {
	t.Helper()
	dir := t.TempDir()
	k = &counted{file: filepath.Join(dir, "count"), log: filepath.Join(dir, "log")}
	c.Log, k.watched = k.log, c.Watch != ""
	return k, held(c, probe, "count", k.file)
}

// await reads who is there, once all are.
func (k *counted) await(t *testing.T) {
	t.Helper()
	fmt.Sscanf(awaitLine(t, k.file, "ready"), "ready %d parent %d", &k.command, &k.holder)
	if k.watched {
		fmt.Sscanf(awaitLine(t, k.log, "begin"), "begin %d", &k.watcher)
	}
}

// startCounted starts one in a process group of its own, changed as is said.
func startCounted(t *testing.T, c config, change ...func(*exec.Cmd)) *counted {
	t.Helper()
	k, argv := newCounted(t, c)
	k.cmd = run(t, argv...)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, f := range change {
		f(k.cmd)
	}
	wardentest.NoError(t, k.cmd.Start())
	if k.await(t); k.holder != k.cmd.Process.Pid {
		t.Fatalf("the command's parent is %d, not %d", k.holder, k.cmd.Process.Pid)
	}
	t.Cleanup(func() {
		if k.cmd.ProcessState == nil {
			unix.Kill(k.command, unix.SIGKILL)
			k.cmd.Wait()
		}
	})
	return k
}

// settled waits until neither holder nor watcher has a signal pending: the kernel makes two
// that wait at once one, and the next is to be judged by itself.
func (k *counted) settled(t *testing.T) {
	t.Helper()
	until(t, "an idle holder and witness", func() bool {
		return pendingOf(k.holder) == 0 && (!k.watched || pendingOf(k.watcher) == 0)
	})
}

// comes waits until the command has got a signal so many times.
func (k *counted) comes(t *testing.T, sig, times int) {
	t.Helper()
	until(t, fmt.Sprintf("signal %d for the %dth time", sig, times), func() bool { return k.count(sig) >= times })
}

func (k *counted) count(sig int) int {
	return strings.Count(wardentest.Read(k.file), fmt.Sprintf("signal %d ", sig))
}

// end kills the command and checks that the holder died the same way.
func (k *counted) end(t *testing.T) {
	t.Helper()
	unix.Kill(k.command, unix.SIGKILL)
	if s := waitStatus(t, k.cmd); !s.Signaled() || s.Signal() != unix.SIGKILL {
		t.Errorf("got %v, want SIGKILL", s)
	}
}

func kill(t *testing.T, pid, sig int) {
	t.Helper()
	if err := unix.Kill(pid, unix.Signal(sig)); err != nil {
		t.Fatalf("cannot send %d to %d: %v", sig, pid, err)
	}
}

// catchable are all signals that a test may send and count.
func catchable() (s []int) {
	for sig := 1; sig <= 64; sig++ {
		if !slices.Contains([]int{9, 19, 32, 33}, sig) {
			s = append(s, sig)
		}
	}
	return s
}

func TestEverySignalOnce(t *testing.T) {
	for _, c := range []config{{}, {Watch: "good"}, {Watch: "good", NoPidfd: true}} {
		t.Run(fmt.Sprintf("watcher %s no pidfd %v", c.Watch, c.NoPidfd), func(t *testing.T) {
			k := startCounted(t, c)
			for _, sig := range catchable() {
				kill(t, k.holder, sig)
				k.comes(t, sig, 1)
			}
			kill(t, k.holder, 64)
			k.comes(t, 64, 2)
			for _, sig := range catchable() {
				if n := k.count(sig); n != 1 && sig != 64 {
					t.Errorf("signal %d: %d times", sig, n)
				}
			}
			k.end(t)
		})
	}
}

// Signals 32 and 33 are glibc's: sent from outside they kill a bare command.
func TestReservedSignals(t *testing.T) {
	for _, sig := range []int{32, 33} {
		// posix_spawn(3), and so make(1), leaves them ignored in what it starts.
		var dfl [4]uint64
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0); e != 0 {
			t.Fatal(e)
		}
		k := startCounted(t, config{Watch: "good"})
		kill(t, k.holder, sig)
		if s := waitStatus(t, k.cmd); !s.Signaled() || int(s.Signal()) != sig {
			t.Errorf("signal %d: got %v", sig, s)
		}
	}
}

func TestQueuedValue(t *testing.T) {
	k := startCounted(t, config{})
	si := struct {
		signo, errno, code, _ int32
		pid                   int32
		uid                   uint32
		value                 uint64
		_                     [96]byte
	}{code: -1, pid: int32(unix.Getpid()), value: 4711}
	for _, sig := range []int{10, 40} {
		if _, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(k.holder), uintptr(sig), uintptr(unsafe.Pointer(&si))); e != 0 {
			t.Fatal(e)
		}
		awaitLine(t, k.file, fmt.Sprintf("signal %d code -1 value 4711", sig))
	}
	k.end(t)
}

// Real-time signals queue, in the witness too: each copy there is evidence for
// one of a burst.
func TestRealTimeSignalsQueue(t *testing.T) {
	for _, group := range []bool{false, true} {
		k := startCounted(t, config{Watch: "good"})
		to, n := k.holder, 100
		if group {
			to, n = -k.holder, 50
		}
		for range n {
			kill(t, to, 41)
		}
		kill(t, k.holder, 42)
		k.comes(t, 42, 1)
		if got := k.count(41); got != n {
			t.Errorf("to the group %v: got %d of %d", group, got, n)
		}
		k.end(t)
	}
}

// A signal to the group reaches the command without us; one to the holder
// does not.
func TestGroupSignalOnce(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	var want [65]int
	round := func(sig int, targets ...int) {
		for _, pid := range targets {
			kill(t, pid, sig)
			want[sig]++
			k.comes(t, sig, want[sig])
			k.settled(t)
		}
	}
	group := -k.holder
	for _, sig := range catchable() {
		if unwitnessed.has(sig) {
			continue // the watcher cannot testify: see the package comment
		}
		round(sig, group)
		round(sig, k.holder)
		round(sig, group, k.holder, group, group, k.holder)
		if sig == int(unix.SIGCONT) {
			// A SIGTSTP while the last one is forwarded would be sent again, see holder.signal.
			round(64, k.holder)
		}
	}
	for sig, n := range want {
		if got := k.count(sig); got != n {
			t.Errorf("signal %d: got %d, want %d", sig, got, n)
		}
	}
	k.end(t)
}

// While the watcher starts a program, the thread that does has the command's mask: a signal
// that it is given stays evidence.
func TestGroupSignalWhileAProgramStarts(t *testing.T) {
	k := startCounted(t, config{Watch: "starts"})
	const rounds, sig = 300, int(unix.SIGUSR2)
	for i := range rounds {
		kill(t, -k.holder, sig)
		k.comes(t, sig, i+1)
		until(t, "evidence that is taken", func() bool { return !(pendingOf(k.holder) | pendingOf(k.watcher)).has(sig) })
	}
	// In the few µs in which it is put back the holder does not see it.
	if n := k.count(sig); n > rounds+rounds/50 {
		t.Errorf("got %d, want %d", n, rounds)
	}
	k.end(t)
}

func pendingOf(pid int) signalSet {
	_, p, _ := parsePending([]byte(wardentest.Read(fmt.Sprintf("/proc/%d/status", pid))))
	return p
}

// One to the group and, before anything could settle, one to the holder: the
// evidence of the first does not swallow the second. The command may see
// fewer only where the kernel itself merges two.
func TestGroupAndHolderAtOnce(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	const rounds = 50
	for i := range rounds {
		kill(t, -k.holder, 44)
		kill(t, k.holder, 44)
		k.comes(t, 44, 2*(i+1))
		k.settled(t)
	}
	if n := k.count(44); n != 2*rounds {
		t.Errorf("got %d, want %d", n, 2*rounds)
	}
	k.end(t)
}

// One to the holder and at once one to the group, as timeout(1) sends them, reach the
// command as one. What took the test longer to send may be two, as in a bare command; so
// may the few whose second one a busy machine had the handler note late.
func TestHolderAndGroupAtOnce(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	rounds, twice := 0, 0
	for tries := 0; rounds < 100 && tries < 5000; tries++ {
		before, start := k.count(15), time.Now()
		kill(t, k.holder, 15)
		for time.Since(start) < secondWait/2 {
		}
		kill(t, -k.holder, 15)
		took := time.Since(start)
		k.comes(t, 15, before+1)
		k.settled(t)
		// Forwarded in order: what the holder made of the pair is known by then.
		marks := k.count(42)
		kill(t, k.holder, 42)
		k.comes(t, 42, marks+1)
		if took < secondWait*7/8 {
			rounds++
			twice += k.count(15) - before - 1
		}
	}
	if rounds < 100 || twice > rounds/4 {
		t.Errorf("twice: %d of %d", twice, rounds)
	}
	k.end(t)
}

// What was sent to the watcher alone, or left in a stopped one, is no
// evidence against a later signal to the holder.
func TestStaleWitness(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	kill(t, k.watcher, 10)
	until(t, "the watcher's signal taken", func() bool { return pendingOf(k.watcher) == 0 })
	kill(t, k.holder, 10)
	k.comes(t, 10, 1)

	kill(t, k.watcher, int(unix.SIGSTOP))
	until(t, "a stopped watcher", func() bool { return stateOf(t, k.watcher) == 'T' })
	kill(t, k.watcher, 12)
	kill(t, k.holder, 12)
	k.comes(t, 12, 1)
	k.end(t)
}

func stateOf(t *testing.T, pid int) byte {
	t.Helper()
	s, err := parseStat([]byte(wardentest.Read(fmt.Sprintf("/proc/%d/stat", pid))))
	if err != nil {
		return 0
	}
	return s.state
}

// Signals that were waiting for us before there was a command are its own.
func TestPendingBeforeStart(t *testing.T) {
	k, argv := newCounted(t, config{})
	k.cmd = run(t, append([]string{probe, "given", "b=10", "p=10", "--"}, argv...)...)
	wardentest.NoError(t, k.cmd.Start())
	k.await(t)
	// Blocked for the command as for us, and pending there.
	until(t, "the pending signal", func() bool { return pendingOf(k.command).has(10) })
	k.end(t)
}

func TestDescends(t *testing.T) {
	me := os.Getpid()
	child := func(name string, arg ...string) int {
		cmd := exec.Command(name, arg...)
		wardentest.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd.Process.Pid
	}
	// A name that looks like the fields behind it.
	odd := filepath.Join(t.TempDir(), "a) S 1 (b")
	wardentest.NoError(t, os.Symlink("/bin/sleep", odd))
	pid := child(odd, "100")
	gone := exec.Command("true")
	wardentest.NoError(t, gone.Run())
	if got := parentOf(pid); got != me {
		t.Errorf("the parent of %d is %d, not %d", pid, got, me)
	}
	if got := parentOf(gone.Process.Pid); got != 0 {
		t.Errorf("the parent of a process that is gone is %d", got)
	}
	ours := child("sleep", "100")
	for _, test := range []struct {
		name   string
		h      holder
		sender int
		want   bool
	}{
		{"the command", holder{self: 1 << 23, pid: pid}, pid, true},
		{"below the command", holder{self: 1 << 23, pid: me}, pid, true},
		{"a stranger", holder{self: 1 << 23, pid: 1<<23 + 1}, pid, false},
		{"an orphan that we have", holder{self: me, pid: 1 << 23}, pid, true},
		{"the watcher", holder{self: me, pid: 1 << 23, watcher: watcher{pid: ours}}, ours, false},
		{"ourselves", holder{self: me, pid: 1 << 23}, me, false},
		{"gone", holder{self: me, pid: me}, gone.Process.Pid, false},
		{"the kernel", holder{self: me, pid: pid}, 0, false},
	} {
		if got := test.h.descends(test.sender, parentOf(test.sender)); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func TestJudge(t *testing.T) {
	const (
		kernel = 0x80
		user   = 0
		sender = 500
	)
	in := circumstances{self: 100, watcher: 101, sameGroup: true}
	with := func(f func(*circumstances)) circumstances { c := in; f(&c); return c }
	out := with(func(c *circumstances) { c.sameGroup = false })
	can := with(func(c *circumstances) { c.witness = true })
	seen := with(func(c *circumstances) { c.witness, c.seen = true, true })
	leader := with(func(c *circumstances) { c.leader = true })
	doubtful := with(func(c *circumstances) { c.witness, c.doubtful = true, true })
	early := with(func(c *circumstances) { c.early = true })
	overtaken := with(func(c *circumstances) { c.witness, c.overtaken = true, true })
	within := func(c circumstances) circumstances { c.within = true; return c }
	brought := with(func(c *circumstances) { c.early, c.brought = true, true })
	for _, test := range []struct {
		name string
		sig  unix.Signal
		code int32
		pid  int
		c    circumstances
		want verdict
	}{
		{"to the holder, no witness", unix.SIGTERM, user, sender, in, toCommand},
		{"to the holder", unix.SIGTERM, user, sender, can, toCommand},
		{"to the group", unix.SIGTERM, user, sender, seen, hasIt},
		{"to the group, but the command left it", unix.SIGTERM, user, sender, out, toCommand},
		{"our own", unix.SIGPIPE, user, 100, seen, ours},
		{"from the watcher", unix.SIGCONT, user, 101, in, ours},
		{"from outside our PID namespace", unix.SIGTERM, user, 0, can, toCommand},
		{"^C", unix.SIGINT, kernel, 0, in, hasIt},
		{"^C, used witness", unix.SIGINT, kernel, 0, can, hasIt},
		{"^C, the command has its own group", unix.SIGINT, kernel, 0, out, toCommand},
		{"hangup to the session leader", unix.SIGHUP, kernel, 0, can, toCommand},
		{"hangup to the session leader, no witness", unix.SIGHUP, kernel, 0, leader, toCommand},
		{"hangup to the group", unix.SIGHUP, kernel, 0, seen, hasIt},
		{"hangup to the group, no witness", unix.SIGHUP, kernel, 0, in, hasIt},
		{"continue of an orphaned group", unix.SIGCONT, kernel, 0, seen, hasIt},
		{"continued and stopped again at once", unix.SIGCONT, user, sender, overtaken, hasIt},
		{"stopped and continued before it was judged", unix.SIGTSTP, user, sender, overtaken, hasIt},
		{"an alarm set before exec", unix.SIGALRM, kernel, 0, in, toCommand},
		{"our own CPU limit", unix.SIGXCPU, kernel, 0, in, ours},
		{"SIGXCPU sent", unix.SIGXCPU, user, sender, in, toCommand},
		{"a child of ours", unix.SIGCHLD, 1, 103, in, ours},
		{"SIGCHLD sent", unix.SIGCHLD, user, sender, in, toCommand},
		{"waiting before the start", unix.SIGTERM, user, sender, early, toCommand},
		{"waiting before the start, from the terminal", unix.SIGINT, kernel, 0, early, toCommand},
		{"sent to itself before exec", unix.SIGUSR1, user, 100, brought, toCommand},
		{"our own write beyond RLIMIT_FSIZE", unix.SIGXFSZ, user, 100, early, ours},
		{"our own CPU limit before the start", unix.SIGXCPU, kernel, 0, early, ours},
		{"SIGXCPU waiting at exec", unix.SIGXCPU, kernel, 0, brought, toCommand},
		{"from the command to its parent", unix.SIGUSR1, user, 102, within(can), toParent},
		{"from the command to its parent's group", unix.SIGUSR1, user, 102, within(out), toParent},
		{"from the command to its group", unix.SIGTERM, user, 102, within(seen), hasIt},
		{"from the command, again at once", unix.SIGTERM, user, 102, within(doubtful), hasIt},
		{"from the command, no witness", unix.SIGTERM, user, 102, within(in), hasIt},
		{"from the command, no witness, the parent in the group", unix.SIGTERM, user, 102, within(with(func(c *circumstances) { c.parentToo = true })), toParent},
		{"from the command to its group, the parent in it", unix.SIGTERM, user, 102, within(with(func(c *circumstances) { c.witness, c.seen, c.parentToo = true, true, true })), hasIt},
		{"from a subshell to the command's parent", unix.SIGUSR1, user, 103, within(can), toParent},
		{"from a subshell to its group", unix.SIGTERM, user, 103, within(seen), hasIt},
		{"the runtime's preemption", unix.SIGURG, siTkill, 100, early, ours},
	} {
		if got := judge(&arrival{signo: int(test.sig), code: test.code, pid: test.pid}, &test.c); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
