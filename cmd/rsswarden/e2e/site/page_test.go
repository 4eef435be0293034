package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// onFreshMachine is set on a machine on which nothing of ours was installed: what is written
// there goes to a file system in memory, and its network is its own.
const onFreshMachine = "RSSTEST_FRESH"

// enter makes that machine of this one, $1 is an empty directory, $2 where to go on with the rest.
const enter = `set -e
mount -t tmpfs fresh "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" fresh "$1/root"
for dir in proc sys dev; do mount --rbind /$dir "$1/root/$dir"; done
ip link set lo up
ip addr add 10.99.0.1/32 dev lo # or glibc resolves no name (AI_ADDRCONFIG)
root=$1/root dir=$2
shift 2
exec chroot "$root" sh -c 'cd "$1"; shift; exec "$@"' sh "$dir" "$@"
`

// systemctl is what there is of systemd there: it starts what a unit says.
const systemctl = `#!/bin/bash
case $* in
daemon-reload) exit ;;
"enable --now rsswardend" | "restart rsswardend") ;;
*) exit 1 ;;
esac
[ ! -e /run/rsswardend.pid ] || kill "$(cat /run/rsswardend.pid)"
start=$(cat /lib/systemd/system/rsswardend.service /etc/systemd/system/rsswardend.service.d/*.conf 2>/dev/null | sed -n 's/^ExecStart=/exec /p' | tail -n 1)
STATE_DIRECTORY=$(mktemp -d) bash -c "$start" >>/var/log/rsswardend 2>&1 &
echo $! >/run/rsswardend.pid
until curl -s http://127.0.0.1:9759/metrics >/dev/null; do sleep 0.1; done
`

// TestPage follows docs/site.md by its commands alone, on a cluster of two nodes.
func TestPage(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to install packages")
	if err := slurmtest.Missing(); err != nil {
		t.Skip(err)
	}
	if os.Getenv(onFreshMachine) != "" {
		follow(t)
		return
	}
	for _, name := range []string{"dpkg-buildpackage", "ip", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	dist := t.TempDir()
	wardentest.NoError(t, os.Chmod(filepath.Dir(dist), 0o755))
	if out, errs, err := wardentest.Output("bash", wardentest.Path(t, "examples/packages/release.sh"), dist, "v0.0.1", "amd64"); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	here, err := os.Getwd()
	wardentest.NoError(t, err)
	cmd := exec.Command("unshare", "--mount", "--net", "--propagation", "private", "--", "sh", "-c", enter, "sh",
		t.TempDir(), here, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), onFreshMachine+"="+dist)
	out, errs, err := wardentest.Run(cmd)
	if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

// follow types the commands of the page, and looks at what each block has done.
func follow(t *testing.T) {
	dist := os.Getenv(onFreshMachine)
	c := slurmtest.Start(t, slurmtest.Linux, options)
	etc := filepath.Dir(c.Conf())
	wardentest.NoError(t, os.RemoveAll("/etc/slurm"))
	wardentest.NoError(t, os.Symlink(etc, "/etc/slurm"))
	wardentest.NoError(t, os.WriteFile("/usr/local/bin/systemctl", []byte(systemctl), 0o755))
	defer exec.Command("sh", "-c", "kill $(cat /run/rsswardend.pid)").Run()
	parents := func(options ...string) string {
		t.Helper()
		got := c.Srun(t, append(options, "-N2", "-n2", "--mem=2000", "sh", "-c", parent)...)
		if got.Code != 0 || unnumbered(got.Stderr) != "" {
			t.Errorf("%q: %+v", options, got)
		}
		return strings.ReplaceAll(got.Stdout, "\n", ";")
	}
	const bare, wrapped = "by slurmstepd;by slurmstepd;", "by rsswarden;by rsswarden;"
	for _, block := range commands(string(wardentest.ReadFile(t, wardentest.Path(t, "docs/site.md")))) {
		cmd := exec.Command("bash", "-ec", block)
		cmd.Dir, cmd.Env = dist, append(os.Environ(), "SLURM_CONF="+c.Conf())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", block, err, out)
		}
		t.Logf("%s", block)
		switch {
		case strings.Contains(block, "/metrics") && !strings.Contains(string(out), "rsswarden_"):
			t.Errorf("rsswardend says:\n%s", out)
		case strings.Contains(block, "echo 'optional"):
			if by, on := parents(), parents("--rsswarden=on"); by != bare || on != wrapped {
				t.Errorf("default=off: %s with --rsswarden=on: %s", by, on)
			}
		case strings.Contains(block, "default=on"):
			if by, off := parents(), parents("--rsswarden=off"); by != wrapped || off != bare {
				t.Errorf("default=on: %s with --rsswarden=off: %s", by, off)
			}
		case strings.Contains(block, "TaskProlog"):
			if got := c.Srun(t, "--mem=2000", "sh", "-c", `echo "$PYTHONPATH"`); !strings.Contains(got.Stdout, "/hook-") {
				t.Errorf("TaskProlog: %+v", got)
			}
		case strings.Contains(block, "/d'"):
			if by := parents(); by != bare {
				t.Errorf("the way back: %s", by)
			}
		}
	}
}

// commands are the blocks of commands of a page, in their order.
func commands(page string) (blocks []string) {
	in := false
	for line := range strings.Lines(page) {
		command, is := strings.CutPrefix(line, "    ")
		if is && !in {
			blocks = append(blocks, "")
		}
		if in = is; is {
			blocks[len(blocks)-1] += command
		}
	}
	return blocks
}
