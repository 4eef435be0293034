package proctree

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

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
