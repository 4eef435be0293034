// Package cgroup2 runs rsswarden end to end where the memory
// controller is cgroup v2, on each kernel that there is a guest of. Which limit
// binds, what is warned of before the kernel kills, what is said of a kill, and
// what a plain user may do have to be the same on all of them; where a kernel
// differs, a case says so.
package cgroup2

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		fmt.Fprintln(os.Stderr, enterNamespace())
		os.Exit(1)
	}
	rsstest.BeEater()
	os.Exit(m.Run())
}

const (
	inGuest = "CGROUP2_TEST_IN_GUEST" // the kernel's version
	// inNamespace has the program started in a cgroup namespace of its own.
	inNamespace = "CGROUP2_TEST_IN_NAMESPACE"
	program     = "/guest/rsswarden"
)

// enterNamespace makes a cgroup namespace and becomes the program that the arguments
// name: it returns only with an error.
func enterNamespace() error {
	runtime.LockOSThread() // the namespace is the thread's
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	os.Unsetenv(inNamespace)
	return unix.Exec(os.Args[1], os.Args[1:], os.Environ())
}

// cases are what runs in the guests, one after the other. What kernels differ in runs on
// each; of the others each has one kernel, and all have all with RSSWARDEN_ENDURANCE.
var cases = []struct {
	name string
	run  func(*testing.T)
	each bool
}{
	{name: "LimitThatBinds", run: limitThatBinds, each: true},
	{name: "High", run: high},
	{name: "LoweredLive", run: loweredLive},
	{name: "PageCache", run: pageCache},
	{name: "Swap", run: swap},
	{name: "Namespace", run: namespace},
	{name: "Commit", run: commit},
	{name: "WarnedThenKilled", run: warnedThenKilled, each: true},
	{name: "GroupKilled", run: groupKilled}, // memory.oom.group
	{name: "Moved", run: moved},
	{name: "Delegated", run: delegated},
	{name: "RootOwned", run: rootOwned},
	{name: "Statuses", run: statuses},
	{name: "WholeTree", run: wholeTree},
	{name: "Trimmed", run: trimmed},
	{name: "Stalls", run: stalls, each: true},
	{name: "ClockSet", run: clockSet},
}

// runsOn says whether case i runs on that kernel.
func runsOn(i int, kernel string) bool {
	all := guest.Kernels()
	return cases[i].each || wardentest.Few(1, 0) == 1 || i%len(all) == slices.Index(all, kernel)
}

// TestCgroup2 runs itself in a guest of each kernel: one boot for all cases. A
// case is a test here too, by the line that says how it went there.
func TestCgroup2(t *testing.T) {
	if kernel := os.Getenv(inGuest); kernel != "" {
		for i, c := range cases {
			if runsOn(i, kernel) {
				t.Run(c.name, c.run)
			}
		}
		return
	}
	onKernels(t, guest.Kernels())
}

// guestEnv is the environment of this program in a guest, which KEY tells that it is in one.
func guestEnv(key, value string) []string {
	env := []string{key + "=" + value, "LC_ALL=C.UTF-8"}
	if wardentest.Few(1, 0) == 1 {
		env = append(env, "RSSWARDEN_ENDURANCE=1")
	}
	return env
}

// onKernels runs the cases in a guest of each of these kernels.
func onKernels(t *testing.T, kernels []string) {
	tests := guest.TestBinary(t)
	files := map[string]string{program: wardentest.Program(t, wardentest.Static)}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			out, exit := guest.Run(t, guest.Options{
				Kernel: kernel, Binary: tests, Args: []string{"-test.run=^TestCgroup2$", "-test.v"},
				Env: guestEnv(inGuest, kernel), Files: files, DiskMB: 600, MemMB: 768, Timeout: guestTime,
			})
			for i, c := range cases {
				if runsOn(i, kernel) {
					t.Run(c.name, func(t *testing.T) { judge(t, out, "TestCgroup2/"+c.name) })
				}
			}
			if exit != 0 && !t.Failed() {
				t.Errorf("in the guest: status %d\n%s", exit, out)
			}
		})
	}
}

// judge finds what the guest said of a case.
func judge(t *testing.T, out, name string) {
	_, said, found := strings.Cut(out, "=== RUN   "+name+"\n")
	if !found {
		t.Fatalf("it was not run:\n%s", out)
	}
	said, _, _ = strings.Cut(said, "=== RUN   ")
	result := regexp.MustCompile(`(?m)^ +--- (PASS|FAIL|SKIP): ` + name + ` \(`).FindStringSubmatch(out)
	if result == nil || result[1] != "PASS" {
		t.Errorf("in the guest:\n%s", said)
	}
}

// guestTime is how long all that a guest does may take.
const guestTime = 2 * rsstest.Patience

// group makes a cgroup that accounts memory, with those above it, and sets files
// of it. It is removed after the test.
func group(t *testing.T, name string, files ...string) string {
	t.Helper()
	const root = "/sys/fs/cgroup"
	dir := root
	for _, part := range strings.Split(name, "/") {
		if dir != root {
			set(t, dir, "cgroup.subtree_control", "+memory")
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil {
			if !os.IsExist(err) {
				t.Fatal(err)
			}
			continue
		}
		made := dir
		t.Cleanup(func() { remove(t, made) })
	}
	for i := 0; i < len(files); i += 2 {
		set(t, dir, files[i], files[i+1])
	}
	return dir
}

func set(t *testing.T, dir, file, text string) {
	t.Helper()
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0))
}

// remove waits for those who are just ending.
func remove(t *testing.T, dir string) {
	for deadline := time.Now().Add(rsstest.Patience); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			t.Errorf("%v, in it are %q", err, b)
			return
		}
	}
}

// run is one `rsswarden run` of an eater.
type run struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    *os.File
	out   *bufio.Reader
	dir   string // of what it writes
	ended bool
}

// start starts rsswarden with an eater in a cgroup, as a user.
func start(t *testing.T, cgroup string, uid int, options ...string) *run {
	t.Helper()
	return startCommand(t, cgroup, uid, rsswarden(append(options, "--", eater())...)...)
}

func eater() string { return "/guest/program" }

func rsswarden(args ...string) []string {
	return append([]string{program, "run"}, args...)
}

// startCommand starts a program with arguments, which becomes rsswarden or is it.
// An eater in it takes its orders.
func startCommand(t *testing.T, cgroup string, uid int, args ...string) *run {
	t.Helper()
	// On the disk: what is in /tmp is memory, and charged.
	dir, err := os.MkdirTemp("/disk", "run")
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	wardentest.NoError(t, os.Chown(dir, uid, uid))
	r := &run{t: t, dir: dir, cmd: exec.Command(args[0], args[1:]...)}
	r.cmd.Env = append(os.Environ(), "RSSTEST_EATER=1",
		"RSSWARDEN_EVENTS="+dir+"/events", "RSSWARDEN_RECORD="+dir+"/records", "XDG_STATE_HOME="+dir, "RSSWARDEN_RUNTIME="+dir)
	stderr, err := os.Create(dir + "/stderr")
	wardentest.NoError(t, err)
	defer stderr.Close()
	r.cmd.Stderr = stderr
	fd, err := unix.Open(cgroup, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	wardentest.NoError(t, err)
	defer unix.Close(fd)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: fd, Setpgid: true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
	}
	stdin, in, err := os.Pipe()
	wardentest.NoError(t, err)
	out, stdout, err := os.Pipe()
	wardentest.NoError(t, err)
	r.cmd.Stdin, r.cmd.Stdout, r.in, r.out = stdin, stdout, in, bufio.NewReader(out)
	wardentest.NoError(t, r.cmd.Start())
	stdin.Close()
	stdout.Close()
	t.Cleanup(func() {
		if !r.ended {
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
			_ = r.cmd.Wait()
		}
		in.Close()
		out.Close()
		if t.Failed() {
			t.Logf("it said:\n%s", r.said())
			b, _ := os.ReadFile(dir + "/events")
			t.Logf("its events:\n%s", b)
			t.Logf("the kernel:\n%s", kernelLog())
		}
	})
	return r
}

// kernelLog is the end of the kernel's log: what it killed, and why.
func kernelLog() string {
	b := make([]byte, 8<<10)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, b)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

// eat has the eater take memory of its own, and says whether it lived on.
func (r *run) eat(size rss.Bytes) bool { return r.do("anon %d", size) }

// do tells the eater what to do, and says whether it did it.
func (r *run) do(format string, args ...any) bool {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.in, format+"\n", args...); err != nil {
		return false
	}
	line, err := r.out.ReadString('\n')
	if err != nil {
		return false
	}
	if !strings.HasPrefix(line, "done") {
		r.t.Fatal(line)
	}
	return true
}

// end has the eater end, and returns the status that a shell would see.
func (r *run) end() int {
	r.in.Close()
	_ = r.cmd.Wait()
	r.ended = true
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// ends ends it, and wants that status.
func (r *run) ends(want int) {
	r.t.Helper()
	if status := r.end(); status != want {
		r.t.Errorf("status %d, want %d", status, want)
	}
}

// line is an event as it was told.
type line struct {
	event.Head
	text []byte
}

// events returns what was told so far; the last line may be half written.
func (r *run) events(names ...event.Name) (all []line) {
	r.t.Helper()
	b, err := os.ReadFile(r.dir + "/events")
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	for text := range bytes.Lines(b) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break
		}
		var l line
		r.read(text, &l.Head)
		if slices.Contains(names, l.Event) {
			l.text = text
			all = append(all, l)
		}
	}
	return all
}

// read takes an event of a kind out of what was told.
func (r *run) read(text []byte, into any) {
	r.t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		r.t.Fatalf("%v: %s", err, text)
	}
}

// wait returns the first event of a kind that is as it should be.
func wait[E any](r *run, name event.Name, what string, is func(*E) bool) *E {
	r.t.Helper()
	for deadline := time.Now().Add(rsstest.Patience); ; time.Sleep(10 * time.Millisecond) {
		for _, l := range r.events(name) {
			e := new(E)
			if r.read(l.text, e); is(e) {
				return e
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no event tells of %s", what)
		}
	}
}

// begun waits for the first event.
func (r *run) begun() *event.Start {
	r.t.Helper()
	return wait(r, event.NameStart, "the start", func(*event.Start) bool { return true })
}

// last returns the last event.
func (r *run) last() *event.Exit {
	r.t.Helper()
	return wait(r, event.NameExit, "the end", func(*event.Exit) bool { return true })
}

// said is what was said to people so far.
func (r *run) said() string {
	r.t.Helper()
	b := wardentest.ReadFile(r.t, r.dir+"/stderr")
	return string(b)
}

// says fails the test unless what was said to people has each of these.
func (r *run) says(words ...string) {
	r.t.Helper()
	wardentest.Says(r.t, r.said(), words...)
}

// find returns one of the limits, by the name of its level's directory.
func find(t *testing.T, all []event.Limit, name event.LimitName, level string) *event.Limit {
	t.Helper()
	for i := range all {
		if all[i].Name == name && (level == "" || all[i].Level == level) {
			return &all[i]
		}
	}
	t.Fatalf("no limit %s at %q among %+v", name, level, all)
	return nil
}

// older says whether a kernel is older than a version; one of which nothing is said
// is not.
func older(kernel string, than [2]int) bool {
	var v [2]int
	n, _ := fmt.Sscanf(kernel, "%d.%d", &v[0], &v[1])
	return n == 2 && slices.Compare(v[:], than[:]) < 0
}
