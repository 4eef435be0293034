// Package attach attaches to processes that run already.
package attach

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
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

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, faulty the same with faults that can be asked for.
var binary, faulty string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Faults: &faulty}))
}

// TestAttach: warns, signals, and says at the end what it does not know.
func TestAttach(t *testing.T) {
	p := wardentest.StartPuppet(t, os.Geteuid())
	w := wardentest.StartAttach(t, nil, "--limit", "200M", "--at", "70%:signal=USR1", p.PID())
	p.Do("grow 150")
	p.Do("signals")
	p.Do("grow 20")
	w.Await(" 8")
	p.End()
	all := w.Ended(0)
	start, end := all[event.NameStart][0], all[event.NameExit][0]
	if start["attached"] != true || start["pid"] != float64(p.Cmd.Process.Pid) || len(start["cannot"].([]any)) < 3 {
		t.Errorf("start %v", start)
	}
	wardentest.Has(t, end, "by", "command", "code", nil, "signal", nil, "outcome", "unknown")
	wardentest.Says(t, w.Stderr.String(),
		"("+p.PID()+")\n", "limit 200 MiB, ",
		"attached: rsswarden did not start it: its exit status will not be known",
		"attached: workers of PyTorch loaders are neither trimmed nor recycled: no loader hook",
		"USR1 sent to process "+p.PID(),
		"? process "+p.PID()+" has ended, its parent knows how",
	)
}

// TestAttachStop: TERM, and the process's own way to end.
func TestAttachStop(t *testing.T) {
	p := wardentest.StartPuppet(t, os.Geteuid())
	w := wardentest.StartAttach(t, nil, "--limit", "200M", "--at", "60%:stop", p.PID())
	fmt.Fprintln(p.In, "grow 150")
	p.Cmd.Wait()
	if status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != unix.SIGTERM {
		t.Errorf("the process ended with %v", p.Cmd.ProcessState)
	}
	end := w.Ended(0)[event.NameExit][0]
	wardentest.Has(t, end, "by", "rsswarden", "code", nil, "signal", nil, "outcome", "stopped")
	if want := "✖ stopped by rule 60%:stop ("; !strings.Contains(w.Stderr.String(), want) {
		t.Errorf("said\n%s", w.Stderr.String())
	}
}

// TestAttachDies: whatever becomes of an attach, the process knows nothing.
func TestAttachDies(t *testing.T) {
	p := wardentest.StartPuppet(t, os.Geteuid())
	before := fingerprint(t, p.Cmd.Process.Pid)
	for name, c := range map[string]struct {
		signals []syscall.Signal
		detach  bool
	}{
		"KILL":           {[]syscall.Signal{unix.SIGKILL}, false},
		"TERM":           {[]syscall.Signal{unix.SIGTERM}, true},
		"INT":            {[]syscall.Signal{unix.SIGINT}, true},
		"HUP":            {[]syscall.Signal{unix.SIGHUP}, true},
		"STOP, KILL":     {[]syscall.Signal{unix.SIGSTOP, unix.SIGKILL}, false},
		"SEGV (a fault)": {[]syscall.Signal{unix.SIGSEGV}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := wardentest.StartAttach(t, nil, "--limit", "1000M", p.PID())
			last := c.signals[len(c.signals)-1]
			for _, s := range c.signals {
				w.Cmd.Process.Signal(s)
				p.Do("grow 1") // it runs, also while the attach is stopped
			}
			w.Cmd.Wait()
			status := w.Cmd.ProcessState.Sys().(syscall.WaitStatus)
			if (!status.Signaled() || status.Signal() != last) && last != unix.SIGSEGV {
				t.Errorf("attach ended with %v, want to die by %v", w.Cmd.ProcessState, last)
			}
			if after := fingerprint(t, p.Cmd.Process.Pid); after != before {
				t.Errorf("the process was %s and is %s", before, after)
			}
			if !c.detach {
				return
			}
			wardentest.Says(t, w.Stderr.String(), "process "+p.PID()+" runs on, unwatched; watched for ")
			exits := wardentest.Events(t, w.Events)[event.NameExit]
			if len(exits) != 1 {
				t.Fatalf("%d exit events", len(exits))
			}
			wardentest.Has(t, exits[0], "by", "detached", "code", nil)
		})
	}
	p.End()
}

// fingerprint is what a process that is not touched keeps.
func fingerprint(t *testing.T, pid int) string {
	t.Helper()
	b := wardentest.ReadFile(t, fmt.Sprintf("/proc/%d/status", pid))
	var kept []string
	for line := range strings.Lines(string(b)) {
		for _, name := range []string{"TracerPid:", "PPid:", "Threads:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:"} {
			if strings.HasPrefix(line, name) {
				kept = append(kept, strings.TrimSpace(line))
			}
		}
	}
	for _, file := range []string{"oom_score_adj", "limits", "cgroup", "coredump_filter"} {
		b := wardentest.ReadFile(t, fmt.Sprintf("/proc/%d/%s", pid, file))
		kept = append(kept, string(b))
	}
	return strings.Join(kept, ", ")
}

// TestAttachTracesNothing looks while it watches.
func TestAttachTracesNothing(t *testing.T) {
	p := wardentest.StartPuppet(t, os.Geteuid())
	w := wardentest.StartAttach(t, nil, "--interval", "5ms", p.PID())
	for range 50 {
		if f := fingerprint(t, p.Cmd.Process.Pid); !strings.Contains(f, "TracerPid:\t0") {
			t.Fatal(f)
		}
	}
	p.End()
	w.Ended(0)
}

// TestAttachZombie: the end is noticed although the process is not reaped,
// and one that has ended cannot be attached to.
func TestAttachZombie(t *testing.T) {
	p := wardentest.StartPuppet(t, os.Geteuid())
	w := wardentest.StartAttach(t, nil, "--interval", "1h", p.PID())
	fmt.Fprintln(p.In, "end") // and Wait is not called
	w.Ended(0)
	out, err := exec.Command(binary, "attach", p.PID()).CombinedOutput()
	if want := fmt.Sprintf("error: process %s (python3) has ended and only waits for its parent, %d\n", p.PID(), os.Getpid()); !strings.HasPrefix(string(out), want) || err == nil {
		t.Errorf("to a zombie: %v, %s", err, out)
	}
	p.Cmd.Wait()
	out, _ = exec.Command(binary, "attach", p.PID()).CombinedOutput()
	if want := "error: there is no process " + p.PID(); !strings.HasPrefix(string(out), want) {
		t.Errorf("to an ended process: %s", out)
	}
}

// TestAttachVanishes: a process may end at any moment of our start.
func TestAttachVanishes(t *testing.T) {
	statuses := map[int]int{}
	for i := range 40 {
		c := exec.Command("/bin/sleep", fmt.Sprintf("0.%03d", i))
		wardentest.NoError(t, c.Start())
		go c.Wait()
		err := exec.Command(binary, "attach", "--quiet", strconv.Itoa(c.Process.Pid)).Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code := 0
		if exit != nil {
			code = exit.ExitCode()
		}
		statuses[code]++
		if code != 0 && code != 2 {
			t.Errorf("status %d after %d ms", code, i)
		}
	}
	t.Logf("by status: %v", statuses)
}

// TestAttachHint: the README has the command of the hint.
func TestAttachHint(t *testing.T) {
	command := strings.ReplaceAll(strings.Join(wardentest.Beside(t), " "), "ID", "46") + " rsswarden attach --job 46"
	if want := "srun --overlap --mem=0 -N1 -n1 -w NODE --jobid=46 rsswarden attach --job 46"; command != want {
		t.Errorf("the hint is %s, want %s", command, want)
	}
	wardentest.Says(t, rsstest.Documents(t), "\n    "+command+"\n")
}

// TestAttachRefuses what is no process of a job.
func TestAttachRefuses(t *testing.T) {
	p := wardentest.StartPuppet(t, os.Geteuid())
	threads := wardentest.StartAttach(t, nil, p.PID()) // a Go program has threads
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", threads.Cmd.Process.Pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%v, %v", tasks, err)
	}
	thread := tasks[len(tasks)-1].Name()
	for what, want := range map[string]string{
		thread: fmt.Sprintf("error: %s is a thread of process %d\nhint: rsswarden attach %d\n", thread, threads.Cmd.Process.Pid, threads.Cmd.Process.Pid),
		"2":    "error: 2 (kthreadd) is a thread of the kernel\nhint: ",
	} {
		if b, err := os.ReadFile("/proc/2/comm"); what == "2" && (err != nil || string(b) != "kthreadd\n") {
			continue // a PID namespace of our own
		}
		out, err := exec.Command(binary, "attach", what).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, %s, want %s", what, err, out, want)
		}
	}
	p.End()
	threads.Ended(0)
}

// TestAttachCgroup: the limit of the process's own cgroup, not of ours.
func TestAttachCgroup(t *testing.T) {
	g := rsstest.NewGroup(t, 200*rss.MiB)
	p := wardentest.StartPuppet(t, os.Geteuid())
	g.Join(p.Cmd.Process.Pid)
	w := wardentest.StartAttach(t, nil, "--at", "70%:signal=USR1", p.PID())
	p.Do("grow 150")
	p.Do("signals")
	p.End()
	all := w.Ended(0)
	l := wardentest.Reading(t, all, event.LimitCgroup, filepath.Base(g.Dir))
	if l["limit_bytes"] != float64(200<<20) || l["enforcer"] != "kernel OOM killer" || l["scope"] != "cgroup" || l["used_bytes"].(float64) < 140<<20 {
		t.Errorf("%v", l)
	}
	b, err := json.Marshal(all)
	if err != nil || strings.Contains(string(b), `"vanished":1`) {
		t.Errorf("%v %s", err, b)
	}
}

// TestAttachFromAnotherJob: what Slurm told us is not what it told the process. Root does
// not believe what the process says that it was told.
func TestAttachFromAnotherJob(t *testing.T) {
	end := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	job := []string{"SLURM_JOB_ID=4", "SLURM_STEP_ID=0", "SLURM_JOB_END_TIME=" + end}
	user := os.Geteuid()
	if user == 0 {
		user = 65534
	}
	type attachCase struct {
		uid  int
		env  []string
		time bool
	}
	cases := map[string]attachCase{"in no job": {user, nil, false}, "in a job itself": {user, job, true}}
	if os.Geteuid() == 0 {
		cases["root"] = attachCase{0, job, false}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := wardentest.StartPuppet(t, c.uid, c.env...)
			as := wardentest.AttachAs(t, c.uid)
			w := wardentest.StartAttach(t, func(cmd *exec.Cmd) {
				as(cmd)
				cmd.Env = append(cmd.Env, "SLURM_JOB_ID=999", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1", "SLURM_MEM_PER_NODE=50", "SLURM_JOB_END_TIME="+end)
			}, p.PID())
			p.End()
			has := false
			for _, l := range w.Ended(0)[event.NameStart][0]["limits"].([]any) {
				l := l.(map[string]any)
				has = has || l["limit"] == "time"
				if l["limit"] == "slurm" {
					t.Errorf("%v", l)
				}
			}
			if has != c.time {
				t.Errorf("a job's end: %v, want %v", has, c.time)
			}
		})
	}
}

// TestAttachUnderRun: two must not speak with the same loaders.
func TestAttachUnderRun(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(binary, "run", "--quiet", "--", python, "-c", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()")
	cmd.Env = wardentest.Env("TMPDIR="+dir, "XDG_CACHE_HOME="+dir)
	run := wardentest.StartTalk(t, cmd)
	w := wardentest.StartAttach(t, nil, "--limit", "7M", run.Hear())
	w.Await("trim skipped: rsswarden (process " + run.PID() + ") started it and does that")
	files, err := filepath.Glob(dir + "/rsswarden-*/*/ctl.*")
	if err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	run.EndsWith(0)
	w.Ended(0)
}

// TestAttachToOthers: what may not be read or signalled is named.
func TestAttachToOthers(t *testing.T) {
	wardentest.NeedRoot(t, "only root can be two users")
	p := wardentest.StartPuppet(t, os.Geteuid())
	w := wardentest.StartAttach(t, wardentest.AttachAs(t, 65534), "--limit", "200M", "--at", "50%:signal=USR1", p.PID())
	p.Do("grow 120")
	w.Await("signal=USR1 failed")
	p.Do("grow 50")
	w.Await(" 8")
	p.End()
	w.Ended(0)
	for _, want := range []string{
		"belongs to root, its environment cannot be read",
		"belongs to root, its PSS cannot be read",
		"belongs to root: signal, stop and worker signals will be refused",
	} {
		wardentest.Says(t, w.Stderr.String(), "attached: process "+p.PID()+" "+want)
	}
}

// TestAttachKeepsNothingWhereOthersSay: no process chooses where root keeps files, nor
// what the scontrol that root starts loads. A user's own processes do so for the user.
func TestAttachKeepsNothingWhereOthersSay(t *testing.T) {
	wardentest.NeedRoot(t, "only root can be two users")
	for _, c := range []struct {
		watcher, watched int
		mine             bool
	}{{0, 0, false}, {0, 65534, false}, {65534, 65534, true}} {
		t.Run(fmt.Sprintf("user %d at user %d", c.watcher, c.watched), func(t *testing.T) {
			submit, path, records := wardentest.OpenDir(t), wardentest.OpenDir(t), wardentest.OpenDir(t)
			loaded := filepath.Join(path, "loaded")
			scontrol := "#!/bin/sh\necho \"conf=$SLURM_CONF\" >> " + loaded + "\n"
			wardentest.NoError(t, os.WriteFile(filepath.Join(path, "scontrol"), []byte(scontrol), 0o755))
			p := wardentest.StartPuppet(t, c.watched, "SLURM_JOB_ID=4711", "SLURM_SUBMIT_DIR="+submit, "SLURM_CONF="+filepath.Join(submit, "none"))
			as := wardentest.AttachAs(t, c.watcher)
			w := wardentest.StartAttach(t, func(cmd *exec.Cmd) {
				as(cmd)
				cmd.Env = append(cmd.Env, "PATH="+path+":"+os.Getenv("PATH"))
			}, "--record", records, "--limit", "1M", p.PID())
			w.Await(" % of ")
			wardentest.Until(t, "kept a record, and the user's asked scontrol", func() bool {
				_, err := os.Stat(filepath.Join(submit, ".rsswarden"))
				_, asked := os.Stat(loaded)
				kept, _ := filepath.Glob(records + "/*/data.mdb")
				return len(kept) == 1 && (asked == nil && err == nil) == c.mine
			})
			p.End()
			w.Ended(0)
			if files, _ := os.ReadDir(submit); (len(files) > 0) != c.mine {
				t.Errorf("in the directory that it names: %v", files)
			}
			if b, _ := os.ReadFile(loaded); strings.Contains(string(b), submit) != c.mine {
				t.Errorf("scontrol was started with %s", b)
			}
		})
	}
}

// poolJob keeps two workers that are hard to satisfy: each that ends is
// replaced, and grows. It ends with the fourth.
//
//go:embed testdata/pool.py
var poolJob string

// TestAttachPool: workers that their parent respawns are recycled by a signal,
// which needs no hook.
func TestAttachPool(t *testing.T) {
	cmd := exec.Command(python, "-c", poolJob, poolJob)
	cmd.Env = wardentest.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out wardentest.Text
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	// What they had when they were fresh is not known then.
	out.Await(t, "grown\n", 2)
	w := wardentest.StartAttach(t, nil, "--limit", "120M", "--interval", "20ms", "--at", "none", "--at", "80%:recycle",
		"--worker-signal", "TERM", "--worker-match", "pool-worker$", strconv.Itoa(cmd.Process.Pid))
	done := time.AfterFunc(rsstest.Patience, func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	cmd.Wait()
	done.Stop()
	wardentest.Says(t, out.String(), "four replaced")
	if n := wardentest.Worked(w.Ended(0)[event.NameOutcome]); n < 3 {
		t.Errorf("%d outcomes\n%s", n, w.Stderr.String())
	}
}

// ranksJob starts ranks as torchrun and as Lightning do: the one that starts them
// catches TERM itself, and of Lightning's it is rank 0. argv: LOCAL_RANK of each.
//
//go:embed testdata/ranks.py
var ranksJob string

// TestAttachRanks: behind what starts ranks every rank is asked, and who only
// starts them never.
func TestAttachRanks(t *testing.T) {
	for name, c := range map[string]struct{ locals, want []string }{
		"torchrun":  {[]string{"0", "1"}, []string{"asked 0", "asked 1", "over"}},
		"Lightning": {[]string{"1", "2"}, []string{"asked 1", "asked 2", "asked main"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(python, append([]string{"-c", ranksJob, ranksJob}, c.locals...)...)
			cmd.Env = wardentest.Env()
			var out wardentest.Text
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Skip(err)
			}
			done := time.AfterFunc(rsstest.Patience, func() { cmd.Process.Kill() })
			defer done.Stop()
			out.Await(t, "ready", 2)
			// It stands above the rung at the first look.
			w := wardentest.StartAttach(t, nil, "--limit", "150M", "--interval", "20ms", "--at", "none", "--at", "60%:signal=TERM", strconv.Itoa(cmd.Process.Pid))
			cmd.Wait()
			got := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), "ready\n", "")), "\n")
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q\n%s", got, c.want, w.Stderr.String())
			}
			w.Ended(0)
		})
	}
}

// TestAttachPanics: the watched process notices nothing, and attach prints a line.
func TestAttachPanics(t *testing.T) {
	for _, fault := range []string{"panic", "bus"} {
		t.Run(fault, func(t *testing.T) {
			p := wardentest.StartPuppet(t, os.Geteuid())
			before := fingerprint(t, p.Cmd.Process.Pid)
			cmd := exec.Command(faulty, "attach", "--interval", "20ms", "--limit", "1000M", p.PID())
			cmd.Env = wardentest.Env("RSSWARDEN_FAULT="+fault, "TMPDIR="+t.TempDir())
			var said bytes.Buffer
			cmd.Stderr = &said
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() <= 0 {
				t.Errorf("%v\n%s", err, &said)
			}
			if fault == "panic" && !strings.Contains(said.String(), "runs on: internal error: asked for by RSSWARDEN_FAULT") {
				t.Errorf("said\n%s", &said)
			}
			p.Do("grow 1")
			if after := fingerprint(t, p.Cmd.Process.Pid); after != before {
				t.Errorf("the process was %s and is %s", before, after)
			}
			p.End()
		})
	}
}
