// Package wardentest is for tests of the built programs: it builds each once, waits for
// what a process does, and reads what a run leaves behind.
package wardentest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Main is what a TestMain does that needs built programs: it finds them, has records of
// their runs kept where they are removed and their lines in UTF-8, and runs the tests and
// what comes after them.
func Main(m *testing.M, programs map[string]*string, after ...func() error) int {
	rsstest.DefaultSignals()
	state, err := os.MkdirTemp("", "rsswarden-state-")
	if err == nil {
		defer os.RemoveAll(state)
		err = errors.Join(os.Chmod(state, 0o755), os.Setenv("XDG_STATE_HOME", filepath.Join(state, "state")),
			os.Setenv("LC_ALL", "C.UTF-8"), os.Unsetenv("COLUMNS"), os.Unsetenv("CLICOLOR_FORCE"))
	}
	for name, path := range programs {
		if err == nil {
			*path, err = Find(name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	for _, end := range after {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	return status
}

// Python is Debian's, which has torch and lmdb.
const Python = "/usr/bin/python3"

// Until waits for a condition, [rsstest.Patience] at most. It looks seldom where a look takes
// long, as one that starts a program, or the wait is long.
func Until(t testing.TB, what string, met func() bool) {
	t.Helper()
	for began := time.Now(); ; {
		look := time.Now()
		if met() {
			return
		}
		waited := time.Since(began)
		if waited > rsstest.Patience {
			t.Fatalf("within %v: not %s", rsstest.Patience, what)
		}
		time.Sleep(min(max(5*time.Millisecond, 2*time.Since(look), waited/50), 100*time.Millisecond))
	}
}

// Few is how many of all cases a test has time for: all of them where
// RSSWARDEN_ENDURANCE is set, as `make endurance` does.
func Few(all, some int) int {
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		return all
	}
	return some
}

// Long skips a test that is one of the long counts, without RSSWARDEN_ENDURANCE. .ci/test counts
// what was left to that, apart from what was skipped.
func Long(tb testing.TB) {
	tb.Helper()
	if Few(1, 0) == 0 {
		tb.Skip("left to make endurance")
	}
}

// Cannot skips a test of what a machine has or has not, whatever is installed, such as what its
// kernel runs. .ci/test counts it, and it is no failure in CI.
func Cannot(tb testing.TB, why string, err error) {
	tb.Helper()
	tb.Skipf("this machine cannot: %s: %v", why, err)
}

// Race says that the tests were built with the race detector, which takes more memory and
// time, and maps more than any sensible RLIMIT_AS.
func Race() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// Output runs a command line and returns what it wrote.
func Output(args ...string) (stdout, stderr string, err error) {
	return Run(exec.Command(args[0], args[1:]...))
}

// Run runs a command and returns what it wrote.
func Run(cmd *exec.Cmd) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// RunTrial is [Run] for what makes a trial, which gives way to everything, for minutes where
// tests keep all processors busy: here it does not.
func RunTrial(cmd *exec.Cmd) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err = cmd.Start(); err == nil {
		go Hurry(cmd.Process.Pid)
		err = cmd.Wait()
	}
	return out.String(), errs.String(), err
}

// Hurry has a process and its descendants, until it ends, run at this one's niceness.
func Hurry(pid int) {
	prio, _ := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	for ; !Ended(pid); time.Sleep(100 * time.Millisecond) {
		for _, p := range append(Descendants(pid), pid) {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, p, 20-prio)
			if group := fmt.Sprintf("/proc/%d/autogroup", p); strings.HasSuffix(Read(group), " 19\n") {
				_ = os.WriteFile(group, []byte("0"), 0)
			}
		}
	}
}

// Env is the environment without a Slurm job that the tests may run in, and without
// settings of rsswarden.
func Env(more ...string) (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SLURM") && (!strings.HasPrefix(v, "RSSWARDEN") || strings.HasPrefix(v, "RSSWARDEN_PARK=")) {
			env = append(env, v)
		}
	}
	return append(env, more...)
}

// As has a command run as another user; as the same one, where it is root's to choose.
func As(uid int, cmd *exec.Cmd) {
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
}

// OpenDir is a directory of the test's that every user may write.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Text collects what a process writes, while it is read.
type Text struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Text) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *Text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await waits until the text has this n times.
func (l *Text) Await(t testing.TB, text string, n int) {
	t.Helper()
	for end := time.Now().Add(rsstest.Patience); strings.Count(l.String(), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q was not said %d times:\n%s", text, n, l)
		}
	}
}

// Said are rsswarden's own lines.
func Said(stderr string) string {
	var ours strings.Builder
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "rsswarden: ") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

// Read is what a file holds, nothing where there is none.
func Read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// Event is a line of --events.
type Event = map[string]any

// Log is what --events wrote, in order.
type Log []Event

// ReadLog reads a whole events file.
func ReadLog(t testing.TB, path string) Log {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := ParseLog(b)
	if n := bytes.Count(b, []byte("\n")); len(all) != n {
		t.Fatalf("%s: %d of %d lines are events", path, len(all), n)
	}
	return all
}

// ParseLog reads the lines of an events file, of which the last may be being written.
func ParseLog(b []byte) (all Log) {
	for line := range bytes.Lines(b) {
		var e Event
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
	return all
}

// Of are the events of one name.
func (all Log) Of(name event.Name) (some Log) {
	for _, e := range all {
		if e["event"] == string(name) {
			some = append(some, e)
		}
	}
	return some
}

// Worked is how many of these outcomes are good ones.
func Worked(outcomes []Event) (n int) {
	for _, o := range outcomes {
		if o["ok"] == true {
			n++
		}
	}
	return n
}

// Events reads a whole events file, by name.
func Events(t testing.TB, path string) map[event.Name][]Event {
	t.Helper()
	by := map[event.Name][]Event{}
	for _, e := range ReadLog(t, path) {
		name := event.Name(e["event"].(string))
		by[name] = append(by[name], e)
	}
	return by
}

// IsWatcher says whether a process is a watcher.
func IsWatcher(pid int) bool {
	return strings.HasPrefix(Read(fmt.Sprintf("/proc/%d/cmdline", pid)), "rss-watcher\x00")
}

// Watchers are the children of a holder that are watchers.
func Watchers(holder int) []int {
	return slices.DeleteFunc(Children(holder), func(pid int) bool { return !IsWatcher(pid) })
}

// Children are the children of a process, of all its threads.
func Children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		for _, field := range strings.Fields(Read(list)) { // a thread that has ended has none
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// Descendants are the children of a process, theirs, and so on.
func Descendants(pid int) (all []int) {
	for _, child := range Children(pid) {
		all = append(append(all, child), Descendants(child)...)
	}
	return all
}

// Ended says that there is no such process, or a zombie.
func Ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// StatusLine is a line of /proc/PID/status.
func StatusLine(t testing.TB, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, v, _ := strings.Cut(string(b), "\n"+name+":")
	v, _, _ = strings.Cut(v, "\n")
	return strings.TrimSpace(v)
}

// ExitStatus is the status of a command that was run, and 128 + N where signal N ended it.
func ExitStatus(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// Root is the folder of the module that the test belongs to.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
	}
	return "", errors.Join(err, errors.New("no go.mod above the test"))
}

// Path is that of a file of the module, given from its root.
func Path(t testing.TB, name string) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, name)
}

// AsPlainUser has a command run as a plain user.
func AsPlainUser(cmd *exec.Cmd) { As(65534, cmd) }

// Times is how often each job is run; RSSWARDEN_TIMES shortens a trial.
func Times(n int) int {
	if v, err := strconv.Atoi(os.Getenv("RSSWARDEN_TIMES")); err == nil {
		return min(v, n)
	}
	return n
}

// OwnMemoryCgroup is where the test is in the memory hierarchy of cgroup v1.
func OwnMemoryCgroup(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, home, ok := strings.Cut(string(b), ":memory:")
	if !ok {
		t.Skip("no cgroup v1 with a memory controller")
	}
	home, _, _ = strings.Cut(home, "\n")
	return filepath.Join("/sys/fs/cgroup/memory", home)
}

// NoError ends the test where there is one.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Write writes a file that all may read and run, and makes the directories above it.
func Write(t testing.TB, path, text string) {
	t.Helper()
	NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	NoError(t, os.WriteFile(path, []byte(text), 0o755))
}

// ReadFile is what a file holds, which there must be.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	NoError(t, err)
	return b
}

// NeedRoot skips the test where the user is another, with the reason.
func NeedRoot(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(why)
	}
}

// NeedPython skips the test where there is none.
func NeedPython(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(Python); err != nil {
		t.Skip(err)
	}
}

// Says fails the test where a text lacks one of others.
func Says(t testing.TB, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Has fails the test where an event has other values than these: a field, a value, and so on.
func Has(t testing.TB, e Event, fields ...any) {
	t.Helper()
	for i := 0; i < len(fields); i += 2 {
		if got := e[fields[i].(string)]; got != fields[i+1] {
			t.Errorf("%s is %v, want %v: %v", fields[i], got, fields[i+1], e)
		}
	}
}

var torch = sync.OnceValues(func() ([]byte, error) {
	return exec.Command(Python, "-c", "import torch, lmdb").CombinedOutput()
})

// NeedTorch skips the test where there is no PyTorch.
func NeedTorch(t testing.TB) {
	t.Helper()
	if out, err := torch(); err != nil {
		t.Skipf("no PyTorch with LMDB in %s: %v %s", Python, err, out)
	}
}

var checksumLine = regexp.MustCompile(`(?m)^checksum (\w+)$`)

// Checksums are what the trainings of examples, of which there may be several, print of
// their data.
func Checksums(text string) (all []string) {
	for _, m := range checksumLine.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// Checksum is the first of them, "none" where there is none.
func Checksum(text string) string {
	return append(Checksums(text), "none")[0]
}

// Torches are the versions of PyTorch that rsswarden is claimed for. command
// makes a command out of a program and its arguments where the version is.
