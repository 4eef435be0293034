package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	patience      = 2 * time.Second  // for a file system that may hang
	trialPatience = 10 * time.Second // for what takes milliseconds
)

// trial is a run of a command that prints its limits and ends. The user's own options are
// left out: they were checked already, and a trial leaves nothing behind.
func (d *prober) trial() (checks []Check) {
	if d.Program.Off || d.Program.Usage != nil {
		return nil
	}
	var t runFacts
	defer func() { checks = []Check{runCheck(t)} }()
	read, write, err := os.Pipe()
	if err != nil {
		t.Err = err
		return
	}
	defer read.Close()
	args := []string{
		"run", "--at", "none", "--dry-run", "--record", "none", "--loader", "off", "--events", "/dev/fd/3", "--", "cat", "/proc/self/limits",
	}
	var out, errs text.Bounded
	began := time.Now()
	err = d.start("/proc/self/exe", args, trialPatience, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &errs, []*os.File{write}
		for _, kv := range d.Environ {
			if !strings.HasPrefix(kv, "RSSWARDEN_") {
				cmd.Env = append(cmd.Env, kv)
			}
		}
	})
	t.Took = fmt.Sprintf("%.0f ms", time.Since(began).Seconds()*1e3)
	write.Close()
	var events text.Bounded
	_ = read.SetReadDeadline(time.Now().Add(time.Second)) // whoever still has the other end
	_, _ = events.ReadFrom(read)
	t.Err, t.Said, d.trialLimits = err, errs.LastLine(), out.String()
	// A site may lock either of the two.
	t.Watched = strings.Contains(events.String(), `"event":"start"`) || strings.Contains(errs.String(), " watching ")
	return
}

var errLate = errors.New("it took too long and was killed")

// start runs a program in a process group of its own, which is killed when its time is
// over.
func (d *prober) start(path string, args []string, patience time.Duration, prepare func(*exec.Cmd)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what left the group may keep our pipes open
	prepare(cmd)
	d.mu.Lock()
	err := cmd.Start()
	if err == nil {
		d.child = cmd.Process.Pid
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	d.mu.Lock()
	d.child = 0
	d.mu.Unlock()
	if ctx.Err() != nil {
		return errLate
	}
	return err
}

// obey ends us at a signal that asks for it, after what we have started and made.
func (d *prober) obey() {
	s := (<-d.Ends).(syscall.Signal)
	d.mu.Lock() // for good
	if d.child != 0 {
		_ = syscall.Kill(-d.child, syscall.SIGKILL)
	}
	d.remove()
	d.DieBy(s)
}

// within asks a file system; false if it does not answer in time.
func within[T any](ask func() T) (T, bool) {
	c := make(chan T, 1)
	go func() { c <- ask() }()
	select {
	case v := <-c:
		return v, true
	case <-time.After(patience):
		var none T
		return none, false
	}
}

// errnoOf strips the path that the standard library puts around an errno.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
