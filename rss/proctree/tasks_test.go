package proctree

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestNodeTasks(t *testing.T) {
	fs := rsstest.Empty(t)
	tasks := NewTasks(fs.Proc)
	defer tasks.Close()
	if _, err := tasks.Read(); !Vanished(err) {
		t.Errorf("no file: %v", err)
	}
	fs.Write("proc/loadavg", "9.20 6.21 4.57 3/219 10730\n")
	fs.Write("proc/sys/kernel/threads-max", "192730\n")
	fs.Write("proc/sys/kernel/pid_max", "32768\n")
	for range 2 {
		if n, err := tasks.Read(); err != nil || n != (NodeTasks{Total: 219, ThreadsMax: 192730, PIDMax: 32768}) {
			t.Errorf("%+v, %v", n, err)
		}
	}
	for _, in := range []string{"", "1 2 3", "1 2 3 4 5", "1 2 3 4/ 5", "1 2 3 4/0 5", "1 2 3 4/99999999999 5"} {
		if n, ok := parseTotal([]byte(in)); ok {
			t.Errorf("%q: %d", in, n)
		}
	}
	real := NewTasks("/proc")
	defer real.Close()
	n, err := real.Read()
	if err != nil || n.Total < 2 || n.ThreadsMax < uint64(n.Total) || n.PIDMax < 300 {
		t.Errorf("of this node: %+v, %v", n, err)
	}
}

func FuzzParseTotal(f *testing.F) {
	f.Add([]byte("0.11 0.22 0.33 2/345 6789\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := parseTotal(b); ok && (n <= 0 || len(b) < len("1 2 3 /5")) {
			t.Errorf("%d from %q", n, b)
		}
	})
}

func TestUserTasks(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 1, Comm: "init", Threads: 3})
	fs.Put(rsstest.Process{PID: 2, Parent: 1, UID: 1000, Threads: 70})
	fs.Put(rsstest.Process{PID: 3, Parent: 2, UID: 1000, State: 'Z'})
	fs.Put(rsstest.Process{PID: 4, Parent: 2, UID: 1000})
	fs.Write("proc/4/status", "Name:\tx\n")
	fs.Write("proc/5/comm", "ends\n")
	c := NewCounter(fs.Proc)
	defer c.Close()
	for uid, want := range map[int]int{0: 3, 1000: 71, 7: 0} {
		if n, err := c.UserTasks(uid); err != nil || n.N != want || n.Cost <= 0 {
			t.Errorf("user %d: %+v, %v, want %d", uid, n, err, want)
		}
	}
	fs.Write("proc/1/uid_map", "         0          0 4294967295\n")
	if u, err := TaskUserOf(fs.Proc, 1); err != nil || u != (TaskUser{0, true}) {
		t.Errorf("root: %+v, %v", u, err)
	}
	fs.Write("proc/1/uid_map", "         0       1000          1\n")
	if u, err := TaskUserOf(fs.Proc, 1); err != nil || u != (TaskUser{0, false}) {
		t.Errorf("root of a user namespace: %+v, %v", u, err)
	}
	if u, err := TaskUserOf(fs.Proc, 2); err != nil || u != (TaskUser{1000, false}) {
		t.Errorf("a user: %+v, %v", u, err)
	}
	fs.Replace("proc/2/status", "Threads:", "CapEff:\t0000000001000000\nThreads:")
	if u, err := TaskUserOf(fs.Proc, 2); err != nil || u != (TaskUser{1000, true}) {
		t.Errorf("with CAP_SYS_RESOURCE: %+v, %v", u, err)
	}
	if _, err := TaskUserOf(fs.Proc, 9); !Vanished(err) {
		t.Errorf("no process: %v", err)
	}
}

// The kernel counts as we do: with the limit at what is counted, a user gets no
// task more, and with one more it gets one.
func TestUserTasksAsTheKernelCounts(t *testing.T) {
	const uid = 64321 // nobody's
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	c := NewCounter("/proc")
	defer c.Close()
	as := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd
	}
	for range 3 {
		cmd := as("cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		defer cmd.Wait()
		defer in.Close()
	}
	n, err := c.UserTasks(uid)
	if err != nil || n.N != 3 {
		t.Fatalf("%+v, %v", n, err)
	}
	for more, want := range map[int]bool{1: false, 2: true} { // the shell itself is one
		limit := strconv.Itoa(n.N + more)
		// dash calls it -p, and does not try again for 15 s as bash does.
		out, err := as("sh", "-c", "ulimit -p "+limit+" 2>&- || ulimit -u "+limit+" && (exec true) && echo forked").CombinedOutput()
		if got := err == nil && strings.Contains(string(out), "forked"); got != want {
			t.Errorf("with a limit of %d for the shell and what it forks: %v, %s", n.N+more, err, out)
		}
	}
}

func FuzzParseTaskUser(f *testing.F) {
	f.Add([]byte("Uid:\t1000\t0\t0\t0\nThreads:\t1\nCapEff:\t000001fffeffffff\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := parseTaskUser(b)
		if err == nil && (u.uid < 0 || u.threads < 0 || !bytes.Contains(b, []byte("Uid:"))) {
			t.Errorf("%+v from %q", u, b)
		}
	})
}

func BenchmarkTasks(b *testing.B) {
	b.Run("node", func(b *testing.B) {
		t := NewTasks("/proc")
		defer t.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := t.Read(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("user", func(b *testing.B) {
		c := NewCounter("/proc")
		defer c.Close()
		for b.Loop() {
			if _, err := c.UserTasks(0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
