package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Daemon: &binary}, slurmtest.Shutdown))
}

var (
	must  = wardentest.NoError
	until = wardentest.Until
)

// instance is a daemon that runs.
type instance struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	log     wardentest.Text // stderr
}

// start runs the daemon on a free port, until it listens.
func start(t *testing.T, args ...string) *instance {
	t.Helper()
	return startCommand(t, append([]string{binary, "--interval", "1s"}, args...)...)
}

// startCommand is start of a command that ends in the daemon and its options.
func startCommand(t *testing.T, command ...string) *instance {
	t.Helper()
	d := &instance{t: t, cmd: exec.Command(command[0], append(command[1:], "--listen", "127.0.0.1:0")...)}
	d.cmd.Env, d.cmd.Stderr = wardentest.Env(), &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, d.cmd.Start())
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			d.cmd.Process.Kill()
			d.cmd.Wait()
		}
	})
	const listens = `msg="Listening on" address=`
	d.log.Await(t, listens, 1)
	_, address, _ := strings.Cut(d.said(), listens)
	d.address, _, _ = strings.Cut(address, "\n")
	return d
}

func (d *instance) said() string { return d.log.String() }

// end sends SIGTERM, and wants the end with status 0.
func (d *instance) end() {
	d.t.Helper()
	must(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	defer time.AfterFunc(20*time.Second, func() { d.cmd.Process.Kill() }).Stop()
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("%v: %s", err, d.said())
	}
}

// sleeper starts a process in a group.
func sleeper(t *testing.T, in rsstest.Group) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	in.Join(cmd.Process.Pid)
}
