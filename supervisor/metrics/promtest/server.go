// Package promtest runs what a site has beside its Slurm, for tests: a real
// Prometheus, Alertmanager and node_exporter, each on a free port of the loopback, where
// it can be killed and started again with all that it kept.
package promtest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// Server is a program that answers HTTP at one address for as long as the test lasts.
type Server struct {
	Addr string // host and port

	t     testing.TB
	argv  []string
	ready string
	cred  *syscall.Credential
	cmd   *exec.Cmd
	said  wardentest.Text
}

// FreeAddr is a loopback address without a listener.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	wardentest.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// Run starts a program that serves addr and answers the path ready with 200 from when it
// can be used on. It skips the test where there is no such program.
func Run(t testing.TB, addr, ready string, argv ...string) *Server {
	t.Helper()
	return run(t, &Server{Addr: addr, ready: ready, argv: argv})
}

func run(t testing.TB, s *Server) *Server {
	t.Helper()
	path, err := exec.LookPath(s.argv[0])
	if err != nil {
		t.Skipf("%v: .ci/setup test installs it", err)
	}
	s.t, s.argv[0] = t, path
	s.Start()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", path, s.said.String())
		}
	})
	return s
}

// Start starts it, again if it was killed, and waits until it can be used.
func (s *Server) Start() {
	s.t.Helper()
	s.cmd = exec.Command(s.argv[0], s.argv[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.cred}
	s.cmd.Env = wardentest.Env()
	wardentest.NoError(s.t, s.cmd.Start())
	wardentest.Until(s.t, s.argv[0]+" answers "+s.ready, func() bool { _, err := s.Text(s.ready); return err == nil })
}

// Kill ends it by SIGKILL: it can tidy nothing up.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
}

// URL is where it is, without a path.
func (s *Server) URL() string { return "http://" + s.Addr }

// Said is what it has printed so far.
func (s *Server) Said() string { return s.said.String() }
