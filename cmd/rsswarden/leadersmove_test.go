package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/control"
)

// place makes a directory where leaders of a job meet on n1, without one.
func (s *leaderStand) place(job string) string {
	s.t.Helper()
	dir := filepath.Join(s.tmp, "rsswarden-"+strconv.Itoa(os.Geteuid()), "lead."+job+"@n1.0a1b2c3d")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// saysRaw is a leader that takes whoever comes and answers with this, or never.
func (s *leaderStand) saysRaw(job, answer string) {
	s.t.Helper()
	l, err := net.Listen("unix", filepath.Join(s.place(job), control.SocketName))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	if answer == "" {
		return // as one that is stopped: the kernel takes who connects
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10)) // what is asked does not matter
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	}()
}

// TestStoppedLeader: one that is stopped is named, by the name its node has for Slurm,
// and is not waited for long; nothing is said of ranks that it may have.
func TestStoppedLeader(t *testing.T) {
	s := newLeaderStand(t)
	s.saysRaw("46", "")
	job := []string{"SLURM_JOB_ID=46"}
	for _, args := range [][]string{{"status"}, {"top", "--once"}, {"checkpoint", "--rank", "1", "--signal", "USR1"}, {"trim", "--rank", "1"}} {
		begun := time.Now()
		_, errs := s.run(1, job, args...)
		if d := time.Since(begun); d > 3500*time.Millisecond {
			t.Errorf("%v took %v", args, d)
		}
		has(t, errs, "error: n1: the leader of job 46 does not answer\nhint: is the job suspended", "ps -C rss-watcher,rsswarden ")
		if strings.Count(errs, "error:") != 1 {
			t.Errorf("%v:\n%s", args, errs)
		}
	}
}

// TestLeaderOfAnotherVersion: what it says is not taken for a status.
func TestLeaderOfAnotherVersion(t *testing.T) {
	s := newLeaderStand(t)
	s.saysRaw("46", "HTTP/1.1 200 OK\r\n\r\n"+`{"v":77,"version":"9.9"}`)
	out, errs := s.run(1, []string{"SLURM_JOB_ID=46"}, "status")
	if has(t, errs, "error: n1: the leader of job 46 is not understood: it answers in version 77", "hint: ask with the rsswarden that the run was started with, version 9.9"); out != "" {
		t.Error(out)
	}
}

// rank lays down what a member of a place that lives does: this process.
func rank(t *testing.T, dir string) {
	t.Helper()
	start, err := proctree.StartTime("/proc", os.Getpid())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank.%d.%d", os.Getpid(), start)), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMovingLead: while the lead goes from one to the next it is waited for; where
// nobody takes it that is said, and not that no run is there.
func TestMovingLead(t *testing.T) {
	s := newLeaderStand(t)
	ask := func() (string, error) {
		cmd := exec.Command(binary, "status") // where PIDs are those of this process
		cmd.Env = append(slices.Clone(s.env), "SLURM_JOB_ID=463512", "SLURMD_NODENAME=n1")
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	dir := s.place("463512")
	if out, err := ask(); err == nil || !strings.Contains(out, "no rsswarden run of job 463512 is on this node (n1) now") {
		t.Errorf("nobody lives: %v, %s", err, out)
	}
	rank(t, dir)
	begun := time.Now()
	out, err := ask()
	if d := time.Since(begun); err == nil || d > 3500*time.Millisecond {
		t.Errorf("%v after %v", err, d)
	}
	has(t, out, "error: n1: nobody leads just now: the lead of job 463512 is being taken over\nhint: ask again in a moment")

	// A leader that closes the connection ends; the next one answers.
	l, err := net.Listen("unix", filepath.Join(dir, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan struct{})
	go func() {
		defer close(next)
		for range 2 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10)) // what is asked does not matter
			c.Close()
		}
		l.Close()
		s.lead("463512", "n1", &leaderSource{})
	}()
	if out, err = ask(); err != nil {
		t.Error(err)
	}
	has(t, out, "job 463512 on n1", "led by")
	<-next
}
