package hunt

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestCgroupView asks for the limits in a cgroup that has none of its own, below one
// of 300 MiB, wherever the hierarchy is mounted and whatever part of it is seen.
func TestCgroupView(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name   string
		shell  string // has "$@" run, the program
		source string // of the limit; %s is the directory that has it
	}{
		{"as it is", `"$@"`, "%s/memory.limit_in_bytes"},
		{"cgroup namespace, mounts of the host", `unshare -C "$@"`, "%s/memory.limit_in_bytes"},
		{"cgroup namespace of a process below", `echo $$ >$SUB/leaf/cgroup.procs; unshare -C sh -c 'echo $$ >$SUB/cgroup.procs; "$@"' - "$@"`, "%s/memory.limit_in_bytes"},
		{"cgroup namespace, a mount of its own", `unshare -mC sh -c 'mount -t tmpfs t /mnt; mkdir /mnt/c; mount -t cgroup -o memory c /mnt/c; umount -l /sys/fs/cgroup/memory; "$@"' - "$@"`,
			"/mnt/c/memory.stat: hierarchical_memory_limit"},
		{"mounted twice", `unshare -m sh -c 'mount -t tmpfs t /mnt; mkdir /mnt/c; mount -t cgroup -o memory c /mnt/c; "$@"' - "$@"`, "%s/memory.limit_in_bytes"},
		{"a part of it mounted elsewhere", `unshare -m sh -c 'mount --bind $SUB /mnt; "$@"' - "$@"`, "%s/memory.limit_in_bytes"},
		{"a part of it mounted twice, and no more", `unshare -m sh -c 'mount -t tmpfs t /mnt; mkdir /mnt/a /mnt/b; mount --bind $SUB/.. /mnt/a; mount --bind $SUB /mnt/b; umount -l /sys/fs/cgroup/memory; "$@"' - "$@"`,
			"/mnt/a/memory.limit_in_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := rsstest.NewGroup(t, 300*rss.MiB)
			if g.Version != 1 {
				t.Skip("needs cgroup v1 with the memory controller")
			}
			sub := g.Sub("sub")
			sub.Sub("leaf")
			cmd := exec.Command("sh", "-c", `echo $$ >$SUB/cgroup.procs && `+c.shell, "-", binary, "limits", "--json")
			cmd.Env = append(cmd.Environ(), "SUB="+sub.Dir)
			r := finish(t, cmd)
			var got struct {
				Limits []struct {
					Limit       string
					LimitBytes  rss.Bytes `json:"limit_bytes"`
					LimitSource string    `json:"limit_source"`
				}
			}
			if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || len(got.Limits) == 0 {
				t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
			}
			want := c.source
			if strings.Contains(want, "%s") {
				want = fmt.Sprintf(want, g.Dir)
			}
			if l := got.Limits[0]; l.Limit != "cgroup" || l.LimitBytes != 300*rss.MiB || l.LimitSource != want {
				t.Errorf("got %+v, want 300 MiB from %s", l, want)
			}
		})
	}
}

// TestOwnTasks: docs/limits.md says how many tasks are ours.
func TestOwnTasks(t *testing.T) {
	needRoot(t)
	dir, err := rsstest.GroupDir("/sys/fs/cgroup/pids")
	if err != nil {
		t.Skip("needs cgroup v1 with the pids controller:", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	const most = 28
	// The command counts for two seconds: the watcher starts threads after it.
	cmd := exec.Command("bash", "-c", `echo $$ >$DIR/cgroup.procs && exec "$@"`, "-", binary, "run", "--quiet", "--record", "none", "--",
		"bash", "-c", `most=0; for ((i = 0; i < 40; i++)); do read -r n <$DIR/pids.current; ((n > most)) && most=$n; read -rt 0.05 <>$FIFO; done; echo $most`)
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	cmd.Env = append(cmd.Environ(), "DIR="+dir, "FIFO="+fifo)
	r := finish(t, cmd)
	n, err := strconv.Atoi(strings.TrimSpace(r.stdout))
	if n--; err != nil || n < 2 || n > most {
		t.Errorf("%d tasks beside the command, %v\n%s%s", n, err, r.stdout, r.stderr)
	}
}
