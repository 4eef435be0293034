package hold

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pidsGroup makes a pids cgroup below the root, v1 or v2.
func pidsGroup(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a pids cgroup needs root")
	}
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("hold-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err != nil {
			os.Remove(dir)
			continue
		}
		t.Cleanup(func() {
			for end := time.Now().Add(5 * time.Second); os.Remove(dir) != nil && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
		})
		return dir
	}
	t.Skip("no pids controller")
	return ""
}

// With pids.max reached nobody can make a thread or a process: neither signals
// nor a dead watcher need one.
func TestPidsMax(t *testing.T) {
	dir := pidsGroup(t)
	for range 3 {
		tmp := t.TempDir()
		file, log := filepath.Join(tmp, "count"), filepath.Join(tmp, "log")
		argv := held(config{Watch: "good", Log: log}, probe, "count", file)
		cmd := exec.Command("sh", append([]string{"-c", `echo $$ >"$0"; exec "$@"`, filepath.Join(dir, "cgroup.procs")}, argv...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var command, holder, watcher int
		fmt.Sscanf(awaitLine(t, file, "ready"), "ready %d parent %d", &command, &holder)
		fmt.Sscanf(awaitLine(t, log, "begin"), "begin %d", &watcher)
		set := func(max string) {
			if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(max), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		set("1")
		for i := range 200 {
			kill(t, holder, 40)
			if i%20 == 0 {
				kill(t, -holder, 41)
			}
		}
		kill(t, watcher, 9)
		kill(t, holder, 42)
		until(t, "signals", func() bool {
			return strings.Count(read(file), "signal 40 ") == 200 && strings.Contains(read(file), "signal 42 ")
		})
		until(t, "no second watcher", func() bool { return len(children(holder)) == 1 })
		kill(t, holder, 43)
		until(t, "a signal after that", func() bool { return strings.Contains(read(file), "signal 43 ") })
		set("max")
		unix.Kill(command, unix.SIGKILL)
		if s := waitStatus(t, cmd); !s.Signaled() || s.Signal() != unix.SIGKILL {
			t.Errorf("got %v; stderr: %s", s, stderr.String())
		}
	}
}

// No room for us beside the command from the start: it runs in our place.
func TestNoRoomForTwo(t *testing.T) {
	dir := pidsGroup(t)
	file := filepath.Join(t.TempDir(), "twin")
	for max := 1; max <= 24; max++ {
		how := `exec "$@"`
		if max%4 == 2 {
			// In a cgroup namespace of its own it seems to be at the root.
			how = `exec unshare -C "$@"`
		}
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(max)), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", `echo $$ >"$0"; `+how, filepath.Join(dir, "cgroup.procs"), self, "run", "--", probe, "twin", file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if s := waitStatus(t, cmd); s.ExitStatus() != 0 {
			t.Errorf("with pids.max %d: %v", max, s)
		}
		if !strings.Contains(read(file), fmt.Sprintf("\npid %d\n", cmd.Process.Pid)) {
			t.Errorf("with pids.max %d it ran as a child", max)
		}
		os.Remove(file)
	}
}

// TestNoRoomForTheUser: RLIMIT_NPROC counts all tasks of a user, wherever they
// are; root is spared, and so is not one to try it with.
func TestNoRoomForTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to be another user needs root")
	}
	const user = 64123 // nobody else's
	dir, err := os.MkdirTemp("", "hold-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program, file := filepath.Join(dir, "held"), filepath.Join(dir, "twin")
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for limit, child := range map[string]bool{"4": false, "20": false, "100": true, "unlimited": true} {
		how := "--"
		if child {
			how = "{}" // a config, which the holder reads
		}
		cmd := exec.Command("bash", "-c", "ulimit -u "+limit+`; exec "$@"`, "sh", program, "run", how, "sh", "-c", `echo $PPID >"$0"`, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if s := waitStatus(t, cmd); s.ExitStatus() != 0 {
			t.Errorf("ulimit -u %s: %v", limit, s)
		}
		parent := strings.TrimSpace(read(file))
		if (parent == strconv.Itoa(cmd.Process.Pid)) != child {
			t.Errorf("ulimit -u %s: started by %s, the holder was %d; want a child of it: %v", limit, parent, cmd.Process.Pid, child)
		}
		os.Remove(file)
	}
}
