package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ailment is a way in which the watcher can fail. Whatever it is, the command
// must end as it does bare.
type ailment struct {
	name string
	sig  syscall.Signal // sent to each watcher that appears; 0 for none
	env  string
}

var ailments = []ailment{
	{name: "healthy"},
	{name: "SIGKILL", sig: syscall.SIGKILL},
	{name: "SIGSTOP", sig: syscall.SIGSTOP},
	{name: "SIGBUS", env: "RSSWARDEN_FAULT=bus"}, // one from kill(2) is no fault, and is survived
	{name: "panic", env: "RSSWARDEN_FAULT=panic"},
}

func isWatcher(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.HasPrefix(line, []byte("rss-watcher\x00"))
}

// strike sends the ailment's signal to every watcher of the holder until done
// is closed, and returns on a channel how many it struck.
func (a ailment) strike(holder int, done <-chan struct{}) <-chan int {
	struck := make(chan int, 1)
	go func() {
		seen := map[int]bool{}
		for a.sig != 0 {
			for _, pid := range watchers(holder) {
				if !seen[pid] && syscall.Kill(pid, a.sig) == nil {
					seen[pid] = true
				}
			}
			select {
			case <-done:
				struck <- len(seen)
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
		<-done
		struck <- 0
	}()
	return struck
}

// watchers returns the children of the holder that are watchers.
func watchers(holder int) []int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", holder))
	if err != nil {
		return nil
	}
	var children []byte
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread that has ended has none
		children = append(children, b...)
	}
	var pids []int
	for _, field := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		if isWatcher(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// run runs the program with the ailment and returns how the command ended and
// what it wrote.
func (a ailment) run(t *testing.T, args ...string) (ended string, stdout []byte, struck int) {
	t.Helper()
	cmd := exec.Command(faulty, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
	if a.env != "" {
		cmd.Env = append(cmd.Env, a.env)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	count := a.strike(cmd.Process.Pid, done)
	_ = cmd.Wait() // the state below tells
	close(done)
	t.Logf("stderr:\n%s", errs.String())
	return cmd.ProcessState.String(), out.Bytes(), <-count
}

// TestCommandSurvivesItsWatcher: the watcher killed, stopped or crashing
// changes nothing for the command.
func TestCommandSurvivesItsWatcher(t *testing.T) {
	for _, a := range ailments {
		t.Run(a.name, func(t *testing.T) {
			for script, want := range map[string]string{
				"sleep 1; echo done":                  "exit status 0",
				"sleep 1; echo done; exit 41":         "exit status 41",
				"sleep 1; echo done; kill -TERM $$":   "signal: terminated",
				"cat /proc/sys/kernel/ostype; exit 7": "exit status 7",
			} {
				ended, out, struck := a.run(t, "run", "--interval", "20ms", "--", "sh", "-c", script)
				if ended != want || len(out) == 0 {
					t.Errorf("%q ended with %q having written %q, want %q", script, ended, out, want)
				}
				if a.sig != 0 && struck == 0 && strings.HasPrefix(script, "sleep") {
					t.Errorf("%q: no watcher was struck: the test proves nothing", script)
				}
			}
		})
	}
}

// TestTrainingSurvivesItsWatcher runs a small training and wants the checksum
// of the bare run.
func TestTrainingSurvivesItsWatcher(t *testing.T) {
	needTorch(t)
	data := filepath.Join(t.TempDir(), "small.lmdb")
	train := []string{python, "../../examples/train/train.py", "--data", data, "--records", "2000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "3"}
	bare, err := exec.Command(train[0], train[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := checksum(string(bare))
	for _, a := range ailments {
		t.Run(a.name, func(t *testing.T) {
			// The limit is far too small, so that everything is tried.
			ended, out, _ := a.run(t, append([]string{"run", "--limit", "300M", "--accounting", "rss", "--interval", "20ms", "--"}, train...)...)
			if ended != "exit status 0" || checksum(string(out)) != want {
				t.Errorf("ended with %q, checksum %s, want exit status 0 and %s", ended, checksum(string(out)), want)
			}
		})
	}
}
