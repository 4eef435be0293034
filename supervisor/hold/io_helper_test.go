package hold

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// answerAsIOHelper answers with what it is asked, unless that is how it is to fail.
func answerAsIOHelper() {
	ask, err := Asked()
	switch {
	case err != nil:
		os.Exit(1)
	case string(ask) == "die":
		os.Exit(0)
	case string(ask) == "hang":
		time.Sleep(time.Hour)
	}
	if Answer(ask) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// TestIOHelper: what is asked and answered may be longer than a socket holds; one that dies
// or says nothing is an error, in time. Neither a descriptor nor a process is left.
func TestIOHelper(t *testing.T) {
	descriptors := func() int {
		fds, err := filepath.Glob("/proc/self/fd/*")
		wardentest.NoError(t, err)
		return len(fds)
	}
	argv := []string{"/proc/self/exe", "aside"}
	before := descriptors()
	long := bytes.Repeat([]byte("long "), 1<<18)
	if got, err := RunIOHelper(argv, long, time.Minute); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
	}
	if got, err := RunIOHelper(argv, []byte("die"), time.Minute); err != errEnded {
		t.Errorf("of one that dies %q, %v", got, err)
	}
	var left *UnansweredError
	if got, err := RunIOHelper(argv, []byte("hang"), 100*time.Millisecond); !errors.As(err, &left) || left.PID != 0 {
		t.Errorf("of one that hangs %q, %v", got, err)
	}
	if got, err := RunIOHelper([]string{"/none", "aside"}, nil, time.Minute); err != unix.ENOENT {
		t.Errorf("of none %q, %v", got, err)
	}
	if n := descriptors() - before; n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
	if pid, _, _, ok := takeOther(0); ok {
		t.Errorf("process %d is left", pid)
	}
}
