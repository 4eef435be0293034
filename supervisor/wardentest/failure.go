package wardentest

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Ailment is a way in which the watcher can fail. Whatever it is, the command
// must end as it does bare.
type Ailment struct {
	Name string
	Sig  syscall.Signal // sent to each watcher that appears; 0 for none
	Env  string
}

var Ailments = []Ailment{
	{Name: "healthy"},
	{Name: "SIGKILL", Sig: syscall.SIGKILL},
	{Name: "SIGSTOP", Sig: syscall.SIGSTOP},
	{Name: "SIGBUS", Env: "RSSWARDEN_FAULT=bus"}, // one from kill(2) is no fault, and is survived
	{Name: "panic", Env: "RSSWARDEN_FAULT=panic"},
}

// strike sends the Ailment's signal to every watcher of the holder until done
// is closed, and returns on a channel how many it struck.
func (a Ailment) strike(holder int, done <-chan struct{}) <-chan int {
	struck := make(chan int, 1)
	go func() {
		seen := map[int]bool{}
		for a.Sig != 0 {
			for _, pid := range Watchers(holder) {
				if !seen[pid] && syscall.Kill(pid, a.Sig) == nil {
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

// Run runs the program with the Ailment and returns how the command ended and
// what it wrote.
func (a Ailment) Run(t *testing.T, args ...string) (ended string, stdout []byte, struck int) {
	t.Helper()
	cmd := exec.Command(Program(t, Faults), args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
	if a.Env != "" {
		cmd.Env = append(cmd.Env, a.Env)
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

// Refuses has system calls fail in the program that it executes, by seccomp. A rule is
// (number, errno), or (number, errno, index of an argument, its value); a number or value
// below 0 stands for those from -n on.
//
//go:embed testdata/refuse.py
var Refuses string

// Refusing is what starts a program under such rules.
func Refusing(t *testing.T, rules string) []string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the numbers of system calls are amd64's")
	}
	return []string{Python, "-c", Refuses, rules}
}
