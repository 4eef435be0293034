package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestFindLeaders: they are found below the places that the environment names, that
// running rsswardens have in theirs, and that these see in mount namespaces of their
// own; one that is seen two ways is one, and a socket that others could have made is none.
func TestFindLeaders(t *testing.T) {
	base := t.TempDir()
	mine := "rsswarden-" + strconv.Itoa(os.Geteuid())
	socket := func(mode os.FileMode, elements ...string) {
		t.Helper()
		dir := filepath.Join(append([]string{base}, elements...)...)
		wardentest.NoError(t, os.MkdirAll(dir, 0o700))
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		wardentest.NoError(t, err)
		defer syscall.Close(fd)
		wd, err := os.Getwd()
		if err == nil {
			err = os.Chdir(dir) // the address has room for 108 bytes
		}
		if err == nil {
			err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: "control"})
			_ = os.Chdir(wd)
		}
		if err == nil {
			err = os.Chmod(dir, mode)
		}
		wardentest.NoError(t, err)
	}
	socket(0o700, "tmp", mine, "lead.46@n1.00000000")
	socket(0o700, "tmp", mine, "lead.run.4711.99")
	socket(0o755, "tmp", mine, "lead.47@n1.00000000")          // others can enter it
	socket(0o700, "tmp", mine, "46.0.0")                       // a run directory
	socket(0o700, "scratch", mine, "lead.48@n1.1")             // of another process's TMPDIR
	socket(0o700, "hidden/tmp", mine, "lead.49@n1.2")          // of another's /tmp
	socket(0o700, "hidden/tmp", "rsswarden-0", "lead.50@n1.3") // in a user namespace
	socket(0o700, "stranger", mine, "lead.51@n1.4")
	if err := os.Mkdir(filepath.Join(base, "tmp", mine, "lead.52@n1.0"), 0o700); err != nil { // no socket
		t.Fatal(err)
	}
	wardentest.NoError(t, os.Symlink(filepath.Join(base, "scratch", mine, "lead.48@n1.1"), filepath.Join(base, "tmp", mine, "lead.53@n1.0")))

	proc := filepath.Join(base, "proc")
	process := func(pid int, comm, environ, space, root string) {
		t.Helper()
		dir := filepath.Join(proc, strconv.Itoa(pid))
		err := os.MkdirAll(filepath.Join(dir, "ns"), 0o700)
		for name, text := range map[string]string{"comm": comm + "\n", "environ": environ} {
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
			}
		}
		if err == nil {
			err = os.Symlink(space, filepath.Join(dir, "ns", "mnt"))
		}
		if err == nil {
			err = os.Symlink(root, filepath.Join(dir, "root"))
		}
		wardentest.NoError(t, err)
	}
	process(1<<22+1, "rsswarden", "A=b\x00TMPDIR="+base+"/scratch\x00", "mnt:[1]", "/")
	process(1<<22+2, "rsswarden", "TMPDIR="+base+"/tmp\x00", "mnt:[1]", "/") // which is ours
	process(1<<22+3, "rsswarden", "", "mnt:[2]", base+"/hidden")
	process(1<<22+4, "python", "TMPDIR="+base+"/stranger\x00", "mnt:[1]", "/")
	wardentest.NoError(t, os.Symlink(fmt.Sprint(1<<22+1), filepath.Join(proc, "self")))

	var jobs []string
	for _, l := range findLeaders(proc, func(name string) string { return map[string]string{"TMPDIR": base + "/tmp"}[name] }) {
		// This machine's own /tmp may have some too.
		if rest, err := filepath.Rel(base, l.dir); err == nil && !filepath.IsAbs(rest) && rest[:2] != ".." {
			jobs = append(jobs, l.job)
		}
	}
	slices.Sort(jobs)
	if !slices.Equal(jobs, []string{"", "46", "48", "49", "50"}) {
		t.Errorf("found %q", jobs)
	}
}
