package torchtest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//go:embed warm.py
var warmScript string

// warm is a Python of a stand that has imported torch and runs programs in forks of itself.
type warm struct {
	mu   sync.Mutex
	in   io.Writer // nil before the first program
	pids chan int
	ends sync.Map // chan syscall.WaitStatus by PID
}

// Start runs a Python program in a process group of its own, without the seconds that an
// import of torch takes: it is a fork of a process that has imported it. The end comes once.
func (s *Stand) Start(tb testing.TB, env []string, stdout, stderr *os.File, args ...string) (pid int, end <-chan syscall.WaitStatus) {
	tb.Helper()
	w := &s.warm
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.in == nil {
		w.begin(tb, s)
	}
	vars := map[string]string{}
	for _, v := range env {
		key, value, _ := strings.Cut(v, "=")
		vars[key] = value
	}
	file := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	line, err := json.Marshal([]any{args, vars, file(stdout), file(stderr)})
	if err == nil {
		_, err = w.in.Write(append(line, '\n'))
	}
	pid, ok := <-w.pids
	if err != nil || !ok {
		tb.Fatalf("the Python that has imported torch is gone: %v", err)
	}
	return pid, w.end(pid)
}

func (w *warm) end(pid int) chan syscall.WaitStatus {
	c, _ := w.ends.LoadOrStore(pid, make(chan syscall.WaitStatus, 1))
	return c.(chan syscall.WaitStatus)
}

// begin starts it. It ends with the pipe, when this process ends.
func (w *warm) begin(tb testing.TB, s *Stand) {
	tb.Helper()
	cmd := s.Command(tb, Python, "-c", warmScript)
	cmd.Env = append(CleanEnv(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	w.in, w.pids = in, make(chan int)
	go func() {
		defer close(w.pids)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var pid int
			var status *syscall.WaitStatus
			if json.Unmarshal(lines.Bytes(), &[]any{&pid, &status}) != nil {
				return
			}
			if status == nil {
				w.pids <- pid
			} else {
				w.end(pid) <- *status
			}
		}
	}()
}
