package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

const unitFile = "../../examples/prometheus/rsswardend.service"

// TestUnitIsHardened has systemd judge the unit: from 0, safe, to 10.
func TestUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not there:", err)
	}
	file, err := filepath.Abs(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestUnitStarts gives the unit's options to the program, as a user who may do nothing,
// with no capability to be had, and all files but its own read-only.
func TestUnitStarts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to take it away")
	}
	b, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(b), "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	words := strings.Fields(command)
	state := t.TempDir()
	for dir := state; dir != "/"; dir = filepath.Dir(dir) { // the test's folders are root's alone
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o055 != 0o055 && strings.Contains(dir, "Test") {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chown(state, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(binary), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := rsstest.NewSlurmTree(t)
	task := tree.Job(12, 100*rss.MiB)
	sleeper(t, task)
	// Mounts of its own, where all is read-only but the state.
	script := `mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro / && mount -o remount,bind,ro /sys && shift &&
exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`
	args := []string{"unshare", "--mount", "sh", "-c", script, "sh", state, binary}
	for _, word := range words[1:] {
		args = append(args, strings.ReplaceAll(word, "${STATE_DIRECTORY}", state))
	}
	d := startCommand(t, args...)
	_, page := d.get("/metrics")
	got := values(t, page, tree.Node)
	if got["rsswarden_memory_limit_bytes job 12"] != 100<<20 || got["rsswarden_processes 12 batch"] != 1 {
		t.Errorf("%v\n%s", got, d.said())
	}
	// cgroup v1 tells root alone of OOM kills as they happen, which is said.
	if strings.Contains(page, "\nrsswarden_oom_unheard_steps 0\n") || !strings.Contains(page, "\nrsswarden_oom_unheard_steps ") || !strings.Contains(d.said(), "the kernel does not tell of OOM kills in some steps") {
		t.Error(d.said())
	}
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", d.cmd.Process.Pid), &st); err != nil || st.Uid != 65534 {
		t.Errorf("it runs as %d, %v", st.Uid, err)
	}
	if code := d.end(); code != 0 {
		t.Errorf("status %d: %s", code, d.said())
	}
}
