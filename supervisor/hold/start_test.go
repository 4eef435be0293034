package hold

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

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
