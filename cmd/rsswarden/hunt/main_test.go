// Package hunt looks for harm from outside: it starts the built programs as users
// do and knows nothing of their insides.
//
//   - TestTwin runs commands bare and under "rsswarden run" and compares exit status,
//     standard output, standard error and the files they leave.
//   - TestInject makes single system calls of the holder fail, with strace, and
//     expects the status of the bare command.
//   - TestAttack... is another user of the node (uid 1002) who attacks a victim's run
//     (uid 1001) or what root types.
//   - TestCgroupView asks for the limits in namespaces and under mounts of all kinds.
//
// "make hunt" runs all of it. "go test" runs every attack, and a part of the twin and
// inject cases that takes less than three minutes.
package hunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary and daemon are the programs under test. RSSWARDEN_HUNT_BIN names a directory
// that has others, an older release for example; with it "go test" needs -count=1, since
// its cache does not know the variable.
var binary, daemon string

// full is set by "make hunt": every case, not the part that CI has time for.
var full = os.Getenv("RSSWARDEN_HUNT") != ""

// The users of the attacks. Neither needs an entry in /etc/passwd.
const (
	victim   = 1001
	attacker = 1002
)

// roles are what the test binary does when it is started with one of them as its first
// argument, mostly as another user: see [role].
var roles = map[string]func(args []string) int{}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if f := roles[os.Args[1]]; f != nil {
			os.Exit(f(os.Args[2:]))
		}
	}
	rsstest.DefaultSignals()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "rsswarden-hunt-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run what is in it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state")) // records of root's runs
	if from := os.Getenv("RSSWARDEN_HUNT_BIN"); from != "" {
		binary, daemon = filepath.Join(from, "rsswarden"), filepath.Join(from, "rsswardend")
	} else if binary, err = wardentest.Find(wardentest.Rsswarden); err == nil {
		daemon, err = wardentest.Find(wardentest.Daemon)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if full { // "go test" of a package without -v keeps what tests log to itself
		report("attacks: %d, of which %d succeed", attacks.Load(), succeeded.Load())
		summary.Lock()
		defer summary.Unlock()
		for _, l := range summary.lines {
			fmt.Println(l)
		}
	}
	return status
}

// summary is what "make hunt" prints at the end.
var summary struct {
	sync.Mutex
	lines []string
}

// report adds a line to the summary.
func report(format string, args ...any) {
	summary.Lock()
	defer summary.Unlock()
	summary.lines = append(summary.lines, fmt.Sprintf(format, args...))
}

// needRoot skips a test that acts as several users where it cannot.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as several users")
	}
}

// as has cmd run as another user, without groups of root's.
func as(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	return cmd
}

// role is the test binary in a role of [roles], to be run [as] a user.
func role(name string, args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", append([]string{name}, args...)...)
}

// shared makes a directory that every user may enter, outside [testing.T.TempDir],
// whose parents are closed to others. mode is what chmod(2) takes, 0o1777 for one like
// /tmp.
func shared(t testing.TB, mode uint32) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rsswarden-hunt-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, syscall.Chmod(dir, mode))
	return dir
}

// owned makes a directory of this user's.
func owned(t testing.TB, path string, uid int, mode uint32) string {
	t.Helper()
	must(t, os.Mkdir(path, 0o700))
	must(t, os.Chown(path, uid, uid))
	must(t, syscall.Chmod(path, mode))
	return path
}

// attack runs one attack as a subtest, and counts it.
func attack(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	attacks.Add(1)
	t.Run(name, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				succeeded.Add(1)
			}
		}()
		f(t)
	})
}

var attacks, succeeded atomic.Int32

// result is what a command came to.
type result struct {
	status         int // as a shell has it: 128 + N after signal N
	stdout, stderr string
	took           time.Duration
	maxRSS         int64 // bytes, of the process and the children that it waited for
}

// finish runs a command to its end, for a minute at most.
func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	return finishWithin(t, time.Minute, cmd)
}

// finishWithin runs a command to its end and fails the test where it takes longer.
func finishWithin(t testing.TB, limit time.Duration, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	must(t, cmd.Start())
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !stop() {
		t.Fatalf("%q has not ended after %v\n%s%s", cmd.Args, limit, &out, &errs)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	r := result{stdout: out.String(), stderr: errs.String(), took: time.Since(began)}
	w := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if r.status = w.ExitStatus(); w.Signaled() {
		r.status = 128 + int(w.Signal())
	}
	r.maxRSS = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	return r
}
