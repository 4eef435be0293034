package hold

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

func TestExitStatus(t *testing.T) {
	each(t, 256, func(i int) {
		cmd := run(t, held(config{}, probe, "exit", strconv.Itoa(i))...)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		if s := waitStatus(t, cmd); !s.Exited() || s.ExitStatus() != i {
			t.Errorf("exit %d: got %v", i, s)
		}
	})
}

func TestDeathBySignal(t *testing.T) {
	each(t, 64, func(i int) {
		sig := i + 1
		switch sig {
		case 17, 18, 19, 20, 21, 22, 23, 28:
			return // these do not kill
		}
		cmd := run(t, held(config{}, probe, "die", strconv.Itoa(sig))...)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		if s := waitStatus(t, cmd); !s.Signaled() || int(s.Signal()) != sig || s.CoreDump() {
			t.Errorf("signal %d: got %v, core %v", sig, s, s.CoreDump())
		}
	})
}

func each(t *testing.T, n int, f func(int)) {
	t.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	plain := filepath.Join(dir, "plain")
	must(t, os.WriteFile(script, []byte("exit $((40 + $#))\n"), 0o755))
	must(t, os.WriteFile(plain, []byte("exit 0\n"), 0o644))
	for _, test := range []struct {
		name string
		argv []string
		want int
	}{
		{"not found", []string{filepath.Join(dir, "missing")}, 127},
		{"not executable", []string{plain}, 126},
		{"a directory", []string{dir}, 126},
		{"a script without #!", []string{script, "a", "b"}, 42},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := run(t, held(config{}, test.argv...)...)
			cmd.Stderr = nil
			if s := runStatus(t, cmd); s.ExitStatus() != test.want {
				t.Errorf("got %v, want %d", s, test.want)
			}
		})
	}
}
