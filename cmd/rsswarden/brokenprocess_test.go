package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func strike(sig syscall.Signal) func(*brokenRun) {
	return func(r *brokenRun) {
		pid := r.watcher(0)
		if err := syscall.Kill(pid, sig); err != nil {
			r.t.Fatal(err)
		}
		if sig != syscall.SIGSTOP {
			r.watcher(pid)
		}
	}
}

// asksFor has the watcher fail while there is a file.
func asksFor(fault string) func(*brokenRun) {
	return func(r *brokenRun) {
		r.cmd.Env = append(r.cmd.Env, "RSSWARDEN_FAULT="+fault+"-once:"+filepath.Join(r.bin, "fault"))
	}
}

func faultOnce(r *brokenRun) { faultNext(r)() }

// faultHolder has it turn once more.
func faultHolder(r *brokenRun) {
	if err := os.WriteFile(filepath.Join(r.bin, "fault"), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGWINCH); err != nil { // nothing to the command
		r.t.Fatal(err)
	}
}

func outOfMemory(r *brokenRun) {
	g := rsstest.NewGroup(r.t, 64*rss.KiB)
	pid := r.watcher(0)
	g.Join(pid)
	r.watcher(pid)
}

func killOften(r *brokenRun) {
	pid := 0
	for range 4 {
		pid = r.watcher(pid)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			r.t.Fatal(err)
		}
	}
	soon(r.t, "no watcher", func() bool { return len(watchers(r.cmd.Process.Pid)) == 0 })
}

func limitWatcher(resource int, to uint64) func(*brokenRun) {
	return func(r *brokenRun) {
		if err := unix.Prlimit(r.watcher(0), resource, &unix.Rlimit{Cur: to, Max: to}, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

func alertHangs(r *brokenRun) {
	path := filepath.Join(r.bin, "rsswardend")
	os.Remove(path)
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 20\n"), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// scontrolHangs is a step of which neither limits nor end are known but by asking.
func scontrolHangs(r *brokenRun) {
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%[1]s/asked.new; mv %[1]s/asked.new %[1]s/asked\nexec sleep 600\n", r.bin)
	if err := os.WriteFile(filepath.Join(r.bin, "scontrol"), []byte(script), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.cmd.Env = append(r.cmd.Env, "PATH="+r.bin+":"+os.Getenv("PATH"), "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1",
		"SLURM_MEM_PER_NODE=20000", "SLURM_CONF="+r.bin+"/none")
}

// scontrolAsked waits for that. When the run has ended it is not there any more.
func scontrolAsked(r *brokenRun) {
	var pid int
	soon(r.t, "scontrol asked", func() bool {
		b, err := os.ReadFile(filepath.Join(r.bin, "asked"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && pid > 0
	})
	r.t.Cleanup(func() {
		soon(r.t, "scontrol ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	})
}

// startDaemon starts the node's daemon beside the run.
func startDaemon(r *brokenRun) {
	at := freePort(r.t)
	cmd := exec.Command(filepath.Join(r.bin, "rsswardend"), "--listen", at)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	soon(r.t, "the daemon", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	r.daemon = cmd
}

func killDaemon(r *brokenRun) {
	if err := r.daemon.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = r.daemon.Wait()
}

// startBy has other programs start it.
func (r *brokenRun) startBy(program ...string) {
	r.cmd.Args = append(program, append([]string{r.cmd.Path}, r.cmd.Args[1:]...)...)
	r.cmd.Path = program[0]
}

// inPids starts it in a pids cgroup of its own.
func inPids(r *brokenRun) {
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("rsswarden-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		r.t.Cleanup(func() {
			for end := time.Now().Add(5 * time.Second); os.Remove(dir) != nil && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
		})
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			r.pids = dir
			r.startBy("/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir)
			return
		}
	}
	r.t.Skip("needs a pids cgroup")
}

func noTasks(r *brokenRun) {
	if err := os.WriteFile(filepath.Join(r.pids, "pids.max"), []byte("1"), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func execHangs(r *brokenRun) { r.second("exec=sleep 60") }

func execFails(r *brokenRun) { r.second("exec=no-such-program") }

// second has the second rung do something else.
func (r *brokenRun) second(action string) {
	for i, arg := range r.cmd.Args {
		if arg == "user 92%:warn" {
			r.cmd.Args[i] = "user 92%:" + action
		}
	}
}

func ulimitV(r *brokenRun) { r.startBy("/bin/sh", "-c", `ulimit -v 2000000 && exec "$@"`, "sh") }

// interrupt sends each thread of the watcher a signal that its runtime ignores, a
// thousand times a second: what can be interrupted is.
func interrupt(r *brokenRun) { interrupts(r, r.watcher(0), unix.SIGURG) }

// interruptBoth sends the holder's a signal too that it passes on to the command, as it
// does to no other.
func interruptBoth(r *brokenRun) {
	interrupts(r, r.watcher(0), unix.SIGURG)
	interrupts(r, r.cmd.Process.Pid, unix.SIGWINCH)
}

func interrupts(r *brokenRun, pid int, sig syscall.Signal) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // none once it has ended
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil {
					_ = unix.Tgkill(pid, tid, sig)
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	r.t.Cleanup(func() { close(stop); <-done })
}

// for10s is how long it goes on.
func for10s(*brokenRun) { time.Sleep(10 * time.Second) }
