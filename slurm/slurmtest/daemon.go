package slurmtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// freePorts returns n unused TCP ports.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %w", err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// daemon is a process of the cluster, our child.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// daemon starts one in the foreground, with its PID known to the guard before
// anything else happens. What it prints goes beside its log.
func (c *Cluster) daemon(name, log string, args ...string) (*daemon, error) {
	argv, err := c.argv(name, args)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(c.path("log/"+log+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = c.path("log")
	cmd.Env = []string{"PATH=" + userPath, "LANG=C", "SLURM_CONF=" + c.Conf()}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	d := &daemon{cmd, make(chan struct{})}
	go func() { cmd.Wait(); close(d.done) }()
	if err := c.guard.add(cmd.Process.Pid); err != nil {
		d.kill()
		return nil, err
	}
	return d, nil
}

// argv is the argument list of a daemon: of this machine's, or of the
// root's, which replaces unshare and sh by exec. munged serves both.
func (c *Cluster) argv(name string, args []string) ([]string, error) {
	if c.suite != nil && name != "munged" {
		return c.suite.Argv(name, args...), nil
	}
	path, err := program(name)
	return append([]string{path}, args...), err
}

func (d *daemon) kill() {
	d.cmd.Process.Kill()
	<-d.done
}
