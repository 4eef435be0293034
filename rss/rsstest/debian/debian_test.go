package debian_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
)

// TestMain is also a program of the tests: with "self" as its first argument
// the test binary says that it ran.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "self" {
		fmt.Print("self")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", cmd.Args, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		suite  debian.Suite
		script string
		want   string
	}{
		{debian.Trixie, "import sys; print(sys.version)", `^3\.13\.`},
		{debian.Trixie, "import torch; print(torch.__version__)", `^2\.6\.`},
		{debian.Trixie, "import h5py; print(h5py.__version__)", `^3\.`},
		{debian.Trixie, "import lmdb; print(lmdb.__version__)", `^1\.`},
		{debian.Trixie, "import numpy; print(numpy.__version__)", `^2\.`},
		{debian.Trixie, "import subprocess; subprocess.run(['slurmd', '-V'])", `^slurm-wlm 24\.11\.`},
		{debian.Sid, "import sys; print(sys.version)", `^3\.1[4-9]\.`},
		{debian.Sid, "import torch, lmdb, h5py, numpy, psutil, accelerate, joblib, loky, multiprocess; print(torch.__version__)", `^2\.`},
		{debian.Sid, "import subprocess; subprocess.run(['slurmd', '-V'])", `^slurm-wlm 2[6-9]\.`},
		{debian.Sid, "import subprocess; subprocess.run(['apptainer', '--version'])", `^apptainer version 1\.`},
	} {
		t.Run(string(c.suite), func(t *testing.T) {
			got := run(t, debian.Need(t, c.suite).Command("python3", "-c", c.script))
			if t.Log(got); !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("%q prints %q, want %s", c.script, got, c.want)
			}
		})
	}
	if _, err := os.Stat(debian.Need(t, debian.Trixie).Path("/usr/bin/python3.13")); err != nil {
		t.Error(err)
	}
}

// A command shares with its caller all but /usr and /etc.
func TestSharedWithTheCaller(t *testing.T) {
	root := debian.Need(t, debian.Trixie)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, root.Command(self, "self")); got != "self" {
		t.Errorf("the test binary said %q", got)
	}

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("from outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := root.Command("sh", "-c", "pwd; cat in; echo from inside >out")
	cmd.Dir = dir
	if got, want := run(t, cmd), dir+"\nfrom outside"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(b) != "from inside\n" {
		t.Errorf("out holds %q, %v", b, err)
	}

	for _, ns := range []string{"pid", "net", "ipc", "uts", "user", "cgroup"} {
		link := "/proc/self/ns/" + ns
		want, err := os.Readlink(link)
		if err != nil {
			t.Fatal(err)
		}
		if got := run(t, root.Command("readlink", link)); got != want {
			t.Errorf("namespace %s is %s, the caller's %s", ns, got, want)
		}
	}
	for _, mount := range []string{"/dev/shm", "/proc", "/sys"} {
		want := run(t, exec.Command("stat", "-c", "%d", mount))
		if got := run(t, root.Command("stat", "-c", "%d", mount)); got != want {
			t.Errorf("%s is device %s, the caller's %s", mount, got, want)
		}
	}
}

func TestProcessIsTheCommand(t *testing.T) {
	c := rsstest.StartChild(t, debian.Need(t, debian.Trixie).Command("sh", "-c", "echo $$; exec cat"))
	if pid, err := c.Line(); pid != strconv.Itoa(c.PID) {
		t.Errorf("the command runs as %s, started as %d, %v", pid, c.PID, err)
	}
}

func TestRootIsReadOnlyAndInvisible(t *testing.T) {
	root := debian.Need(t, debian.Trixie)
	for _, name := range []string{"/usr/planted", "/etc/planted", root.Path("planted"), root.Path("usr/planted")} {
		if out, err := root.Command("touch", name).CombinedOutput(); err == nil {
			os.Remove(name)
			t.Errorf("%s could be written", name)
		} else if !bytes.Contains(out, []byte("Read-only file system")) {
			t.Errorf("touch %s: %v: %s", name, err, out)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(root.Path("/"))) {
		t.Errorf("a mount of the root is seen outside:\n%s", mounts)
	}
}

func TestUnknownCommand(t *testing.T) {
	cmd := debian.Need(t, debian.Trixie).Command("rsswarden-no-such-command")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 127 {
		t.Errorf("got %v, want status 127", err)
	}
}
