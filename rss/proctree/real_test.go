package proctree_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestMain lets the test binary be the processes of the tests: with ROLE set it
// plays that role instead of running tests.
func TestMain(m *testing.M) {
	if role := os.Getenv("ROLE"); role != "" {
		play(role)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play says what it did on stdout, one line each, and stays until stdin ends.
func play(role string) {
	switch role {
	case "command":
		// Each line of stdin asks for one thing.
		in := bufio.NewScanner(os.Stdin)
		var kids []*exec.Cmd
		for in.Scan() {
			var c *exec.Cmd
			switch in.Text() {
			case "fork":
				c = start("idle", nil)
			case "setsid":
				c = start("idle", &syscall.SysProcAttr{Setsid: true})
			case "thread":
				// The parent is a thread that is not the main one; PPID
				// names the process all the same.
				done := make(chan *exec.Cmd)
				go func() {
					runtime.LockOSThread()
					done <- start("idle", nil)
				}()
				c = <-done
			case "zombie":
				c = start("exit", nil)
			case "double":
				// The middle one forks, waits to be told, and ends.
				c = start("middle", nil)
			case "grow":
				grown = make([]byte, 64<<20)
				for i := 0; i < len(grown); i += 4096 {
					grown[i] = 1
				}
				fmt.Println("grown 0")
				continue
			case "reap":
				// Its other threads may end a little after the main one.
				kids[len(kids)-1].Wait()
				fmt.Println("reaped 0")
				continue
			}
			kids = append(kids, c)
		}
	case "middle":
		start("idle", nil)
		io.Copy(io.Discard, os.Stdin)
	case "idle":
		io.Copy(io.Discard, os.Stdin)
	}
}

var grown []byte

// start starts the test binary in a role; it ends when our stdin ends, since it
// reads the same pipe's end from a file of its own.
func start(role string, attr *syscall.SysProcAttr) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "ROLE="+role)
	c.SysProcAttr = attr
	c.Stdout = os.Stdout
	c.Stdin = os.NewFile(3, "life")
	c.ExtraFiles = []*os.File{c.Stdin.(*os.File)}
	if err := c.Start(); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(role, c.Process.Pid)
	return c
}

// command is a real process that does as it is told.
type command struct {
	*rsstest.Child
	t *testing.T
}

func startCommand(t *testing.T) *command {
	t.Helper()
	lifeR, lifeW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "ROLE=command")
	c.ExtraFiles = []*os.File{lifeR}
	child := rsstest.StartChild(t, c)
	lifeR.Close()
	// Every process of the test reads this pipe, and ends.
	t.Cleanup(func() { lifeW.Close() })
	return &command{child, t}
}

// do asks for one thing and returns the PID that came of it.
func (c *command) do(what string) int {
	c.t.Helper()
	fmt.Fprintln(c.In, what)
	return c.said()
}

func (c *command) said() int {
	c.t.Helper()
	line, err := c.Line()
	if err != nil {
		c.t.Fatal("the command has ended")
	}
	_, pid, _ := strings.Cut(line, " ")
	n, err := strconv.Atoi(pid)
	if err != nil {
		c.t.Fatal(line)
	}
	return n
}

// until reads the tree until ok holds.
func until(t *testing.T, r *proctree.Reader, root int, ok func([]rss.Proc) bool) []rss.Proc {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		procs, _, err := r.Tree(rss.ProcID{PID: root})
		if err != nil {
			t.Fatal(err)
		}
		if ok(procs) {
			return procs
		}
		if time.Now().After(deadline) {
			t.Fatalf("the tree stays %+v", procs)
		}
	}
}

func has(pid int) func([]rss.Proc) bool {
	return func(procs []rss.Proc) bool { return find(procs, pid).ID.PID == pid }
}

func TestRealTree(t *testing.T) {
	c := startCommand(t)
	root := c.PID
	r := reader(t, "/proc")
	until(t, r, root, has(root))

	for _, how := range []string{"fork", "setsid", "thread"} {
		pid := c.do(how)
		procs := until(t, r, root, has(pid))
		p := find(procs, pid)
		if p.Parent != root || p.Orphan {
			t.Errorf("%s: %+v", how, p)
		}
		if own := p.Group == pid; own != (how == "setsid") {
			t.Errorf("%s: process group %d", how, p.Group)
		}
	}

	t.Run("zombie", func(t *testing.T) {
		pid := c.do("zombie")
		// Until its last thread has ended, a dead main thread shows what the
		// others hold.
		procs := until(t, r, root, func(procs []rss.Proc) bool {
			p := find(procs, pid)
			return p.State == 'Z' && p.RSS == 0
		})
		if p := find(procs, pid); p.Orphan {
			t.Errorf("zombie %+v", p)
		}
		c.do("reap")
		until(t, r, root, func(procs []rss.Proc) bool { return !has(pid)(procs) })
	})

	t.Run("double fork", func(t *testing.T) {
		middle := c.do("double")
		daemon := c.said()
		until(t, r, root, has(daemon))
		syscall.Kill(middle, syscall.SIGKILL)
		procs := until(t, r, root, func(procs []rss.Proc) bool { return find(procs, daemon).Orphan })
		if p := find(procs, daemon); p.Parent == middle {
			t.Errorf("orphan %+v", p)
		}
	})

	t.Run("sums agree", func(t *testing.T) {
		procs, _, err := r.Tree(rss.ProcID{PID: root})
		if err != nil {
			t.Fatal(err)
		}
		var sum rss.Bytes
		for _, p := range procs {
			sum += p.RSS
		}
		fast, err := r.SumRSS()
		// Counters lag by up to 64 pages a thread before Linux 6.2.
		slack := 2 * rss.MiB * rss.Bytes(len(procs))
		if err != nil || fast+slack < sum || sum+slack < fast {
			t.Errorf("statm %v, %v; status %v", fast, err, sum)
		}
		c.do("grow")
		grown, err := r.SumRSS()
		if err != nil || grown < fast+60*rss.MiB {
			t.Errorf("after 64 MiB more: %v, was %v, %v", grown, fast, err)
		}
		pss, err := r.PSS(rss.ProcID{PID: root, Start: find(procs, root).ID.Start})
		if err != nil || pss.PSS < 60*rss.MiB || pss.PSS > pss.RSS {
			t.Errorf("PSS %+v, %v", pss, err)
		}
		if _, err := r.PSS(rss.ProcID{PID: root, Start: 1}); !proctree.Vanished(err) {
			t.Errorf("PSS of another process with the PID: %v", err)
		}
	})
}

// The same directory listing, stat and status as prometheus/procfs and the
// shell see them.
func TestRealSelf(t *testing.T) {
	r := reader(t, "/proc")
	p, err := r.One(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	start, err := proctree.StartTime("/proc", os.Getpid())
	if err != nil || p.ID != (rss.ProcID{PID: os.Getpid(), Start: start}) || p.Parent != os.Getppid() ||
		p.Group != unix.Getpgrp() || p.RSS == 0 || p.RSS != p.Anon+p.File+p.Shmem || p.Threads < 2 {
		t.Errorf("got %+v, start %d, %v", p, start, err)
	}
	pids, _, _ := tree(t, r, os.Getpid())
	if !slices.Contains(pids, os.Getpid()) {
		t.Errorf("tree %v", pids)
	}
	if below := r.Below(os.Getppid()); !slices.Contains(below, os.Getpid()) {
		t.Errorf("below the parent: %v", below)
	}
	if n, err := proctree.ResidentLimit("/proc", os.Getpid()); err != nil {
		t.Error(n, err)
	}
	if m, err := proctree.ReadMemInfo("/proc"); err != nil || m.Total < m.Available || m.Available == 0 {
		t.Errorf("meminfo %+v, %v", m, err)
	}
}
