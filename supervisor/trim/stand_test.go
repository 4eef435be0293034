package trim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// maxPiece is the most that one piece of a test has.
const maxPiece = 64 << 20

var must = wardentest.NoError

// newDice gives random moments, and says how to have the same ones again.
func newDice(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("TRIM_TEST_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("TRIM_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// pass lets a random time below most go by: the moments between trims are to
// have no pattern.
func pass(dice *rand.Rand, most time.Duration) { time.Sleep(time.Duration(dice.Int64N(int64(most)))) }

// builtIn is where what is built once for all tests is, in no /dev/shm: what is trimmed are
// files of file systems.
var builtIn string

// once makes a file for all tests.
func once(t *testing.T, name string, make func(path string) error) string {
	t.Helper()
	path := filepath.Join(builtIn, name)
	if _, err := os.Stat(path); err != nil {
		must(t, make(path))
	}
	return path
}

// program compiles testdata/NAME.c.
func program(t *testing.T, name string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the stand is of amd64")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler: ", err)
	}
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] >= '2' {
		t.Skip("Yama forbids ptrace")
	}
	return once(t, name, func(path string) error {
		out, err := exec.Command("cc", "-Wall", "-O2", "-pthread", "-o", path, "testdata/"+name+".c").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// dataFile makes a file whose 8-byte word i is mix(i), as in testdata/stand.h.
func dataFile(t *testing.T, size int) string {
	t.Helper()
	return once(t, fmt.Sprintf("data%dM", size>>20), func(path string) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		b := make([]byte, 1<<20)
		for at := 0; at < size; at += len(b) {
			for i := 0; i < len(b); i += 8 {
				binary.LittleEndian.PutUint64(b[i:], mix(uint64(at+i)/8))
			}
			if _, err := f.Write(b); err != nil {
				return err
			}
		}
		// Clean pages, so that nothing is written back in the midst of a test.
		return errors.Join(f.Sync(), f.Close())
	})
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// tracee is a process to be trimmed, started by the test.
type tracee struct {
	t        *testing.T
	child    int // of the test
	pid      int // the one that is trimmed: the child, or a child of its
	data     string
	lines    *bufio.Reader
	files    []*os.File
	counters []byte
	ended    bool
}

// start starts a program of testdata and waits for its word that it is ready.
// It is not started by os/exec, whose Wait takes the stop of a traced child for
// its end.
func start(t *testing.T, name, data string, args ...string) *tracee {
	t.Helper()
	path := program(t, name)
	counters := filepath.Join(t.TempDir(), "counters")
	must(t, os.WriteFile(counters, make([]byte, 4096), 0o600))
	f, err := os.OpenFile(counters, os.O_RDWR, 0)
	must(t, err)
	p := &tracee{t: t, data: data}
	p.counters, err = syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	f.Close()
	must(t, err)
	stdin, hold, err := os.Pipe()
	must(t, err)
	said, stdout, err := os.Pipe()
	must(t, err)
	p.files = []*os.File{hold, said}
	p.lines = bufio.NewReader(said)
	p.child, err = syscall.ForkExec(path, append([]string{name, counters, data}, args...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{stdin.Fd(), stdout.Fd(), 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	stdin.Close()
	stdout.Close()
	must(t, err)
	t.Cleanup(p.stop)
	line, err := p.lines.ReadString('\n')
	if _, scan := fmt.Sscanf(line, "ready %d\n", &p.pid); scan != nil {
		t.Fatalf("%s: %q, %v", name, line, err)
	}
	return p
}

// stop ends the process and what it started. It may be traced still.
func (p *tracee) stop() {
	if !p.ended {
		_ = unix.Kill(-p.child, unix.SIGKILL)
		p.wait()
	}
	for _, f := range p.files {
		f.Close()
	}
	_ = syscall.Munmap(p.counters)
}

// wait waits for the end of the child as the holder does: it peeks, because
// waitid(2) reports the stops of a traced child too, and takes nothing but an
// end.
func (p *tracee) wait() unix.WaitStatus {
	p.t.Helper()
	const exited, killed, dumped = 1, 2, 3 // CLD_…, sigaction(2)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Microsecond) {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, p.child, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil && err != unix.EINTR {
			p.t.Fatalf("waitid(%d): %v: something else reaped it", p.child, err)
		}
		if info.Code == exited || info.Code == killed || info.Code == dumped {
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("process %d has not ended: %s", p.child, states(p.child))
		}
	}
	p.ended = true
	var status unix.WaitStatus
	if _, err := unix.Wait4(p.child, &status, 0, nil); err != nil {
		p.t.Fatalf("wait4(%d): %v: something else reaped it", p.child, err)
	}
	return status
}

// counter is one of the numbers that the program and the test share.
func (p *tracee) counter(i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&p.counters[8*i]))
}

// pieces looks the data file up.
func (p *tracee) pieces() []Piece {
	p.t.Helper()
	all, err := piecesOf(p.pid, p.data)
	must(p.t, err)
	return all
}

// piecesOf makes pieces of all mappings of a file in a process.
func piecesOf(pid int, path string) (all []Piece, err error) {
	start, err := proctree.StartTime("/proc", pid)
	if err != nil {
		return nil, err
	}
	found, err := mappedNow("/proc", rss.ProcID{PID: pid, Start: start})
	for _, m := range found {
		for p := m.whole(rss.ProcID{PID: pid, Start: start}); m.Path == path && p.Lo < m.Hi; p.Lo, p.Offset = p.Hi, p.Offset+maxPiece {
			p.Hi = min(m.Hi, p.Lo+maxPiece)
			all = append(all, p)
		}
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("process %d does not map %s", pid, path)
	}
	return all, err
}

// tally is what came of many trims.
type tally struct {
	answers map[Refusal]int
	stops   []time.Duration // of those that were done
}

// newTracer makes a tracer that ends with the test.
func newTracer(t *testing.T) *Tracer {
	tr := NewTracer()
	t.Cleanup(tr.Close)
	return tr
}

// do trims one piece, and fails the test where that takes for ever or is
// refused for a reason that no process of the stand gives.
func (y *tally) do(t *testing.T, tr *Tracer, p Piece) Answer {
	t.Helper()
	began := time.Now()
	a := tr.Do(p)
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("a trim took %v (answer %+v)", d, a)
	}
	y.add(t, a)
	return a
}

func (y *tally) add(t *testing.T, a Answer) {
	t.Helper()
	if y.answers == nil {
		y.answers = map[Refusal]int{}
	}
	y.answers[a.Refusal]++
	switch a.Refusal {
	case None:
		y.stops = append(y.stops, a.Stop)
		if a.Advised == 0 || a.Stop <= 0 || a.Attached > a.Stop || a.Threads == 0 {
			t.Errorf("done, but: %+v", a)
		}
	case Failed, Broken, Unsupported, Device, Ours, Not64Bit, Seccomp, Undumpable, OtherUser:
		t.Errorf("refused: %s (%+v)", a.Refusal.Reason(), a)
	}
}

func (y *tally) done() int { return y.answers[None] }

// String gives the numbers of all answers, and how long the process stood.
func (y *tally) String() string {
	var words []string
	for _, r := range slices.Sorted(maps.Keys(y.answers)) {
		words = append(words, fmt.Sprintf("%s %d", r.Reason(), y.answers[r]))
	}
	if n := len(y.stops); n > 0 {
		s := slices.Sorted(slices.Values(y.stops))
		words = append(words, fmt.Sprintf("stop median %v, longest %v", s[n/2], s[n-1]))
	}
	return strings.Join(words, ", ")
}

// states gives state and tracer of each thread of a process.
func states(pid int) string {
	var words []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		state, tracer := taskState(task)
		words = append(words, fmt.Sprintf("%s:%c/%d", filepath.Base(task), state, tracer))
	}
	return strings.Join(words, " ")
}

func taskState(task string) (state byte, tracer int) {
	st, err := readThreadStatus(filepath.Join(task, "status"))
	if err != nil {
		return 'X', 0
	}
	return st.state, st.tracer
}

// letGo waits until no thread of the process is traced, and each is in one of the wanted
// states.
func letGo(t *testing.T, pid int, wanted string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		bad := 0
		for _, task := range tasks {
			if state, tracer := taskState(task); tracer != 0 || !strings.ContainsRune(wanted, rune(state)) {
				bad++
			}
		}
		if len(tasks) > 0 && bad == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads are not all in %q and untraced: %s", wanted, states(pid))
		}
		time.Sleep(time.Millisecond)
	}
}

// callOf is the number of the system call that a thread sleeps in, -1 where it
// runs (proc_pid_syscall(5)).
func callOf(pid, tid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
	if err != nil {
		return -1
	}
	word, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		return -1
	}
	return n
}

// rssFile is the RssFile of a process, in bytes.
func rssFile(t *testing.T, pid int) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(wardentest.StatusLine(t, pid, "RssFile"), " kB"))
	must(t, err)
	return n << 10
}

// modes are what this test binary can be instead of a test: a second process
// of ours, started with TRIM_TEST_MODE set to the name of one.
var modes = map[string]func(args []string) int{}

// asMode is a command that is this test binary in a mode, as that user, 0 for our own.
func asMode(uid int, mode string, args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env, c.Stderr = append(os.Environ(), "TRIM_TEST_MODE="+mode), os.Stderr
	if uid != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return c
}

func TestMain(m *testing.M) {
	if name := os.Getenv("TRIM_TEST_MODE"); name != "" {
		mode, ok := modes[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "TRIM_TEST_MODE=%s: no such mode\n", name)
			os.Exit(2)
		}
		os.Exit(mode(os.Args[1:]))
	}
	var err error
	if builtIn, err = os.MkdirTemp("", "trim"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(builtIn)
	os.Exit(code)
}
