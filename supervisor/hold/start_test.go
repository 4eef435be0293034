package hold

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The reader of a pipe sees its end when the command closes it, not when we
// end: nothing of ours holds it.
func TestPipeEndsWithCommandsClose(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	must(t, err)
	hold, end := filepath.Join(dir, "hold"), filepath.Join(dir, "end")
	must(t, unix.Mkfifo(hold, 0o600))
	cmd := run(t, held(config{Watch: "good", Log: filepath.Join(dir, "log")}, "sh", "-c",
		fmt.Sprintf("exec 3>&- 1>&-; read x <%s; : >%s", hold, end))...)
	cmd.ExtraFiles = []*os.File{w}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	w.Close()
	for name, f := range map[string]io.Reader{"descriptor 3": r, "stdout": out} {
		done := make(chan struct{})
		go func() { io.Copy(io.Discard, f); close(done) }()
		select {
		case <-done:
		case <-time.After(8 * time.Second):
			t.Errorf("%s: the reader still waits though the command has closed it", name)
		}
	}
	if wardentest.Read(end) != "" {
		t.Error("the command had ended already")
	}
	f, err := os.OpenFile(hold, os.O_WRONLY, 0)
	must(t, err)
	f.Close()
	waitStatus(t, cmd)
}

// The watcher has the descriptors it was promised, stderr, its link and
// nothing else of the user.
func TestWatcherDescriptors(t *testing.T) {
	var files []*os.File
	for range 5 {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		defer w.Close()
		files = append(files, w)
	}
	k := startCounted(t, config{Watch: "good", Keep: []int{6, 4}}, func(cmd *exec.Cmd) { cmd.ExtraFiles = files })
	target := func(pid, fd int) string {
		s, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		return s
	}
	for fd := 3; fd <= 7; fd++ {
		of := target(k.command, fd)
		if !strings.HasPrefix(of, "pipe:") {
			t.Errorf("the command's descriptor %d is %q", fd, of)
		}
		has := target(k.watcher, fd) == of
		if kept := fd == 4 || fd == 6; has != kept {
			t.Errorf("the watcher's descriptor %d is %q, kept: %v", fd, target(k.watcher, fd), kept)
		}
		if fd != 4 && fd != 6 && target(k.holder, fd) == of {
			t.Errorf("the holder holds descriptor %d", fd)
		}
	}
	for fd := range 2 {
		if s := target(k.watcher, fd); s != os.DevNull {
			t.Errorf("the watcher's descriptor %d is %q", fd, s)
		}
	}
	if a, b := target(k.watcher, 2), target(k.command, 2); a != b {
		t.Errorf("the watcher's stderr is %q, not %q", a, b)
	}
	k.end(t)
}
