package trim

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

func init() { modes["trace"] = traceOn }

// traceOn traces without an end: TRIM_TEST_MODE=trace PID FILE. It says when it
// has trimmed once.
func traceOn(args []string) int {
	if len(args) != 2 {
		return 2
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	pieces, err := piecesOf(pid, args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tr := NewTracer()
	said := false
	for n := 0; ; n++ {
		a := tr.Do(pieces[n%len(pieces)])
		switch {
		case a.Refusal == None && !said:
			fmt.Println("trimmed")
			said = true
		case a.Refusal != None && !a.Refusal.Passing():
			fmt.Println("refused:", a.Refusal.Reason())
			return 1
		}
	}
}

// Whoever traces may be killed at any moment: the process lives, and is right.
// Where the tracer stood in the midst of its call, the thread's own call may
// return as from a spurious wake-up.
func TestTracerKilled(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] != '0' && os.Geteuid() != 0 {
		t.Skip("Yama lets no sibling trace")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dice := newDice(t)
	kinds := []string{"futex", "poll", "nanosleep", "epoll_wait"}
	// Alone, the main thread is the one that is borrowed; beside readers, the
	// others stand still as well.
	beside := []int{0, 2}
	var longest time.Duration
	for n := range times(8, 40) {
		kind, readers := kinds[n%len(kinds)], beside[n/len(kinds)%len(beside)]
		p := startReaders(t, 64<<20, readers, 0, kind, 5, false)
		blocked := statusLine(t, p.pid, "SigBlk")
		cmd := exec.Command(self, strconv.Itoa(p.pid), p.data)
		cmd.Env = append(os.Environ(), "TRIM_TEST_MODE=trace")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		pass(dice, 20*time.Millisecond)
		_ = cmd.Process.Kill()
		killed := time.Now()
		_ = cmd.Wait()
		if line != "trimmed\n" {
			t.Fatalf("%s, %d readers: the tracer said %q, %v", kind, readers, line, err)
		}
		letGo(t, p.pid, "RSD")
		longest = max(longest, time.Since(killed))
		loops, pages := p.counter(readLoops).Load(), p.counter(readPages).Load()
		until(t, "it lives on", func() bool {
			return p.counter(readLoops).Load() > loops+3 && p.counter(readPages).Load() > pages+100
		})
		if now := statusLine(t, p.pid, "SigBlk"); now != blocked {
			t.Errorf("%s, %d readers: it blocks the signals %s, and %s before", kind, readers, now, blocked)
		}
		eintrs := p.counter(readEINTRs).Load()
		if kind == "epoll_wait" && eintrs == 1 {
			// It reports that itself at a stop, and nobody was left to mend it.
			eintrs = 0
		}
		if wrong, woken := p.counter(readWrong).Load(), p.counter(readWoken).Load(); wrong+woken+eintrs > 0 {
			t.Errorf("%s, %d readers: %d pages wrong, %d wrong results (the last %d), EINTR %d times",
				kind, readers, wrong, woken, int64(p.counter(readLastWoken).Load()), eintrs)
		}
		t.Logf("%s, %d readers: %d pages, too early %d times", kind, readers, pages, p.counter(readEarly).Load())
		// Nothing of the dead one's is in the way of the next.
		tr, y := NewTracer(), tally{}
		y.all(t, tr, p.pieces())
		tr.Close()
		p.stop()
	}
	t.Logf("let go after at most %v", longest)
}
