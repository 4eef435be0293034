package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// users are who may trim their own: us and, where we are root, a plain user.
func users(t *testing.T, test func(t *testing.T, as func(*exec.Cmd))) {
	t.Run("we", func(t *testing.T) { test(t, nil) })
	if os.Geteuid() == 0 {
		t.Run("a plain user", func(t *testing.T) { test(t, asNobody) })
	}
}

// TestTrim: RSS falls by what the file has, and the process does not notice.
func TestTrim(t *testing.T) {
	users(t, func(t *testing.T, as func(*exec.Cmd)) {
		m := startMapper(t, mapFile(t), "futex", as)
		had := m.resident()

		dry, _ := trims(t, as, 0, "--dry-run", "--drop", "--pid", m.pid())
		if p := dry.Processes[0]; len(dry.Processes) != 1 || p.Mapped != mappedBytes || p.Freed != nil || p.Before != nil || p.Refused != nil || len(dry.Dropped) > 0 {
			t.Errorf("dry: %+v", dry)
		}
		if now := m.resident(); now < had-1<<20 {
			t.Errorf("a dry run lowered RssFile from %d to %d", had, now)
		}

		got, _ := trims(t, as, 0, "--pid", m.pid())
		p := got.Processes[0]
		if len(got.Processes) != 1 || strconv.Itoa(p.PID) != m.pid() || p.Comm != "python3" || p.Mapped != mappedBytes || p.Refused != nil ||
			p.Freed == nil || *p.Freed < mappedBytes-1<<20 || *p.Before-*p.After < mappedBytes-1<<20 || *p.Stop <= 0 || len(got.Dropped) > 0 {
			t.Errorf("%+v", got)
		}
		if now := m.resident(); now > had-mappedBytes+1<<20 {
			t.Errorf("RssFile %d, was %d", now, had)
		}
		m.intact()
	})
}

// TestTrimDrop: the file leaves the page cache, though it is mapped still.
func TestTrimDrop(t *testing.T) {
	path := mapFile(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cached := func() uint64 {
		var st unix.Cachestat_t
		if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
			t.Skip("cachestat: ", err)
		}
		return st.Cache * uint64(os.Getpagesize())
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a file of tmpfs cannot leave the page cache")
	}
	users(t, func(t *testing.T, as func(*exec.Cmd)) {
		m := startMapper(t, path, "futex", as)
		if n := cached(); n != mappedBytes {
			t.Fatalf("%d bytes in the page cache", n)
		}
		got, _ := trims(t, as, 0, "--drop", "--pid", m.pid())
		if n := cached(); n > 1<<20 {
			t.Errorf("%d bytes are in the page cache still", n)
		}
		if len(got.Dropped) != 1 || got.Dropped[0].Path != path || got.Dropped[0].Error != "" {
			t.Fatalf("%+v", got.Dropped)
		}
		switch d := got.Dropped[0]; {
		case as != nil: // the file is not theirs, and the kernel does not tell
			if d.Before != nil || d.After != nil {
				t.Errorf("%+v", d)
			}
		case d.Before == nil || *d.Before != mappedBytes || *d.After > 1<<20:
			t.Errorf("%+v", d)
		}
		m.intact()
	})
}

// TestTrimJob: all processes of the job and no other, first trimmed and then
// dropped; a holder and a watcher are ours.
func TestTrimJob(t *testing.T) {
	path := mapFile(t)
	inJob := inJobWithoutCgroup(t, "4294960001")
	one := startMapper(t, path, "futex", inJob)
	wrapped := startMapper(t, path, "futex", inJob, binary, "run", "--quiet", "--")
	other := startMapper(t, path, "futex", nil)
	had := other.resident()
	got, _ := trims(t, inJob, 0)
	var pids []int
	for _, p := range got.Processes {
		pids = append(pids, p.PID)
		if p.Refused != nil || *p.Freed < mappedBytes-1<<20 {
			t.Errorf("%+v", p)
		}
	}
	if len(pids) != 2 || !slices.Contains(pids, one.cmd.Process.Pid) || slices.Contains(pids, wrapped.cmd.Process.Pid) {
		t.Errorf("processes %v of %s and one that %s started", pids, one.pid(), wrapped.pid())
	}
	if now := other.resident(); now < had-1<<20 {
		t.Errorf("RssFile of one in no job fell from %d to %d", had, now)
	}
	one.intact()
	wrapped.intact()

	ours, errs := trims(t, inJob, 1, "--pid", wrapped.pid())
	if p := ours.Processes[0]; p.Refused == nil || *p.Refused != "a process of rsswarden's" || !strings.Contains(errs, "error: nothing was trimmed") {
		t.Errorf("%+v, %s", ours, errs)
	}
}

// TestTrimRefused: the reason is told, and the status is 1.
func TestTrimRefused(t *testing.T) {
	path := mapFile(t)
	refused := func(t *testing.T, as func(*exec.Cmd), m *mapper, reason, detail string) {
		t.Helper()
		had := m.resident()
		got, errs := trims(t, as, 1, "--drop", "--pid", m.pid())
		if p := got.Processes[0]; p.Refused == nil || *p.Refused != reason || !strings.Contains(p.Detail, detail) || len(got.Dropped) > 0 {
			t.Errorf("%+v, want %q (%s)", got, reason, detail)
		}
		want := "error: nothing was trimmed, every process was refused\n"
		if reason == "another user's process" {
			want += "hint: only its own user may trim a process: ask for it as the user who ran the job\n"
		}
		if errs != want {
			t.Errorf("said %q, want %q", errs, want)
		}
		if now := m.resident(); now < had-1<<20 {
			t.Errorf("RssFile fell from %d to %d", had, now)
		}
	}
	t.Run("traced", func(t *testing.T) {
		m := startMapper(t, path, "futex", nil)
		runtime.LockOSThread() // the tracer is a thread
		defer runtime.UnlockOSThread()
		if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(m.cmd.Process.Pid), 0, 0, 0, 0); e != 0 {
			t.Fatal(e)
		}
		refused(t, nil, m, "traced already", fmt.Sprintf("process %d traces it", unix.Gettid()))
	})
	t.Run("stopped", func(t *testing.T) {
		m := startMapper(t, path, "futex", nil)
		if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		until(t, "it is stopped", func() bool { return strings.HasPrefix(m.status("State"), "T") })
		refused(t, nil, m, "stopped", "")
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		m.intact()
	})
	t.Run("another user's", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can be two users")
		}
		refused(t, asNobody, startMapper(t, path, "futex", nil), "another user's process", "")
		refused(t, nil, startMapper(t, path, "futex", asNobody), "another user's process", "")
	})
	t.Run("no thread to borrow", func(t *testing.T) {
		refused(t, nil, startMapper(t, path, "read", nil), "no thread sleeps where it could be borrowed", "")
	})
}

// TestTrimSignals: Ctrl-Z leaves nobody stopped, and INT ends it between two
// pieces; what was done is printed. The process lends no thread, so that it is
// asked for a second.
func TestTrimSignals(t *testing.T) {
	path := mapFile(t)
	inJob := inJobWithoutCgroup(t, "4294960002")
	var all []*mapper
	for range 4 {
		all = append(all, startMapper(t, path, "read", inJob))
	}
	switches := func() (n int) {
		for _, m := range all {
			v, err := strconv.Atoi(m.status("voluntary_ctxt_switches"))
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
		return n
	}
	quiet := switches()
	cmd := exec.Command(binary, "trim")
	cmd.Env = withoutSlurm()
	inJob(cmd)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	signal := func(s syscall.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	// They sleep: nobody but us wakes them.
	until(t, "it has begun", func() bool { return switches() > quiet+2 })
	signal(syscall.SIGTSTP)
	until(t, "it is stopped", func() bool { return strings.HasPrefix(statusOf(t, cmd.Process.Pid, "State"), "T") })
	for _, m := range all {
		if tracer, state := m.status("TracerPid"), m.status("State"); tracer != "0" || state[0] == 't' || state[0] == 'T' {
			t.Errorf("process %s: state %s, traced by %s", m.pid(), state, tracer)
		}
	}
	signal(syscall.SIGINT)
	signal(syscall.SIGCONT)
	cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	for _, m := range all {
		if !strings.Contains(out.String(), "\n"+m.pid()+" ") {
			t.Errorf("process %s is not in\n%s", m.pid(), out.String())
		}
		m.intact()
	}
	if !strings.Contains(out.String(), "\na signal ended it before all was done\n") {
		t.Errorf("the end is not told in\n%s", out.String())
	}
}
