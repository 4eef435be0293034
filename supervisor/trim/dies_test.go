package trim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that ends in the midst of a trim ends as ever: its parent gets the
// status, also where that is the process that traces.
func TestProcessDies(t *testing.T) {
	dice := newDice(t)
	tr, y := newTracer(t), tally{}
	ways := []struct {
		how  string
		want func(unix.WaitStatus) bool
	}{
		{"kill", func(s unix.WaitStatus) bool { return s.Signaled() && s.Signal() == unix.SIGKILL }},
		{"exit", func(s unix.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 7 }},
		{"exec", func(s unix.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 9 }},
		{"leader", func(s unix.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 7 }},
	}
	met := 0 // ends with trims done before
	total := times(60, 400)
	for n := range total {
		way, grandchild := ways[n%len(ways)], n/len(ways)%2 == 1
		name := way.how
		args := []string{way.how, strconv.Itoa(dice.IntN(8000))}
		if grandchild {
			name += " of a grandchild"
			args = append(args, "parent")
		}
		p := start(t, "dies", dataFile(t, 16<<20), args...)
		if (p.pid != p.child) != grandchild {
			t.Fatalf("%s: PID %d, child %d", name, p.pid, p.child)
		}
		pieces, err := piecesOf(p.pid, p.data)
		before, over := y.done(), make(chan bool)
		go func() {
			defer close(over)
			if err != nil {
				return // It was faster.
			}
			for {
				began := time.Now()
				a := y.do(t, tr, pieces[0])
				if d := time.Since(began); d > 2*time.Second {
					t.Errorf("%s: a trim took %v (answer %+v)", name, d, a)
				}
				switch {
				case a.Refusal == Vanished || t.Failed():
					return
				case a.Refusal == Changed: // after execve
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
		if way.how == "kill" {
			pass(dice, 8*time.Millisecond)
			if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		status := p.wait()
		if grandchild {
			line, err := p.lines.ReadString('\n')
			n, scan := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "status ")))
			if scan != nil || status != 0 {
				t.Fatalf("%s: its parent said %q, %v, and ended with %#x", name, line, err, status)
			}
			status = unix.WaitStatus(n)
		}
		if !way.want(status) {
			t.Errorf("%s: wait status %#x", name, uint32(status))
		}
		select {
		case <-over:
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: the trim of an ended process goes on: %s", name, states(p.pid))
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.pid)); err == nil {
			t.Errorf("%s: left over: %s", name, states(p.pid))
		}
		if y.done() > before {
			met++
		}
		p.stop()
		if t.Failed() {
			t.Fatalf("%s, %d of %d: %s", name, n, total, &y)
		}
	}
	t.Logf("%d ends, %d of them of processes that were being trimmed; %s", total, met, &y)
	if met < total/5 {
		t.Errorf("%d of %d ends only were of processes that were being trimmed", met, total)
	}
}
