package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// rankJob says which signals it gets, does as its input says, and ends with its rank.
const rankJob = `import os, signal, sys
for name in ("USR1", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), lambda n, f, name=name: os.write(1, (name + "\n").encode()))
print("ready", flush=True)
for line in sys.stdin:
    if line == "grow\n":
        held = b"x" * (200 << 20)
        print("grown", flush=True)
    if line == "sync\n":
        print("synced", flush=True)
sys.exit(int(os.environ["SLURM_PROCID"]) + 1)`

// rank is one run of several in one job step on this node.
type rank struct {
	*wardentest.Talk
	task   int
	events string
}

// startRanks starts n ranks, each in a process group of its own, and waits until all but one
// are at rest.
func startRanks(t *testing.T, n int, options ...string) (dir string, all []*rank) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		r := &rank{task: i, events: filepath.Join(dir, fmt.Sprint("events.", i))}
		args := append([]string{"run", "--quiet", "--record", "none", "--events", r.events}, options...)
		cmd := exec.Command(binary, append(args, "--", python, "-c", rankJob)...)
		cmd.Env = wardentest.Env("SLURM_JOB_ID=46", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1", "SLURM_NTASKS="+strconv.Itoa(n),
			"SLURM_PROCID="+strconv.Itoa(i), "TMPDIR="+dir, "RSSWARDEN_RUNTIME="+dir, "SLURM_CONF=/no/such/slurm.conf")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		r.Talk = wardentest.StartTalk(t, cmd)
		r.hears("ready")
		all = append(all, r)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, r := range all {
				t.Logf("rank %d\n%s\n%s", r.task, &r.Stderr, wardentest.Read(r.events))
			}
		}
	})
	restful(t, all)
	return dir, all
}

func (r *rank) hears(want string) {
	if got := r.Hear(); got != want {
		panic(fmt.Sprintf("rank %d says %q, want %q", r.task, got, want))
	}
}

func (r *rank) asks(what string) { fmt.Fprintln(r.In, what) }

// watcher is the PID of the one watcher, 0 where there is none.
func (r *rank) watcher() int {
	if w := wardentest.Watchers(r.Cmd.Process.Pid); len(w) == 1 {
		return w[0]
	}
	return 0
}

// rests says that the watcher is no Go program now.
func (r *rank) rests() bool {
	return strings.Contains(wardentest.Read(fmt.Sprintf("/proc/%d/status", r.watcher())), "\nThreads:\t1\n")
}

// restful waits until all but the leader are at rest, and returns that one.
func restful(t *testing.T, all []*rank) (leader *rank) {
	t.Helper()
	wardentest.Until(t, "all at rest but the leader", func() bool {
		awake := slices.DeleteFunc(slices.Clone(all), (*rank).rests)
		if len(awake) != 1 || awake[0].watcher() == 0 {
			return false
		}
		leader = awake[0]
		return true
	})
	return leader
}

// told are its events of a kind so far.
func (r *rank) told(name event.Name) wardentest.Log {
	text := wardentest.Read(r.events)
	return wardentest.ParseLog([]byte(text[:strings.LastIndexByte(text, '\n')+1])).Of(name)
}

// leads is how often a rank has told that it leads.
func (r *rank) leads() (times int) {
	for _, e := range r.told(event.NameRank) {
		if e["what"] == string(event.RankLeads) {
			times++
		}
	}
	return times
}

// intact wants the events of a rank numbered without a gap, with one start and one end.
func (r *rank) intact(t *testing.T) {
	t.Helper()
	log := wardentest.ReadLog(t, r.events)
	for i, e := range log {
		if e["seq"] != float64(i+1) {
			t.Errorf("rank %d: event %d has the number %v", r.task, i+1, e["seq"])
			return
		}
	}
	if len(log.Of(event.NameStart)) != 1 || len(log.Of(event.NameExit)) != 1 {
		t.Errorf("rank %d: not one start and one end:\n%v", r.task, log)
	}
}

// TestFollowersRest: a rank that follows costs next to nothing, and is what it was in
// everything else.
func TestFollowersRest(t *testing.T) {
	t.Parallel()
	_, all := startRanks(t, 4, "--limit", "4G")
	leader := restful(t, all)
	for _, r := range all {
		if r == leader {
			continue
		}
		pid := r.watcher()
		rss, _ := strconv.Atoi(strings.Fields(wardentest.StatusLine(t, pid, "VmRSS"))[0])
		if threads := wardentest.StatusLine(t, pid, "Threads"); threads != "1" || rss > 3072 { // 300 to 1300
			t.Errorf("a watcher at rest has %s threads and %d KiB", threads, rss)
		}
	}
	resting := slices.DeleteFunc(slices.Clone(all), func(r *rank) bool { return r == leader })
	first, second := resting[0], resting[1]
	// A holder that is stopped, and its command is not, is continued.
	stopped := func() bool {
		return strings.HasPrefix(wardentest.StatusLine(t, second.Cmd.Process.Pid, "State"), "T")
	}
	wardentest.NoError(t, second.Cmd.Process.Signal(syscall.SIGSTOP))
	wardentest.Until(t, "it stopped", stopped)
	wardentest.NoError(t, syscall.Kill(-first.Cmd.Process.Pid, syscall.SIGUSR1))
	first.hears("USR1")
	// The holder must have read that one: two that wait are one.
	wardentest.Until(t, "the signal told", func() bool { return len(first.told(event.NameSignal)) == 1 })
	wardentest.NoError(t, first.Cmd.Process.Signal(syscall.SIGUSR1))
	first.hears("USR1")
	first.asks("sync")
	first.hears("synced")
	wardentest.Until(t, "it continued", func() bool { return !stopped() })
	for _, r := range all {
		r.EndsWith(r.task + 1)
		r.intact(t)
	}
}

// TestRestedCarryOut: the leader stops all, and those at rest with it.
func TestRestedCarryOut(t *testing.T) {
	t.Parallel()
	_, all := startRanks(t, 3, "--limit", "400M", "--at", "40%:stop", "--grace", "1s", "--interval", "100ms")
	restful(t, all)
	all[2].asks("grow")
	for _, r := range all {
		if r.Cmd.Wait(); wardentest.ExitStatus(r.Cmd.ProcessState) == r.task+1 {
			t.Errorf("rank %d was not stopped\n%s", r.task, &r.Stderr)
		}
	}
}

// TestLeaderFails: whatever becomes of the leader, the others' commands notice nothing, and one
// watches again.
func TestLeaderFails(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, dir string, leader *rank){
		"its watcher is killed": func(t *testing.T, _ string, leader *rank) {
			wardentest.NoError(t, syscall.Kill(leader.watcher(), syscall.SIGKILL))
		},
		"it is killed": func(t *testing.T, _ string, leader *rank) {
			wardentest.NoError(t, leader.Cmd.Process.Kill())
			leader.In.Close()
		},
		"its watcher is stopped": func(t *testing.T, _ string, leader *rank) {
			wardentest.NoError(t, syscall.Kill(leader.watcher(), syscall.SIGSTOP))
		},
		"its watcher runs out of memory": func(t *testing.T, dir string, leader *rank) {
			wardentest.NeedRoot(t, "a memory cgroup takes root")
			pid := leader.watcher()
			rsstest.NewGroup(t, 64*rss.KiB).Join(pid)
			// Each connection takes memory of its own, of the kernel's and of the watcher's.
			wardentest.Until(t, "the OOM killer ends it", func() bool {
				cmd := exec.Command(binary, "status", "--pid", leader.PID())
				cmd.Env = wardentest.Env("RSSWARDEN_RUNTIME=" + dir)
				_ = cmd.Run() // it may be gone
				return leader.watcher() != pid
			})
		},
		"it ends": func(_ *testing.T, _ string, leader *rank) { leader.EndsWith(leader.task + 1) },
		"its directory is removed": func(t *testing.T, dir string, leader *rank) {
			lead, _ := filepath.Glob(filepath.Join(dir, "rsswarden-*", "lead.*"))
			if len(lead) != 1 {
				t.Fatalf("%q", lead)
			}
			// A rank may make a file in it meanwhile.
			wardentest.Until(t, "it is removed", func() bool { return os.RemoveAll(lead[0]) == nil })
			leader.EndsWith(leader.task + 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range wardentest.Few(25, 1) {
				dir, all := startRanks(t, wardentest.Few(16, 3), "--limit", "4G")
				leader := restful(t, all)
				before := leader.leads()
				harm(t, dir, leader)
				wardentest.Until(t, "another leads", func() bool {
					return slices.ContainsFunc(all, func(r *rank) bool {
						return r != leader && r.leads() > 0 || r == leader && r.leads() > before
					})
				})
				for _, r := range all {
					if r != leader || strings.HasPrefix(name, "its watcher") {
						r.EndsWith(r.task + 1)
					}
				}
			}
		})
	}
}

// restFaults are the system calls of a watcher at rest (supervisor/hold/rest.c), and those with
// which it wakes, each with what it may fail with, once and for ever.
func restFaults() (all []string) {
	for _, call := range []string{"poll", "clock_gettime", "recvfrom", "sendto", "flock", "rt_sigpending", "rt_sigtimedwait", "openat", "read", "close",
		"pidfd_send_signal", "prlimit64", "mmap", "clone3", "prctl"} {
		for _, errno := range []string{"EAGAIN", "EBADF", "EINTR", "EINVAL", "EIO", "ENOMEM", "ENOSYS", "EPERM"} {
			for _, when := range []string{"1", "1+"} {
				if call+errno+when != "pollEINTR1+" { // no kernel interrupts each
					all = append(all, call+":error="+errno+":when="+when)
				}
			}
		}
	}
	return all
}

// TestFaultsAtRest: whatever system call of a watcher at rest fails, its command gets its signals
// and ends as it does, and one watches all again when the leader ends.
func TestFaultsAtRest(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip(err)
	}
	faults := restFaults()
	if wardentest.Few(1, 0) == 0 {
		faults = []string{faults[1], faults[len(faults)/2], faults[len(faults)-1]}
	}
	for some := range slices.Chunk(faults, 15) {
		_, all := startRanks(t, len(some)+1, "--limit", "4G")
		leader := restful(t, all)
		resting := slices.DeleteFunc(slices.Clone(all), func(r *rank) bool { return r == leader })
		for i, r := range resting {
			pid := r.watcher()
			call, _, _ := strings.Cut(some[i], ":")
			tracer := exec.Command(strace, "-b", "execve", "-qq", "-o", "/dev/null", "-e", "trace="+call, "-e", "inject="+some[i], "-p", strconv.Itoa(pid))
			wardentest.NoError(t, tracer.Start())
			t.Cleanup(func() { _ = tracer.Process.Kill(); _ = tracer.Wait() })
			wardentest.Until(t, "it is traced", func() bool { return wardentest.StatusLine(t, pid, "TracerPid") != "0" })
		}
		for _, r := range all {
			wardentest.NoError(t, syscall.Kill(-r.Cmd.Process.Pid, syscall.SIGUSR1))
		}
		for _, r := range all {
			r.hears("USR1")
		}
		wardentest.NoError(t, syscall.Kill(leader.watcher(), syscall.SIGKILL))
		wardentest.Until(t, "another leads", func() bool {
			return slices.ContainsFunc(resting, func(r *rank) bool { return r.leads() > 0 }) || leader.leads() > 1
		})
		for _, r := range all {
			r.EndsWith(r.task + 1)
		}
		t.Logf("%d faults at rest, from %s", len(some), some[0])
	}
}

// TestSuspended: a job that is stopped as a whole and continued, the leader last, keeps its leader.
func TestSuspended(t *testing.T) {
	t.Parallel()
	_, all := startRanks(t, 4, "--limit", "4G")
	leader := restful(t, all)
	resting := slices.DeleteFunc(slices.Clone(all), func(r *rank) bool { return r == leader })
	before := leader.watcher()
	looks := func(r *rank) int {
		n, _ := strconv.Atoi(wardentest.StatusLine(t, r.watcher(), "voluntary_ctxt_switches"))
		return n
	}
	for _, signal := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGSTOP} { // as slurmstepd does, but at once
		for _, r := range all {
			wardentest.NoError(t, syscall.Kill(-r.Cmd.Process.Pid, signal))
		}
	}
	time.Sleep(5 * time.Second) // longer than the time between two looks at the leader, and its grace
	for _, r := range append(slices.Clone(resting), leader) {
		wardentest.NoError(t, syscall.Kill(-r.Cmd.Process.Pid, syscall.SIGCONT))
	}
	wardentest.Until(t, "all have told of SIGCONT, and are at rest again", func() bool {
		return !slices.ContainsFunc(resting, func(r *rank) bool {
			told := r.told(event.NameSignal)
			return !slices.ContainsFunc(told, func(e wardentest.Event) bool { return e["signal"] == "SIGCONT" }) || !r.rests()
		})
	})
	for _, r := range resting {
		then := looks(r)
		wardentest.Until(t, "it looked at the leader", func() bool { return looks(r) >= then+2 })
	}
	if pid := leader.watcher(); pid != before || leader.leads() != 1 {
		t.Errorf("the leader's watcher was %d, and is %d", before, pid)
	}
	for _, r := range all {
		r.EndsWith(r.task + 1)
		r.intact(t)
	}
}
