package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// openStatm counts our descriptors of some process's statm, and wants each
// closed on exec.
func openStatm(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	n := 0
	for _, name := range names {
		to, _ := os.Readlink(filepath.Join("/proc/self/fd", name.Name()))
		if !strings.HasSuffix(to, "/statm") {
			continue
		}
		n++
		info, _ := os.ReadFile(filepath.Join("/proc/self/fdinfo", name.Name()))
		if !strings.Contains(string(info), "flags:\t02") {
			t.Errorf("%s is not closed on exec:\n%s", to, info)
		}
	}
	return n
}

func readTree(t *testing.T, r *Reader) []rss.Proc {
	t.Helper()
	procs, gaps, err := r.Tree(rss.ProcID{PID: os.Getpid()})
	if err != nil || gaps.Denied+gaps.Malformed > 0 {
		t.Fatal(gaps, err)
	}
	return procs
}

func TestDescriptorsAreKept(t *testing.T) {
	for range 3 {
		rsstest.Sleeper(t)
	}
	for most, want := range map[int]int{100: 4, 2: 2, 0: 0} {
		r := New("/proc")
		r.kept = kept{most: most, asked: true}
		first := readTree(t, r)
		if n := openStatm(t); n != want || r.kept.open != want {
			t.Errorf("of %d at most: %d and %d kept, want %d", most, n, r.kept.open, want)
		}
		again := readTree(t, r)
		if len(first) != 4 || len(again) != 4 || again[3].RSS == 0 || again[3].ID != first[3].ID {
			t.Errorf("of %d at most: %+v, then %+v", most, first, again)
		}
		if sum, err := r.SumRSS(); err != nil || sum < again[1].RSS+again[2].RSS+again[3].RSS {
			t.Errorf("of %d at most: sum %v, %v of %+v", most, sum, err, again)
		}
		r.Close()
		if n := openStatm(t); n != 0 || r.kept.open != 0 {
			t.Errorf("%d and %d left open", n, r.kept.open)
		}
	}
}

func TestDescriptorsOfTheDeadAreClosed(t *testing.T) {
	dies, _ := rsstest.Sleeper(t)
	r := New("/proc")
	defer r.Close()
	readTree(t, r)
	dies.Process.Kill()
	dies.Wait()
	if sum, err := r.SumRSS(); err != nil || sum == 0 {
		t.Errorf("%v, %v", sum, err)
	}
	if procs := readTree(t, r); len(procs) != 1 || openStatm(t) != 1 {
		t.Errorf("%+v, %d open", procs, openStatm(t))
	}
}

// Where nothing was forked /proc is not listed, and a fork is seen at once.
func TestListsAfterAFork(t *testing.T) {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil || !onProcfs(fd) {
		t.Skipf("/proc/loadavg cannot be trusted here: %v", err)
	}
	unix.Close(fd)
	r := New("/proc")
	defer r.Close()
	readTree(t, r)
	quiet := false
	for range 100 { // others fork too
		before := r.lists
		readTree(t, r)
		if quiet = r.lists == before; quiet {
			break
		}
	}
	if !quiet {
		t.Error("listed 100 times in a row")
	}
	rsstest.Sleeper(t)
	if procs := readTree(t, r); len(procs) != 2 {
		t.Errorf("the child is not seen: %+v", procs)
	}
}

// TestNoDescriptorLeft: when no more files can be opened, the tree is unknown, not empty.
// The gap is reported, and the processes are read once files can be opened again.
func TestNoDescriptorLeft(t *testing.T) {
	r := New("/proc")
	t.Cleanup(r.Close)
	first := len(readTree(t, r))
	_, started := rsstest.Sleeper(t)
	var procs []rss.Proc
	var err error
	rsstest.WithoutDescriptors(t, func() {
		procs, _, err = r.Tree(rss.ProcID{PID: os.Getpid()})
	})
	if !errors.Is(err, unix.EMFILE) || procs != nil {
		t.Errorf("read without a descriptor: %d processes, %v", len(procs), err)
	}
	found := false
	procs = readTree(t, r)
	for _, p := range procs {
		found = found || p.ID == started
	}
	if !found || len(procs) != first+1 {
		t.Errorf("%d processes then, %d before, the new one is among them: %v", len(procs), first, found)
	}
}

// TestNoDescriptorForOthers: nor that one of the tree has become smaller, that those beside the
// tree, or a user's tasks, are fewer, or that a process whose first thread has ended has no memory.
func TestNoDescriptorForOthers(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Anon: rss.MiB})
	r, c := New(fs.Proc), NewCounter(fs.Proc)
	t.Cleanup(r.Close)
	t.Cleanup(c.Close)
	if procs, gaps, err := r.Group([]int{10}); len(procs) != 1 || gaps != (rss.Gaps{}) || err != nil {
		t.Fatal(procs, gaps, err)
	}
	if _, err := c.UserTasks(os.Geteuid()); err != nil {
		t.Fatal(err)
	}
	of := reader(t, fs.Proc)
	if procs, _, err := of.Tree(rss.ProcID{PID: 10}); len(procs) != 1 || err != nil {
		t.Fatal(procs, err)
	}
	var procs []rss.Proc
	var err, member, tasks, thread error
	var forks bool
	rsstest.WithoutDescriptors(t, func() {
		procs, _, err = r.Group([]int{10})
		_, member = of.members(&rss.Gaps{})
		_, tasks = c.userTasks(os.Geteuid())
		_, thread = r.liveThread(10, status{})
		forks = r.forks.happened(r.f)
	})
	if !errors.Is(err, unix.EMFILE) || procs != nil {
		t.Errorf("others: %v, %v", procs, err)
	}
	for what, err := range map[string]error{"a member": member, "tasks": tasks, "a thread": thread} {
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !forks || r.forks.fd < 0 {
		t.Errorf("forks happened: %v, and loadavg is not asked again: %d", forks, r.forks.fd)
	}
}

const statRest = " S 10 11 12 0 -1 4194304 10 0 0 0 5 6 0 0 20 0 3 0 4711 8192 2 18446744073709551615 1 1 0 0 0 0\n"

func TestParseStatHostileNames(t *testing.T) {
	for _, comm := range []string{
		"python3", "", " ", ")", "(", "a) Z 1 1 (b", "foo) Z ", "x\ny", "\t", "a (b) c", "tor\xc3", "\xff\xfe", "))) R 1",
	} {
		s, err := parseStat([]byte("7 (" + comm + ")" + statRest))
		if err != nil {
			t.Errorf("%q: %v", comm, err)
			continue
		}
		if string(s.comm) != comm || s.state != 'S' || s.parent != 10 ||
			s.threads != 3 || s.start != 4711 || s.cpu != 110*time.Millisecond || s.kernel {
			t.Errorf("%q: got %q %+v", comm, s.comm, s)
		}
	}
}

func TestParseStatKernelThread(t *testing.T) {
	for flags, want := range map[string]bool{"2129984": true, "4194304": false, "0": false} {
		if s, err := parseStat([]byte("7 (a) b)" + strings.Replace(statRest, "4194304", flags, 1))); s.kernel != want || err != nil {
			t.Errorf("%s: %+v, %v", flags, s, err)
		}
	}
}

func TestParseStatMalformed(t *testing.T) {
	for _, in := range []string{
		"", "7", "7 (x", "7 x)", ")(", "7 (x)", "7 (x) S", "7 (x) S 1 2 3", "7 (x) SS" + statRest[2:],
		"7 (x)" + strings.Replace(statRest, "4711", "4x11", 1),
		"7 (x)" + strings.Replace(statRest, "4711", "99999999999999999999999", 1),
	} {
		if s, err := parseStat([]byte(in)); err == nil {
			t.Errorf("%q: no error, got %+v", in, s)
		}
	}
}

func TestParseStatm(t *testing.T) {
	got, err := parseStatm([]byte("985 775 710 193 0 109 0\n"))
	if want := (statm{985 * pageSize, 775 * pageSize, 710 * pageSize}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, in := range []string{"", "1", "1 2", "a b c", "1 2 x"} {
		if _, err := parseStatm([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
	if n, err := parseResident([]byte("985 775 710 193 0 109 0\n")); err != nil || n != 775*pageSize {
		t.Errorf("resident %v, %v", n, err)
	}
	for _, in := range []string{"", "1", "1 ", "1 x", " "} {
		if _, err := parseResident([]byte(in)); err == nil {
			t.Errorf("resident of %q: no error", in)
		}
	}
}

func TestParseStatus(t *testing.T) {
	got, err := parseStatus([]byte("Name:\tVmRSS:\t9 kB\nGroups:\t1 2 \nVmSize:\t  4000 kB\nVmLck:\t    40 kB\nVmPin:\t    50 kB\nVmHWM:\t  9000 kB\nVmRSS:\t   600 kB\nRssAnon:\t  100 kB\nRssFile:\t  200 kB\nRssShmem:\t 300 kB\nThreads:\t7\n"))
	want := status{rss: 600 << 10, anon: 100 << 10, file: 200 << 10, shmem: 300 << 10, virtual: 4000 << 10, locked: 40 << 10, pinned: 50 << 10, peak: 9000 << 10, threads: 7}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}

	t.Run("zombie", func(t *testing.T) {
		got, err := parseStatus([]byte("Name:\tx\nState:\tZ (zombie)\nThreads:\t1\n"))
		if err != nil || got != (status{threads: 1}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("before Linux 4.5", func(t *testing.T) {
		got, err := parseStatus([]byte("VmRSS:\t 8 kB\nThreads:\t1\n"))
		if err != nil || got != (status{rss: 8192, anon: 8192, threads: 1}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("counter dips below zero", func(t *testing.T) {
		got, err := parseStatus([]byte("VmRSS:\t 8 kB\nRssAnon:\t 12 kB\nRssFile:\t -4 kB\nThreads:\t1\n"))
		if err != nil || got.file != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	for _, in := range []string{"", "Threads:\n", "VmRSS:\t8 MB\nThreads:\t1\n", "VmRSS:\tx kB\nThreads:\t1\n", "VmRSS:\t8 kB\n", "VmLck:\t8\nThreads:\t1\n", "VmPin:\t\nThreads:\t1\n"} {
		if _, err := parseStatus([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "18446744073709551615": 1<<64 - 1, "-5": 0, "007": 7} {
		if n, ok := number([]byte(in)); !ok || n != want {
			t.Errorf("%q: got %d, %v", in, n, ok)
		}
	}
	for _, in := range []string{"", "-", "+1", "18446744073709551616", "1.5", "0x1", "1 "} {
		if n, ok := number([]byte(in)); ok {
			t.Errorf("%q: got %d", in, n)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (x) Z)" + statRest))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err != nil {
			return
		}
		if s.parent < 0 && !strings.Contains(string(b), fmt.Sprint(uint64(s.parent))) {
			t.Errorf("parent %d from %q", s.parent, b)
		}
		if !strings.Contains(string(b), "("+string(s.comm)+")") {
			t.Errorf("name %q from %q", s.comm, b)
		}
	})
}

func FuzzParseStatm(f *testing.F) {
	f.Add([]byte("1 2 3 4 5 6 7"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseStatm(b)
		if err == nil && len(b) < 5 {
			t.Errorf("three fields from %q", b)
		}
		// The kernel begins with a number.
		if n, err2 := parseResident(b); err == nil && b[0] > ' ' && bytes.IndexByte(b, ' ') >= 0 &&
			!bytes.ContainsAny(b, "\t\n") && (err2 != nil || n != m.resident) {
			t.Errorf("resident %v, %v and %v from %q", n, err2, m.resident, b)
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("VmRSS:\t 8 kB\nThreads:\t1\n"))
	f.Add([]byte("VmLck:\t 8 kB\nVmPin:\t 4 kB\nThreads:\t1\n"))
	f.Add([]byte("Tgid:\t7\nUid:\t1000\t1001\t1002\t1003\nThreads:\t1\nCapEff:\t000001fffeffffff\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		has := func(name string) bool { return strings.Contains(string(b), name) }
		if s, err := parseStatus(b); err == nil && (!has("Threads:") || s.locked > 0 && !has("VmLck:") || s.pinned > 0 && !has("VmPin:")) {
			t.Errorf("%+v from %q", s, b)
		}
		sizes, _ := parseSizes(b)
		for name, size := range sizes {
			if !has(name+":") || !has("kB") || size > maxKB*rss.KiB {
				t.Errorf("%s is %v from %q", name, size, b)
			}
		}
		if o, err := parseOwner(b); err == nil && (o.uid < 0 || o.threads < 0 || !has("Tgid") || !has("Uid")) {
			t.Errorf("%+v from %q", o, b)
		}
	})
}

func TestRole(t *testing.T) {
	if role("torch_shm_manag") != rss.RoleShmManager || role("python3") != rss.RoleOther {
		t.Error("roles by name")
	}
}

// What mlock(2) locks shows as Locked, and pins nothing.
func TestLockedOfThisProcess(t *testing.T) {
	const size = rss.MiB / 4 // of the 8 MiB that RLIMIT_MEMLOCK is as a rule, 64 KiB before Linux 5.16
	r := New("/proc")
	defer r.Close()
	before, err := r.One(os.Getpid())
	must(t, err)
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	defer unix.Munmap(b)
	if err := unix.Mlock(b); err != nil {
		t.Skip("cannot lock memory: ", err)
	}
	after, err := r.One(os.Getpid())
	if err != nil || after.Locked != before.Locked+size || after.Pinned != before.Pinned {
		t.Errorf("locked %v and pinned %v, then %v and %v, %v", before.Locked, before.Pinned, after.Locked, after.Pinned, err)
	}
}

func TestProcOf(t *testing.T) {
	p, err := ProcOf("/proc", os.Getpid())
	if err != nil || p.RSS < rss.MiB || p.File == 0 || p.File+p.Shmem >= p.RSS {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := ProcOf("/proc", 1<<30); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}

func TestCostOfThisProcess(t *testing.T) {
	const tick = 10 * time.Millisecond
	var used unix.Rusage
	for used.Utime.Nano()+used.Stime.Nano() < int64(3*tick) {
		must(t, unix.Getrusage(unix.RUSAGE_SELF, &used))
	}
	time.Sleep(time.Millisecond) // a wake-up
	c, err := CostOf("/proc", os.Getpid())
	must(t, err)
	if c.RSS < rss.MiB || c.Anon == 0 || c.Anon > c.RSS || c.PSS == 0 || c.PSS > c.RSS+rss.MiB ||
		c.Threads < 2 || c.Descriptors < 3 || c.CPU == 0 || c.CPU > time.Hour || c.Wakeups == 0 {
		t.Errorf("%+v", c)
	}
	if _, err := CostOf("/proc", 1<<30); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}

func TestIdentifyReal(t *testing.T) {
	i, err := Identify("/proc", os.Getpid())
	if err != nil || i.ID.Start == 0 || i.Process != os.Getpid() || i.Parent != os.Getppid() ||
		i.Kernel || i.Ended() || i.UID != os.Geteuid() || i.Threads < 2 {
		t.Errorf("ourselves: %+v, %v", i, err)
	}
	tid := make(chan int)
	done := make(chan struct{})
	defer close(done)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		<-done
	}()
	thread := <-tid
	if i, err := Identify("/proc", thread); thread != os.Getpid() && (err != nil || i.Process != os.Getpid()) {
		t.Errorf("thread %d: %+v, %v", thread, i, err)
	}
	if i, err := Identify("/proc", 2); err == nil && i.Comm == "kthreadd" && !i.Kernel {
		t.Errorf("kthreadd: %+v", i)
	}
	c := exec.Command("/bin/true")
	must(t, c.Start())
	pid := c.Process.Pid
	var si unix.Siginfo
	must(t, unix.Waitid(unix.P_PID, pid, &si, unix.WEXITED|unix.WNOWAIT, nil))
	if i, err := Identify("/proc", pid); err != nil || !i.Ended() {
		t.Errorf("zombie: %+v, %v", i, err)
	}
	c.Wait()
	if _, err := Identify("/proc", pid); !Vanished(err) {
		t.Errorf("gone: %v", err)
	}
}

func TestParseOwner(t *testing.T) {
	o, err := parseOwner([]byte("Name:\tTgid: 9\nTgid:\t7\nUid:\t1000\t1001\t1002\t1003\nThreads:\t2\nCapEff:\t000001fffeffffff\n"))
	if o != (owner{7, 2, 1000, 1001, 0x1fffeffffff}) || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
	for _, in := range []string{
		"", "Tgid:\t7\n", "Uid:\t1\t1\n", "Tgid:\tx\nUid:\t1\t1\nThreads:\t1\n", "Tgid:\t7\nUid:\t1\nThreads:\t1\n", "Tgid:\t7\nUid:\t1\t1\n",
		"Tgid:\tx\nUid:\t1\t1\nThreads:\t1\nCapEff:\t0\n", "Tgid:\t7\nUid:\t1\t1\nThreads:\t1\nCapEff:\tx\n",
	} {
		if _, err := parseOwner([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestEnvironReal(t *testing.T) {
	c := exec.Command("/bin/sleep", "1000")
	c.Env = []string{"SLURM_JOB_ID=7", "HOME=/x", "SLURM_X=a=b", "NOTHING"}
	must(t, c.Start())
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	ours := func(name string) bool { return strings.HasPrefix(name, "SLURM") }
	got, err := Environ("/proc", c.Process.Pid, ours)
	// Start returns in the midst of execve, before there is an environment.
	for end := time.Now().Add(10 * time.Second); err == nil && len(got) == 0 && time.Now().Before(end); {
		got, err = Environ("/proc", c.Process.Pid, ours)
	}
	if err != nil || len(got) != 2 || got["SLURM_JOB_ID"] != "7" || got["SLURM_X"] != "a=b" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Environ(t.TempDir(), 7, ours); !Vanished(err) {
		t.Errorf("no such process: %v", err)
	}
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("A=1\x00A=2\x00=3\x00B\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, value := range parseEnviron(b, func(string) bool { return true }) {
			parts := strings.Split(string(b), "\x00")
			if name == "" || strings.Contains(name, "=") || !slices.Contains(parts, name+"="+value) {
				t.Errorf("%q=%q from %q", name, value, b)
			}
		}
	})
}

func TestCapable(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Write("proc/7/status", "Tgid:\t7\nUid:\t0\t0\t0\t0\nThreads:\t1\nCapEff:\t0000000000004000\n") // CAP_IPC_LOCK alone
	for uidMap, want := range map[string]bool{"         0          0 4294967295\n": true, "0 1000 1\n": false} {
		fs.Write("proc/7/uid_map", uidMap)
		if got, err := Capable(fs.Proc, 7, CapIPCLock); got != want || err != nil {
			t.Errorf("%q: %v, %v", uidMap, got, err)
		}
	}
	if got, err := Capable(fs.Proc, 7, capSysAdmin); got || err != nil {
		t.Errorf("another capability: %v, %v", got, err)
	}
	if _, err := Capable(fs.Proc, 8, CapIPCLock); !Vanished(err) {
		t.Errorf("no such process: %v", err)
	}
}

func TestParents(t *testing.T) {
	tests := []struct {
		what  string
		procs []rsstest.Process
		want  []int // PIDs, from process 40 up
		err   error // of the last
	}{
		{
			what: "up to init, whose parent is 0",
			procs: []rsstest.Process{
				{PID: 1, Comm: "init"}, {PID: 20, Parent: 1, Comm: "slurmstepd"},
				{PID: 30, Parent: 20, Comm: "bash"}, {PID: 40, Parent: 30, Comm: "python3"},
			},
			want: []int{40, 30, 20, 1},
		},
		{
			what:  "the topmost process of a PID namespace",
			procs: []rsstest.Process{{PID: 30, Comm: "bash"}, {PID: 40, Parent: 30, Comm: "python3"}},
			want:  []int{40, 30},
		},
		{what: "no such process", want: []int{40}, err: os.ErrNotExist},
		{
			what:  "a parent that has ended or is hidden",
			procs: []rsstest.Process{{PID: 30, Parent: 20, Comm: "bash"}, {PID: 40, Parent: 30, Comm: "python3"}},
			want:  []int{40, 30, 20},
			err:   os.ErrNotExist,
		},
		{
			what: "a parent whose PID is another's by now",
			procs: []rsstest.Process{
				{PID: 1, Comm: "init"}, {PID: 30, Parent: 1, Start: 5000, Comm: "other"}, {PID: 40, Parent: 30, Comm: "python3"},
			},
			want: []int{40, 30},
			err:  errGone,
		},
		{
			what:  "a process that is its own parent",
			procs: []rsstest.Process{{PID: 40, Parent: 40, Comm: "python3"}},
			want:  slices.Repeat([]int{40}, maxParents+1),
			err:   errTooDeep,
		},
		{
			what: "a circle",
			procs: []rsstest.Process{
				{PID: 30, Parent: 40, Start: 7, Comm: "bash"}, {PID: 40, Parent: 30, Start: 7, Comm: "python3"},
			},
			want: append(slices.Repeat([]int{40, 30}, maxParents/2), 40),
			err:  errTooDeep,
		},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			tree := rsstest.Empty(t)
			for _, p := range tt.procs {
				tree.Put(p)
			}
			var got []int
			var last error
			for i, err := range Parents(tree.Proc, 40) {
				if got = append(got, i.ID.PID); err == nil && (i.Comm == "" || i.ID.Start == 0) {
					t.Errorf("not read: %+v", i)
				}
				last = err
			}
			if !slices.Equal(got, tt.want) || !errors.Is(last, tt.err) {
				t.Errorf("got %d, %v, want %d, %v", got, last, tt.want, tt.err)
			}
		})
	}
}

// The caller says what ends the walk.
func TestParentsReal(t *testing.T) {
	for i, err := range Parents("/proc", os.Getpid()) {
		must(t, err)
		if i.ID.PID == os.Getppid() {
			return
		}
	}
	t.Errorf("process %d, our parent, was not met", os.Getppid())
}

func TestEnding(t *testing.T) {
	for name, expect := range map[string]func(rss.ProcID) *Ending{
		"pidfd":     func(id rss.ProcID) *Ending { return Expect("/proc", id) },
		"Linux 5.2": func(id rss.ProcID) *Ending { return &Ending{proc: "/proc", id: id, fd: -1} },
	} {
		t.Run(name, func(t *testing.T) {
			p, id := rsstest.Sleeper(t)
			e := expect(id)
			if e.Wait(time.Millisecond) || !Lives("/proc", id) {
				t.Fatal("it lives")
			}
			p.Process.Kill() // and is not waited for: a zombie has ended
			if !e.Wait(time.Minute) || Lives("/proc", id) {
				t.Error("the end was not seen")
			}
		})
	}
	_, id := rsstest.Sleeper(t)
	if id.Start--; !Expect("/proc", id).Wait(0) {
		t.Error("the PID was given to another process")
	}
}

// TestEndingKeepsNoDescriptor: a job is followed for days.
func TestEndingKeepsNoDescriptor(t *testing.T) {
	count := func() (n int) {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		for _, name := range names {
			// Tests before this one may close other descriptors meanwhile.
			if to, _ := os.Readlink("/proc/self/fd/" + name.Name()); to == "anon_inode:[pidfd]" {
				n++
			}
		}
		return n
	}
	p, id := rsstest.Sleeper(t)
	before := count()
	for range 20 {
		e := Expect("/proc", id)
		e.Wait(time.Microsecond)
		e.Close()
	}
	p.Process.Kill()
	Expect("/proc", id).Wait(time.Minute)
	if after := count(); after > before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
}
