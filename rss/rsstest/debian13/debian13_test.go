package debian13_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian13"
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
	root := debian13.Need(t)
	for _, c := range []struct{ what, script, want string }{
		{"Python", `import sys; print(sys.version)`, `^3\.13\.`},
		{"torch", `import torch; print(torch.__version__)`, `^2\.6\.`},
		{"h5py", `import h5py; print(h5py.__version__)`, `^3\.`},
		{"lmdb", `import lmdb; print(lmdb.__version__)`, `^1\.`},
		{"numpy", `import numpy; print(numpy.__version__)`, `^2\.`},
	} {
		if got := run(t, root.Command("python3", "-c", c.script)); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s is %q, want %s", c.what, got, c.want)
		}
	}
	if got := run(t, root.Command("slurmd", "-V")); !strings.HasPrefix(got, "slurm-wlm 24.11.") {
		t.Errorf("slurmd -V says %q", got)
	}
	if _, err := os.Stat(root.Path("/usr/bin/python3.13")); err != nil {
		t.Error(err)
	}
}

// What .ci/sid got is there where it is asked for, and nowhere else; the bare root is at
// /mnt, also for those who may not pass the folders above it.
func TestSid(t *testing.T) {
	sid := debian13.NeedSid(t)
	nobody := []string{"--reuid", "65534", "--regid", "65534", "--clear-groups"}
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"apptainer", "--version"}, `^apptainer version 1\.`},
		{[]string{"python3", "-c", `import importlib.metadata as m; print(m.version("accelerate"))`}, `^1\.`},
		{[]string{"python3", "-c", `import torch; print(torch.__version__)`}, `^2\.6\.`},
		{append([]string{"setpriv"}, append(nobody, "ls", "/mnt/usr/bin/python3.13")...), `^/mnt/usr/bin/python3\.13$`},
	} {
		got := run(t, sid.Command(c.words[0], c.words[1:]...))
		if t.Log(got); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%q says %q, want %s", c.words, got, c.want)
		}
	}
	if out, err := debian13.Need(t).Command("apptainer", "--version").CombinedOutput(); err == nil {
		t.Errorf("the root has it too: %s", out)
	}
}

// A command shares with its caller all but /usr and /etc.
func TestSharedWithTheCaller(t *testing.T) {
	root := debian13.Need(t)
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
	cmd := debian13.Need(t).Command("sh", "-c", "echo $$; exec cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var pid int
	if _, err := fmt.Fscan(stdout, &pid); err != nil || pid != cmd.Process.Pid {
		t.Errorf("the command runs as %d, started as %d, %v", pid, cmd.Process.Pid, err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestRootIsReadOnlyAndInvisible(t *testing.T) {
	root := debian13.Need(t)
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
	cmd := debian13.Need(t).Command("rsswarden-no-such-command")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 127 {
		t.Errorf("got %v, want status 127", err)
	}
}
