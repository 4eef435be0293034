package proctree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// pieces gives out one piece after the other, as reads of a file do.
func pieces(all ...string) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		if len(all) == 0 {
			return 0, nil
		}
		n := copy(b, all[0])
		if all = all[1:]; n == 0 {
			return 0, syscall.EINTR
		}
		return n, nil
	}
}

func TestCountLines(t *testing.T) {
	const line = "7f0000000000-7f0000001000 r--p 00000000 00:00 0 \n"
	const gate = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
	for _, c := range []struct {
		reads []string
		want  int
	}{
		{nil, 0},
		{[]string{line}, 1},
		{[]string{line + line, line}, 3},
		{[]string{line, "", line}, 2}, // interrupted
		{[]string{line + gate}, 1},
		{[]string{line, gate}, 1},
		{[]string{gate, line}, 2}, // a file of that name: only the last is the kernel's
		{[]string{strings.Repeat(line, 50), strings.Repeat(line, 50) + gate}, 100},
	} {
		if n, err := countLines(pieces(c.reads...), make([]byte, 4096)); err != nil || n != c.want {
			t.Errorf("%d reads: %d, %v, want %d", len(c.reads), n, err, c.want)
		}
	}
	if _, err := countLines(func([]byte) (int, error) { return 0, syscall.ESRCH }, make([]byte, 64)); !Vanished(err) {
		t.Errorf("of a process that ends: %v", err)
	}
}

// dirent is a struct linux_dirent64.
func dirent(name string) string {
	b := make([]byte, (19+len(name)+1+7)/8*8)
	binary.NativeEndian.PutUint16(b[16:], uint16(len(b)))
	copy(b[19:], name)
	return string(b)
}

func TestCountEntries(t *testing.T) {
	for _, c := range []struct {
		reads []string
		want  int
	}{
		{nil, 0},
		{[]string{dirent(".") + dirent("..")}, 0},
		{[]string{dirent(".") + dirent("..") + dirent("0") + dirent("1"), dirent("1048575")}, 3},
	} {
		if n, err := countEntries(pieces(c.reads...), make([]byte, 4096)); err != nil || n != c.want {
			t.Errorf("%d reads: %d, %v, want %d", len(c.reads), n, err, c.want)
		}
	}
	for _, bad := range []string{strings.Repeat("\x00", 40), strings.Repeat("\xff", 40)} {
		if n, err := countEntries(pieces(bad), make([]byte, 4096)); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %d, %v", bad, n, err)
		}
	}
}

// readsOf reads b as read(2) does, which has no error at the end.
func readsOf(b []byte) func([]byte) (int, error) {
	r := bytes.NewReader(b)
	return func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err == io.EOF {
			err = nil
		}
		return n, err
	}
}

func FuzzDirents(f *testing.F) {
	f.Add([]byte(dirent(".") + dirent("3")))
	f.Add([]byte(strings.Repeat("\x00", 16) + "\x18\x00\x04" + "123\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := countEntries(readsOf(b), make([]byte, 64)); err == nil && n > len(b)/20 {
			t.Errorf("%d entries in %d bytes", n, len(b))
		}
		for _, pid := range appendPIDs(nil, b) {
			if pid <= 0 {
				t.Errorf("PID %d from %q", pid, b)
			}
		}
	})
}

func FuzzCountLines(f *testing.F) {
	f.Add([]byte("a\nb [vsyscall]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := countLines(readsOf(b), make([]byte, 64))
		if all := bytes.Count(b, []byte{'\n'}); err != nil || n != all && n != all-1 {
			t.Errorf("%d of %d lines, %v", n, all, err)
		}
	})
}

// TestCountsOfThisProcess: as many more are counted as were made.
func TestCountsOfThisProcess(t *testing.T) {
	c := NewCounter("/proc")
	defer c.Close()
	me := rss.ProcID{PID: os.Getpid()}
	start, err := StartTime("/proc", me.PID)
	must(t, err)
	me.Start = start
	const many = 5000
	for _, kind := range []struct {
		name  string
		count func(rss.ProcID) (Count, error)
		make  func(int) (func(), error)
		most  int
	}{
		// Go's runtime and the tests beside this one map and open a few.
		{"maps", c.Maps, rsstest.MapMany, many + 50},
		{"descriptors", c.Descriptors, rsstest.OpenMany, many + 50},
	} {
		before, err := kind.count(me)
		if err != nil || before.N == 0 {
			t.Fatalf("%s: %+v, %v", kind.name, before, err)
		}
		undo, err := kind.make(many)
		if err != nil {
			t.Skip(err)
		}
		after, err := kind.count(me)
		undo()
		if n := after.N - before.N; err != nil || n < many-50 || n > kind.most || after.Cost <= 0 {
			t.Errorf("%s: %d, then %+v, %v", kind.name, before.N, after, err)
		}
		if _, err := kind.count(rss.ProcID{PID: me.PID, Start: 1}); !errors.Is(err, errGone) {
			t.Errorf("%s of a process that had the PID before: %v", kind.name, err)
		}
		if _, err := kind.count(rss.ProcID{PID: 1 << 30}); !Vanished(err) {
			t.Errorf("%s of no process: %v", kind.name, err)
		}
	}
}

// TestDescriptorsBothWays: what st_size says is what the directory holds.
func TestDescriptorsBothWays(t *testing.T) {
	c := NewCounter("/proc")
	defer c.Close()
	me := rss.ProcID{PID: os.Getpid()}
	fast, err := c.Descriptors(me)
	must(t, err)
	c.f.real = false // so that st_size is not believed
	slow, err := c.Descriptors(me)
	if d := slow.N - fast.N; err != nil || d < -3 || d > 3 { // the directory's own is one more
		t.Errorf("%d by st_size, %d by the directory, %v", fast.N, slow.N, err)
	}
}

func TestCountLimits(t *testing.T) {
	fs := rsstest.Empty(t)
	if _, err := MapLimit(fs.Proc); !Vanished(err) {
		t.Errorf("no file: %v", err)
	}
	for text, want := range map[string]uint64{"65530\n": 65530, "2147483642": 2147483642, "": 0, "many\n": 0} {
		fs.Write("proc/sys/vm/max_map_count", text)
		if n, err := MapLimit(fs.Proc); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestNodeTasks(t *testing.T) {
	fs := rsstest.Empty(t)
	tasks := NewNode(fs.Proc)
	defer tasks.Close()
	if _, err := tasks.Tasks(); !Vanished(err) {
		t.Errorf("no file: %v", err)
	}
	fs.Write("proc/loadavg", "9.20 6.21 4.57 3/219 10730\n")
	fs.Write("proc/sys/kernel/threads-max", "192730\n")
	fs.Write("proc/sys/kernel/pid_max", "32768\n")
	for range 2 {
		if n, err := tasks.Tasks(); err != nil || n != (NodeTasks{Total: 219, ThreadsMax: 192730, PIDMax: 32768}) {
			t.Errorf("%+v, %v", n, err)
		}
	}
	for _, in := range []string{"", "1 2 3", "1 2 3 4 5", "1 2 3 4/ 5", "1 2 3 4/0 5", "1 2 3 4/99999999999 5"} {
		if n, ok := parseTotal([]byte(in)); ok {
			t.Errorf("%q: %d", in, n)
		}
	}
	real := NewNode("/proc")
	defer real.Close()
	n, err := real.Tasks()
	if err != nil || n.Total < 2 || n.ThreadsMax < uint64(n.Total) || n.PIDMax < 300 {
		t.Errorf("of this node: %+v, %v", n, err)
	}
}

func FuzzLoadavg(f *testing.F) {
	f.Add([]byte("0.11 0.22 0.33 2/345 6789\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := parseTotal(b); ok && (n <= 0 || len(b) < len("1 2 3 /5")) {
			t.Errorf("%d from %q", n, b)
		}
		if n, ok := parseLastPID(b); ok && (n == 0 || len(b) < 9) {
			t.Errorf("last PID %d from %q", n, b)
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
	const uid = 64321 // an unused account
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
		must(t, err)
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

const limitsText = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max resident set          734003200            unlimited            bytes     
Max processes             96365                96366                processes 
Max open files            20000                20001                files     
Max locked memory         8388608              8388609              bytes     
Max address space         unlimited            unlimited            bytes     
Max nice priority         0                    0                    
`

func TestParseResourceLimits(t *testing.T) {
	got, err := parseResourceLimits([]byte(limitsText))
	if want := (rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: 8 * rss.MiB, Tasks: 96365, Descriptors: 20000}); err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = parseResourceLimits([]byte("Max open files 0 0 files\n"))
	if want := (rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: rss.Unlimited, Tasks: rss.Unlimited, Descriptors: 0}); err != nil || !cmp.Equal(got, want) {
		t.Errorf("of one line: %+v, %v", got, err)
	}
	for _, in := range []string{"", "Limit\n", "Max open files \n", "Max processes -1 0 processes\n", "Max address space 1k 2 bytes\n"} {
		if got, err := parseResourceLimits([]byte(in)); err == nil {
			t.Errorf("%q: %+v", in, got)
		}
	}
}

func FuzzParseResourceLimits(f *testing.F) {
	f.Add([]byte(limitsText))
	f.Add([]byte("Max processes unlimited"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseResourceLimits(b)
		if err == nil && l.Tasks != rss.Unlimited && !bytes.Contains(b, []byte("Max processes ")) {
			t.Errorf("%+v from %q", l, b)
		}
	})
}

func TestLimitsOfProcesses(t *testing.T) {
	l, err := Limits("/proc", os.Getpid())
	must(t, err)
	for which, got := range map[int]uint64{
		unix.RLIMIT_AS: uint64(l.AddressSpace), unix.RLIMIT_MEMLOCK: uint64(l.LockedMemory),
		unix.RLIMIT_NPROC: l.Tasks, unix.RLIMIT_NOFILE: l.Descriptors,
	} {
		var own unix.Rlimit
		if err := unix.Getrlimit(which, &own); err != nil || own.Cur != got {
			t.Errorf("limit %d: %d, and getrlimit says %d, %v", which, got, own.Cur, err)
		}
	}
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	l, err = Limits(fs.Proc, rsstest.Trainer)
	if want := (rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: rss.Unlimited, Tasks: rss.Unlimited, Descriptors: 20000, Status: l.Status}); err != nil || !cmp.Equal(l, want) {
		t.Errorf("of the archive: %+v, %v", l, err)
	}
	if sizes := l.Status; sizes["VmPTE"] == 0 || sizes["VmPeak"] < sizes["VmSize"] || sizes["Threads"] != 0 {
		t.Errorf("sizes of the archive: %v", sizes)
	}
	if n, err := ResidentLimit(fs.Proc, rsstest.Trainer); err != nil || n != uint64(700*rss.MiB) {
		t.Errorf("RLIMIT_RSS of the archive: %d, %v", n, err)
	}
	fs.Write("proc/4102/limits", "")
	if _, err := Limits(fs.Proc, rsstest.Trainer); !Vanished(err) {
		t.Errorf("while it is reaped: %v", err)
	}
	fs.End(rsstest.Trainer)
	if _, err := Limits(fs.Proc, rsstest.Trainer); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}
