package hold

import (
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
