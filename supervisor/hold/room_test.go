package hold

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The Go runtime ends the process where it gets too little. The command must
// have been executed by then, with all that a bare one inherits.
func TestNoRoom(t *testing.T) {
	for _, limit := range []string{"-n 13", "-n 16", "-v 100000", "-v 600000", "-v 1200000", "-d 60000"} {
		t.Run(limit, func(t *testing.T) {
			show := func(prefix ...string) []string {
				argv := append([]string{"-c", "trap '' USR1; ulimit " + limit + `; exec "$@" 3</dev/null 0<&-`, "sh"}, append(prefix, probe, "twin", "/dev/stdout")...)
				cmd := exec.Command("sh", argv...)
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%q: %v", prefix, err)
				}
				if !strings.Contains(string(out), fmt.Sprintf("\npid %d\n", cmd.Process.Pid)) {
					t.Errorf("%q: it ran as a child", prefix)
				}
				return normal(slices.Collect(strings.Lines(string(out))))
			}
			compare(t, show(), show(self, "run", "--quiet", "--limit", "3G", "--"))
		})
	}
}

func TestNoRoomStatus(t *testing.T) {
	for _, test := range []struct {
		argv []string
		code int
		says string
	}{
		{[]string{"--limit=3G", "sh", "-c", "exit 5"}, 5, "there is no room beside it, too little is left of: open files (ulimit -n)"},
		{[]string{"--", "/no/such/file"}, 127, "cannot start /no/such/file"},
		{[]string{"--", "/etc/passwd"}, 126, "cannot start /etc/passwd"},
	} {
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 8; exec "$@"`, "sh", self, "run"}, test.argv...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if s := runStatus(t, cmd); s.ExitStatus() != test.code || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: got %v, want %d with %q; stderr: %s", test.argv, s, test.code, test.says, &stderr)
		}
	}
}

func TestNoRoomForGo(t *testing.T) {
	cmd := exec.Command("sh", "-c", `ulimit -v 900000; exec "$@"`, "sh", self, "limits")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	wardentest.NoError(t, cmd.Start())
	want := "error: too little address space is left (ulimit -v): 1400 MiB are needed\nhint: ulimit -v unlimited, where that is allowed\n"
	if s := waitStatus(t, cmd); s.ExitStatus() != 1 || stderr.String() != want {
		t.Errorf("%v, stderr: %s", s, &stderr)
	}
}

// Slurm's VSizeFactor leaves a limit in proportion to RLIMIT_RSS as RLIMIT_AS,
// and sums us with the job. A user's own ulimit -v counts each process alone.
func TestNoRoomInASum(t *testing.T) {
	const says = "too little is left of: virtual memory, which Slurm sums (VSizeFactor)"
	for _, test := range []struct {
		limits string
		job    string
		want   bool
	}{
		{"-m 1280000 -v 5120000", "7", true},
		{"-m 1280000 -v 1945600", "7", true},
		{"-m 1280000 -v 5120000", "", false},
		{"-m 1280000 -v 5000000", "7", false},
		{"-v 5120000", "7", false},
		{"-m 33554432 -v 134217728", "7", false}, // 128 GiB: ours is little beside it
	} {
		set := strings.ReplaceAll(test.limits, " -v", " && ulimit -v")
		cmd := exec.Command("sh", "-c", "ulimit "+set+` && exec "$@"`, "sh", self, "run", "--", "true")
		cmd.Env = append(cmd.Environ(), "SLURM_JOB_ID="+test.job)
		if test.job == "" {
			cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "SLURM_JOB_ID=") })
		}
		// The holder of these tests takes no "--": it ends at once.
		out, err := cmd.CombinedOutput()
		if got := err == nil && strings.Contains(string(out), says); got != test.want {
			t.Errorf("%s in job %q: executed in place %v, want %v: %v\n%s", test.limits, test.job, got, test.want, err, out)
		}
	}
}

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

// TestPidsMax: at pids.max no thread or process can be made; signals and a dead watcher
// need none.
func TestPidsMax(t *testing.T) {
	dir := pidsGroup(t)
	for range 3 {
		k := startCounted(t, config{Watch: "good"}, func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0"; exec "$@"`, filepath.Join(dir, "cgroup.procs")}, cmd.Args...)
			cmd.Path = "/bin/sh"
		})
		set := func(max string) {
			wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte(max), 0o644))
		}
		set("1")
		for i := range 200 {
			kill(t, k.holder, 40)
			if i%20 == 0 {
				kill(t, -k.holder, 41)
			}
		}
		kill(t, k.watcher, 9)
		kill(t, k.holder, 42)
		k.comes(t, 42, 1)
		until(t, "signals", func() bool { return k.count(40) == 200 })
		until(t, "no second watcher", func() bool { return len(wardentest.Children(k.holder)) == 1 })
		kill(t, k.holder, 43)
		k.comes(t, 43, 1)
		set("max")
		k.end(t)
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
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(max)), 0o644))
		cmd := exec.Command("sh", "-c", `echo $$ >"$0"; `+how, filepath.Join(dir, "cgroup.procs"), self, "run", "--", probe, "twin", file)
		if s := runStatus(t, cmd); s.ExitStatus() != 0 {
			t.Errorf("with pids.max %d: %v", max, s)
		}
		if !strings.Contains(wardentest.Read(file), fmt.Sprintf("\npid %d\n", cmd.Process.Pid)) {
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
	const user = 64123 // an unused account
	dir, err := os.MkdirTemp("", "hold-test-")
	wardentest.NoError(t, err)
	defer os.RemoveAll(dir)
	wardentest.NoError(t, os.Chmod(dir, 0o777))
	program, file := filepath.Join(dir, "held"), filepath.Join(dir, "twin")
	b, err := os.ReadFile(self)
	wardentest.NoError(t, err)
	wardentest.NoError(t, os.WriteFile(program, b, 0o755))
	for limit, child := range map[string]bool{"4": false, "20": false, "100": true, "unlimited": true} {
		how := "--"
		if child {
			how = "{}" // a config, which the holder reads
		}
		cmd := exec.Command("bash", "-c", "ulimit -u "+limit+`; exec "$@"`, "sh", program, "run", how, "sh", "-c", `echo $PPID >"$0"`, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if s := runStatus(t, cmd); s.ExitStatus() != 0 {
			t.Errorf("ulimit -u %s: %v", limit, s)
		}
		parent := strings.TrimSpace(wardentest.Read(file))
		if (parent == strconv.Itoa(cmd.Process.Pid)) != child {
			t.Errorf("ulimit -u %s: started by %s, the holder was %d; want a child of it: %v", limit, parent, cmd.Process.Pid, child)
		}
		os.Remove(file)
	}
}
