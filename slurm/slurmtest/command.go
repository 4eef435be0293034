package slurmtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
)

// userPath is the PATH of daemons, commands and jobs.
const userPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// Output is what a command said and how it ended.
type Output struct {
	Stdout, Stderr string
	// Code is the exit status, 128 plus the signal's number where one ended
	// it.
	Code int
}

// Env is the whole environment of commands of the job's user; jobs inherit
// it, as sbatch and srun do it by default.
func (c *Cluster) Env() []string {
	return []string{
		"PATH=" + userPath, "HOME=" + c.Dir(), "USER=" + c.user.Username,
		"LOGNAME=" + c.user.Username, "LANG=C.UTF-8", "SHELL=/bin/bash", "SLURM_CONF=" + c.Conf(),
	}
}

// Command is a command of the job's user, in [Cluster.Dir], not yet started.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if c.suite != nil { // only root may enter
		become := []string{"--reuid", strconv.Itoa(int(c.uid)), "--regid", strconv.Itoa(int(c.gid)), "--clear-groups", "--", name}
		return c.admin(ctx, "setpriv", append(become, args...)...)
	}
	cmd := c.admin(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: c.gid}}
	return cmd
}

// admin is a command of root.
func (c *Cluster) admin(ctx context.Context, name string, args ...string) *exec.Cmd {
	if c.suite != nil {
		argv := c.suite.Argv(name, args...)
		name, args = argv[0], argv[1:]
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.Dir()
	cmd.Env = c.Env()
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Do runs a command as the job's user, outside any job.
func (c *Cluster) Do(t testing.TB, name string, args ...string) Output {
	t.Helper()
	return output(t, c.Command(t.Context(), name, args...))
}

// Admin runs a command as root, such as scontrol update.
func (c *Cluster) Admin(t testing.TB, name string, args ...string) Output {
	t.Helper()
	return output(t, c.admin(t.Context(), name, args...))
}

// Srun runs srun as the job's user, in an allocation of its own, and waits for
// it.
func (c *Cluster) Srun(t testing.TB, args ...string) Output {
	t.Helper()
	return c.Do(t, "srun", args...)
}

// Version is that of the cluster's Slurm: "22.05.8".
func (c *Cluster) Version(t testing.TB) string {
	t.Helper()
	v, err := slurm.FindVersion(t.Context(), func(ctx context.Context, args ...string) ([]byte, error) {
		return c.Command(ctx, "scontrol", args...).Output()
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Cancel runs scancel as the job's user.
func (c *Cluster) Cancel(t testing.TB, args ...string) {
	t.Helper()
	if out := c.Do(t, "scancel", args...); out.Code != 0 {
		t.Fatalf("scancel %q: status %d: %s", args, out.Code, out.Stderr)
	}
}

func output(t testing.TB, cmd *exec.Cmd) Output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run %s: %v", cmd.Path, err)
	}
	o := Output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		o.Code = 128 + int(status.Signal())
	}
	return o
}

// Install copies a file, such as a program that was just built, to where jobs
// can read and execute it, and returns the new path. What one test installs lies in one
// directory, and apart from what others do.
func (c *Cluster) Install(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(c.Dir(), "bin", strings.Map(func(r rune) rune {
		if r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z' {
			return '-'
		}
		return r
	}, t.Name()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// A rename, because the file may be running.
	to := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(to+".new", b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
	return to
}

// InstallSelf installs the running test binary, which can then be the program
// of a job.
func (c *Cluster) InstallSelf(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return c.Install(t, self)
}
