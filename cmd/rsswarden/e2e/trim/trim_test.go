// Package trim has rsswarden trim lower the memory of processes that run.
package trim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary}))
}

// users are who may trim their own: us and, where we are root, a plain user.
func users(t *testing.T, test func(t *testing.T, as func(*exec.Cmd))) {
	t.Run("we", func(t *testing.T) { test(t, nil) })
	if os.Geteuid() == 0 {
		t.Run("a plain user", func(t *testing.T) { test(t, wardentest.AsPlainUser) })
	}
}

// TestTrim: RSS falls by what the file has, and the process does not notice.
func TestTrim(t *testing.T) {
	users(t, func(t *testing.T, as func(*exec.Cmd)) {
		m := wardentest.StartMapper(t, wardentest.MapFile(t), "futex", as)
		had := m.Resident()

		dry, _ := trims(t, as, 0, "--dry-run", "--drop", "--pid", m.PID())
		if p := dry.Processes[0]; len(dry.Processes) != 1 || p.Mapped != wardentest.MappedBytes || p.Freed != nil || p.Before != nil || p.Refused != nil || len(dry.Dropped) > 0 {
			t.Errorf("dry: %+v", dry)
		}
		if now := m.Resident(); now < had-1<<20 {
			t.Errorf("a dry run lowered RssFile from %d to %d", had, now)
		}

		got, _ := trims(t, as, 0, "--pid", m.PID())
		p := got.Processes[0]
		if len(got.Processes) != 1 || strconv.Itoa(p.PID) != m.PID() || p.Comm != "python3" || p.Mapped != wardentest.MappedBytes || p.Refused != nil ||
			p.Freed == nil || *p.Freed < wardentest.MappedBytes-1<<20 || *p.Before-*p.After < wardentest.MappedBytes-1<<20 || *p.Stop <= 0 || len(got.Dropped) > 0 {
			t.Errorf("%+v", got)
		}
		if now := m.Resident(); now > had-wardentest.MappedBytes+1<<20 {
			t.Errorf("RssFile %d, was %d", now, had)
		}
		m.Intact()
	})
}

// TestTrimDrop: the file leaves the page cache, though it is mapped still.
func TestTrimDrop(t *testing.T) {
	path := wardentest.MapFile(t)
	f, err := os.Open(path)
	wardentest.NoError(t, err)
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
		m := wardentest.StartMapper(t, path, "futex", as)
		if n := cached(); n != wardentest.MappedBytes {
			t.Fatalf("%d bytes in the page cache", n)
		}
		got, _ := trims(t, as, 0, "--drop", "--pid", m.PID())
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
		case d.Before == nil || *d.Before != wardentest.MappedBytes || *d.After > 1<<20:
			t.Errorf("%+v", d)
		}
		m.Intact()
	})
}

// TestTrimJob: all processes of the job and no other, first trimmed and then
// dropped; a holder and a watcher are ours.
func TestTrimJob(t *testing.T) {
	path := wardentest.MapFile(t)
	inJob := inJobWithoutCgroup(t, "4294960001")
	one := wardentest.StartMapper(t, path, "futex", inJob)
	wrapped := wardentest.StartMapper(t, path, "futex", inJob, binary, "run", "--quiet", "--")
	other := wardentest.StartMapper(t, path, "futex", nil)
	had := other.Resident()
	got, _ := trims(t, inJob, 0)
	var pids []int
	for _, p := range got.Processes {
		pids = append(pids, p.PID)
		if p.Refused != nil || *p.Freed < wardentest.MappedBytes-1<<20 {
			t.Errorf("%+v", p)
		}
	}
	if len(pids) != 2 || !slices.Contains(pids, one.Cmd.Process.Pid) || slices.Contains(pids, wrapped.Cmd.Process.Pid) {
		t.Errorf("processes %v of %s and one that %s started", pids, one.PID(), wrapped.PID())
	}
	if now := other.Resident(); now < had-1<<20 {
		t.Errorf("RssFile of one in no job fell from %d to %d", had, now)
	}
	one.Intact()
	wrapped.Intact()

	ours, errs := trims(t, inJob, 1, "--pid", wrapped.PID())
	if p := ours.Processes[0]; p.Refused == nil || *p.Refused != "a process of rsswarden's" || !strings.Contains(errs, "error: nothing was trimmed") {
		t.Errorf("%+v, %s", ours, errs)
	}
}

// TestTrimRefused: the reason is printed, and the status is 1.
func TestTrimRefused(t *testing.T) {
	path := wardentest.MapFile(t)
	refused := func(t *testing.T, as func(*exec.Cmd), m *wardentest.Mapper, reason, detail string) {
		t.Helper()
		had := m.Resident()
		got, errs := trims(t, as, 1, "--drop", "--pid", m.PID())
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
		if now := m.Resident(); now < had-1<<20 {
			t.Errorf("RssFile fell from %d to %d", had, now)
		}
	}
	t.Run("traced", func(t *testing.T) {
		m := wardentest.StartMapper(t, path, "futex", nil)
		runtime.LockOSThread() // the tracer is a thread
		defer runtime.UnlockOSThread()
		if _, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(m.Cmd.Process.Pid), 0, 0, 0, 0); e != 0 {
			t.Fatal(e)
		}
		refused(t, nil, m, "traced already", fmt.Sprintf("process %d traces it", unix.Gettid()))
	})
	t.Run("stopped", func(t *testing.T) {
		m := wardentest.StartMapper(t, path, "futex", nil)
		wardentest.NoError(t, m.Cmd.Process.Signal(syscall.SIGSTOP))
		wardentest.Until(t, "it is stopped", func() bool { return strings.HasPrefix(m.Status("State"), "T") })
		refused(t, nil, m, "stopped", "")
		wardentest.NoError(t, m.Cmd.Process.Signal(syscall.SIGCONT))
		m.Intact()
	})
	t.Run("another user's", func(t *testing.T) {
		wardentest.NeedRoot(t, "only root can be two users")
		refused(t, wardentest.AsPlainUser, wardentest.StartMapper(t, path, "futex", nil), "another user's process", "")
		refused(t, nil, wardentest.StartMapper(t, path, "futex", wardentest.AsPlainUser), "another user's process", "")
	})
	t.Run("no thread to borrow", func(t *testing.T) {
		refused(t, nil, wardentest.StartMapper(t, path, "read", nil), "no thread sleeps where it could be borrowed", "")
	})
}

// TestTrimSignals: Ctrl-Z leaves no process stopped, and INT ends it between two
// pieces; what was done is printed. The process lends no thread, so that it is
// asked for a second.
func TestTrimSignals(t *testing.T) {
	path := wardentest.MapFile(t)
	inJob := inJobWithoutCgroup(t, "4294960002")
	var all []*wardentest.Mapper
	for range 4 {
		all = append(all, wardentest.StartMapper(t, path, "read", inJob))
	}
	switches := func() (n int) {
		for _, m := range all {
			v, err := strconv.Atoi(m.Status("voluntary_ctxt_switches"))
			wardentest.NoError(t, err)
			n += v
		}
		return n
	}
	quiet := switches()
	cmd := exec.Command(binary, "trim")
	cmd.Env = wardentest.Env()
	inJob(cmd)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	wardentest.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	signal := func(s syscall.Signal) {
		wardentest.NoError(t, cmd.Process.Signal(s))
	}
	// They sleep: only we wake them.
	wardentest.Until(t, "it has begun", func() bool { return switches() > quiet+2 })
	signal(syscall.SIGTSTP)
	wardentest.Until(t, "it is stopped", func() bool { return strings.HasPrefix(wardentest.StatusLine(t, cmd.Process.Pid, "State"), "T") })
	for _, m := range all {
		if tracer, state := m.Status("TracerPid"), m.Status("State"); tracer != "0" || state[0] == 't' || state[0] == 'T' {
			t.Errorf("process %s: state %s, traced by %s", m.PID(), state, tracer)
		}
	}
	signal(syscall.SIGINT)
	signal(syscall.SIGCONT)
	cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	for _, m := range all {
		wardentest.Says(t, out.String(), "\n"+m.PID()+" ")
		m.Intact()
	}
	wardentest.Says(t, out.String(), "\na signal ended it before all was done\n")
}

// inJobWithoutCgroup has a command run in a job that only its environment names: as a
// plain user, for root does not believe an environment.
func inJobWithoutCgroup(t *testing.T, job string) func(*exec.Cmd) {
	t.Helper()
	dir := wardentest.OpenDir(t)
	return func(cmd *exec.Cmd) {
		if os.Geteuid() == 0 {
			wardentest.AsPlainUser(cmd)
		}
		cmd.Env = append(cmd.Env, "SLURM_JOB_ID="+job, "SLURM_STEP_ID=0", "TMPDIR="+dir, "XDG_CACHE_HOME="+dir)
	}
}

// trims runs it, and wants the exit status.
func trims(t *testing.T, change func(*exec.Cmd), status int, args ...string) (got wardentest.Trimming, errs string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"trim", "--json"}, args...)...)
	cmd.Env = wardentest.Env()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if change != nil {
		change(cmd)
	}
	out, _ := cmd.Output() // the status is looked at
	if code := cmd.ProcessState.ExitCode(); code != status {
		t.Fatalf("%v, want %d\n%s%s", cmd.ProcessState, status, out, stderr.String())
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s\n%s", err, out, stderr.String())
	}
	return got, stderr.String()
}

// memoryCgroup makes a cgroup v1 below that of the test, for the test.
func memoryCgroup(t *testing.T) string {
	t.Helper()
	wardentest.NeedRoot(t, "only root can make a cgroup here")
	dir, err := rsstest.GroupDir(wardentest.OwnMemoryCgroup(t))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		wardentest.Until(t, "the cgroup is removed", func() bool { return os.Remove(dir) == nil })
	})
	return dir
}

// TestTrimDropLowersACharge when the last that maps the file was trimmed, not
// before.
func TestTrimDropLowersACharge(t *testing.T) {
	dir := memoryCgroup(t)
	path := wardentest.MapFile(t)
	f, err := os.Open(path)
	wardentest.NoError(t, err)
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a file of tmpfs cannot leave the page cache")
	}
	// It was written by us, and is to be read, and charged, inside.
	wardentest.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	usage := func() int {
		b := wardentest.ReadFile(t, filepath.Join(dir, "memory.usage_in_bytes"))
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		wardentest.NoError(t, err)
		return n
	}
	inside := []string{"/bin/sh", "-c", `echo $$ > ` + filepath.Join(dir, "cgroup.procs") + ` && exec "$@"`, "sh"}
	var both [2]*wardentest.Mapper
	for i := range both {
		both[i] = wardentest.StartMapper(t, path, "futex", nil, inside...)
	}
	before := usage()
	if before < wardentest.MappedBytes {
		t.Fatalf("the cgroup is charged for %d bytes, the file is not among them", before)
	}
	var after [2]int
	for i, m := range both {
		got, _ := trims(t, nil, 0, "--drop", "--pid", m.PID())
		after[i] = usage()
		if len(got.Processes) != 1 || got.Processes[0].Freed == nil || len(got.Dropped) != 1 || got.Dropped[0].Error != "" {
			t.Fatalf("%+v", got)
		}
		d := got.Dropped[0]
		if d.After == nil {
			t.Skip("the kernel has no cachestat")
		}
		t.Logf("process %d: gave back %d MiB; of the file were %d MiB in the page cache and are %d; the charge is %d MiB, was %d",
			i+1, *got.Processes[0].Freed>>20, *d.Before>>20, *d.After>>20, after[i]>>20, before>>20)
		if left := *d.Before - *d.After; i == 0 && left > 0 || i == 1 && left < wardentest.MappedBytes-1<<20 {
			t.Errorf("process %d: %d bytes left the page cache", i+1, left)
		}
	}
	if after[0] < before-8<<20 || after[1] > after[0]-wardentest.MappedBytes+8<<20 {
		t.Errorf("the charge was %d and then %v", before, after)
	}
	began := time.Now()
	for _, m := range both {
		m.Intact()
	}
	t.Logf("read again from disk within %v", time.Since(began))
}

// TestTrimKernels: on a kernel whose ptrace(2) has nothing newer than Linux 4.18, as
// PTRACE_GET_RSEQ_CONFIGURATION is, memory is given back as ever. Where it refuses, or
// fails half-way, trim says so, and the process goes on as if nothing had been.
func TestTrimKernels(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		want  event.Reason // "" for done
	}{
		"without what is new": {"[(101, 5, 0, -0x420d)]", ""},
		"without ptrace":      {"[(101, 38)]", event.ReasonError},
		"ptrace not allowed":  {"[(101, 1)]", event.ReasonUndumpable},
		"without SEIZE":       {"[(101, 5, 0, 0x4206)]", event.ReasonError},
		"INTERRUPT fails":     {"[(101, 5, 0, 0x4207)]", event.ReasonGivenUp},
		"GETREGS fails":       {"[(101, 5, 0, 12)]", event.ReasonGivenUp},
		"SETREGS fails":       {"[(101, 5, 0, 13)]", event.ReasonError},
		"PEEKTEXT fails":      {"[(101, 5, 0, 1)]", event.ReasonNoSleeper},
		"SYSCALL fails":       {"[(101, 5, 0, 24)]", event.ReasonError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := wardentest.StartMapper(t, wardentest.MapFile(t), "futex", nil)
			under := func(cmd *exec.Cmd) {
				cmd.Args = append(wardentest.Refusing(t, c.rules), cmd.Args...)
				cmd.Path = cmd.Args[0]
			}
			status := 0
			if c.want != "" {
				status = 1
			}
			got, said := trims(t, under, status, "--pid", m.PID())
			if len(got.Processes) != 1 {
				t.Fatalf("%+v", got)
			}
			p := got.Processes[0]
			if c.want == "" {
				if p.Refused != nil || p.Freed == nil || *p.Freed < wardentest.MappedBytes-1<<20 {
					t.Errorf("%+v", p)
				}
			} else if p.Refused == nil || p.Freed != nil && *p.Freed > 0 {
				t.Errorf("%+v, want it refused: %s\n%s", p, c.want, said)
			} else if *p.Refused != string(c.want) {
				t.Errorf("refused: %s %s, want %s", *p.Refused, p.Detail, c.want)
			}
			if by := m.Status("TracerPid"); by != "0" {
				t.Errorf("traced by %s", by)
			}
			m.Intact()
		})
	}
}
