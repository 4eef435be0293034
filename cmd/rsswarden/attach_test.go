package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestAttach: warns, signals, and says at the end what it does not know.
func TestAttach(t *testing.T) {
	p := startTold(t)
	w := startAttach(t, nil, "--limit", "200M", "--at", "70%:signal=USR1", p.pid())
	p.do("grow 150")
	p.do("signals")
	p.do("grow 20")
	w.await("memory 8")
	p.end()
	all := w.ended(0)
	start, end := all[event.NameStart][0], all[event.NameExit][0]
	if start["attached"] != true || start["pid"] != float64(p.cmd.Process.Pid) || len(start["cannot"].([]any)) < 3 {
		t.Errorf("start %v", start)
	}
	if end["by"] != "command" || end["code"] != nil || end["signal"] != nil || end["verdict"] != "unwatched" {
		t.Errorf("exit %v", end)
	}
	for _, want := range []string{
		"(process " + p.pid() + "): 200 MiB may be used",
		"from outside: rsswarden did not start it: its exit status will not be known",
		"from outside: workers of PyTorch loaders are neither trimmed nor recycled: no loader hook",
		"USR1 sent to process " + p.pid(),
		"process " + p.pid() + " has ended, its parent knows how; watched for ",
	} {
		if !strings.Contains(w.err.String(), want) {
			t.Errorf("not said: %q in\n%s", want, w.err.String())
		}
	}
}

// TestAttachStop: TERM, and the process's own way to end.
func TestAttachStop(t *testing.T) {
	p := startTold(t)
	w := startAttach(t, nil, "--limit", "200M", "--at", "60%:stop", p.pid())
	fmt.Fprintln(p.in, "grow 150")
	p.cmd.Wait()
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != unix.SIGTERM {
		t.Errorf("the process ended with %v", p.cmd.ProcessState)
	}
	end := w.ended(0)[event.NameExit][0]
	if end["by"] != "rsswarden" || end["code"] != nil || end["signal"] != nil || end["verdict"] != "stopped" {
		t.Errorf("exit %v", end)
	}
	if want := "process " + p.pid() + " was stopped by rsswarden; watched for "; !strings.Contains(w.err.String(), want) {
		t.Errorf("said\n%s", w.err.String())
	}
}

// TestAttachDies: whatever becomes of an attach, the process knows nothing.
func TestAttachDies(t *testing.T) {
	p := startTold(t)
	before := fingerprint(t, p.cmd.Process.Pid)
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
			w := startAttach(t, nil, "--limit", "1000M", p.pid())
			last := c.signals[len(c.signals)-1]
			for _, s := range c.signals {
				w.cmd.Process.Signal(s)
				p.do("grow 1") // it runs, also while the attach is stopped
			}
			w.cmd.Wait()
			status := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
			if (!status.Signaled() || status.Signal() != last) && last != unix.SIGSEGV {
				t.Errorf("attach ended with %v, want to die by %v", w.cmd.ProcessState, last)
			}
			if after := fingerprint(t, p.cmd.Process.Pid); after != before {
				t.Errorf("the process was %s and is %s", before, after)
			}
			if !c.detach {
				return
			}
			if !strings.Contains(w.err.String(), "process "+p.pid()+" runs on, unwatched; watched for ") {
				t.Errorf("said\n%s", w.err.String())
			}
			exits := events(t, w.events)[event.NameExit]
			if len(exits) != 1 {
				t.Fatalf("%d exit events", len(exits))
			}
			if end := exits[0]; end["by"] != "detached" || end["code"] != nil {
				t.Errorf("exit %v", end)
			}
		})
	}
	p.end()
}

// fingerprint is what a process that is not touched keeps.
func fingerprint(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(b)) {
		for _, name := range []string{"TracerPid:", "PPid:", "Threads:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:"} {
			if strings.HasPrefix(line, name) {
				kept = append(kept, strings.TrimSpace(line))
			}
		}
	}
	for _, file := range []string{"oom_score_adj", "limits", "cgroup", "coredump_filter"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, string(b))
	}
	return strings.Join(kept, ", ")
}

// TestAttachTracesNobody looks while it watches.
func TestAttachTracesNobody(t *testing.T) {
	p := startTold(t)
	w := startAttach(t, nil, "--interval", "5ms", p.pid())
	for range 50 {
		if f := fingerprint(t, p.cmd.Process.Pid); !strings.Contains(f, "TracerPid:\t0") {
			t.Fatal(f)
		}
	}
	p.end()
	w.ended(0)
}

// TestAttachZombie: the end is noticed although nobody waits for the process,
// and one that has ended cannot be attached to.
func TestAttachZombie(t *testing.T) {
	p := startTold(t)
	w := startAttach(t, nil, "--interval", "1h", p.pid())
	fmt.Fprintln(p.in, "end") // and Wait is not called
	w.ended(0)
	out, err := exec.Command(binary, "attach", p.pid()).CombinedOutput()
	if want := fmt.Sprintf("error: process %s (python3) has ended and only waits for its parent, %d\n", p.pid(), os.Getpid()); !strings.HasPrefix(string(out), want) || err == nil {
		t.Errorf("to a zombie: %v, %s", err, out)
	}
	p.cmd.Wait()
	out, _ = exec.Command(binary, "attach", p.pid()).CombinedOutput()
	if want := "error: there is no process " + p.pid(); !strings.HasPrefix(string(out), want) {
		t.Errorf("to nobody: %s", out)
	}
}

// TestAttachVanishes: a process may end at any moment of our start.
func TestAttachVanishes(t *testing.T) {
	statuses := map[int]int{}
	for i := range 40 {
		c := exec.Command("/bin/sleep", fmt.Sprintf("0.%03d", i))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
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
	command := strings.ReplaceAll(strings.Join(beside(t), " "), "ID", "46") + " rsswarden attach --job 46"
	if want := "srun --overlap --mem=0 -N1 -n1 -w NODE --jobid=46 rsswarden attach --job 46"; command != want {
		t.Errorf("the hint is %s, want %s", command, want)
	}
	if !strings.Contains(rsstest.Documents(t), "\n    "+command+"\n") {
		t.Errorf("the README does not say %s", command)
	}
}
