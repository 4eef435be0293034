package trim

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The counters of testdata/readers.c.
const (
	readPages = iota
	readWrong
	readLoops
	readWoken
	readEINTRs
	readEarly
	readSignals
	readPause
	readPaused
	readLongest
	readLastWoken
)

// startReaders starts readers, sleepers and a main thread asleep in kind, for
// ever or for some milliseconds at a time.
func startReaders(t *testing.T, size, readers, sleepers int, kind string, ms int, alarm bool) *tracee {
	t.Helper()
	ring := "0"
	if alarm {
		ring = "1"
	}
	return start(t, "readers", dataFile(t, size), strconv.Itoa(readers), strconv.Itoa(sleepers), kind, strconv.Itoa(ms), ring)
}

// rightPages checks that pages were read, and that all held what they should.
func rightPages(t *testing.T, p *tracee) {
	t.Helper()
	pages, wrong := p.counter(readPages).Load(), p.counter(readWrong).Load()
	t.Logf("%d pages read", pages)
	if pages == 0 || wrong != 0 {
		t.Errorf("%d of %d pages wrong", wrong, pages)
	}
}

// neverWoken checks that the main thread, asleep for ever, slept on.
func neverWoken(t *testing.T, p *tracee) {
	t.Helper()
	if woken, eintrs := p.counter(readWoken).Load(), p.counter(readEINTRs).Load(); woken+eintrs > 0 {
		t.Errorf("the main thread's call returned %d times, and %d times with EINTR", woken, eintrs)
	}
}

// all trims each piece until it is done. It gives up on a deadline, and on a
// refusal that is for good.
func (y *tally) all(t *testing.T, tr *Tracer, pieces []Piece) {
	t.Helper()
	for _, p := range pieces {
		for deadline := time.Now().Add(time.Minute); ; {
			a := y.do(t, tr, p)
			if a.Refusal == None {
				break
			}
			if !a.Refusal.Passing() || time.Now().After(deadline) {
				t.Fatalf("given up after %s", y)
			}
		}
	}
}

// Four readers find the same bytes in every page, however often these are taken
// from under them.
func TestReaders(t *testing.T) {
	const size = 272 << 20
	dice := newDice(t)
	p := startReaders(t, size, 4, 0, "futex", -1, false)
	tr, y := newTracer(t), tally{}
	pieces := p.pieces()
	for range wardentest.Few(2000, 60) {
		y.all(t, tr, pieces)
		pass(dice, 5*time.Millisecond)
	}
	t.Log(&y)
	rightPages(t, p)
	neverWoken(t, p)

	// Without readers, trimmed pages stay away.
	p.counter(readPause).Store(1)
	wardentest.Until(t, "readers pause", func() bool { return p.counter(readPaused).Load() == 4 })
	y.all(t, tr, pieces)
	if n := rssFile(t, p.pid); n > size/32 {
		t.Errorf("RssFile is %d MiB after %d MiB were trimmed", n>>20, size>>20)
	}
	// And they go on.
	before := p.counter(readPages).Load()
	p.counter(readPause).Store(0)
	wardentest.Until(t, "readers read", func() bool { return p.counter(readPages).Load() > before+1000 })
	if n := rssFile(t, p.pid); n == 0 {
		t.Error("nothing came back")
	}
	rightPages(t, p)
}

// The threads that read are interrupted by signals all the time, one of them at
// every stop.
func TestReadersUnderAlarm(t *testing.T) {
	dice := newDice(t)
	p := startReaders(t, 64<<20, 2, 0, "poll", -1, true)
	tr, y := newTracer(t), tally{}
	pieces := p.pieces()
	for range wardentest.Few(2000, 100) {
		y.all(t, tr, pieces)
		pass(dice, 3*time.Millisecond)
	}
	t.Logf("%d signals, %s", p.counter(readSignals).Load(), &y)
	before := p.counter(readSignals).Load()
	wardentest.Until(t, "signals go on", func() bool { return p.counter(readSignals).Load() > before })
	rightPages(t, p)
	neverWoken(t, p)
}

// With many threads the stop is as long as the last one takes to stand; how
// long that is, the log says.
func TestNoise(t *testing.T) {
	dice := newDice(t)
	p := startReaders(t, 64<<20, 20, 43, "futex", -1, false)
	tr, y := newTracer(t), tally{}
	piece := p.pieces()[0]
	wardentest.Until(t, "all read", func() bool { return p.counter(readPages).Load() > 100_000 })
	alone := time.Duration(p.counter(readLongest).Swap(0))
	var attached time.Duration
	for deadline := time.Now().Add(2 * time.Minute); y.done() < wardentest.Few(500, 30); pass(dice, 5*time.Millisecond) {
		a := y.do(t, tr, piece)
		if a.Refusal == None {
			attached = max(attached, a.Attached)
			if a.Threads != 64 {
				t.Errorf("%d threads", a.Threads)
			}
		}
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("given up after %s", &y)
		}
	}
	t.Logf("64 threads: %s, until all stood at most %v; a reader waited %v at most, %v before", &y, attached, time.Duration(p.counter(readLongest).Load()), alone)
	rightPages(t, p)
	neverWoken(t, p)
}

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
	total := wardentest.Few(400, 60)
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

// The tracer may be killed at any moment: the process lives, and is right.
// Where the tracer was in the middle of its call, the thread's own call may
// return as from a spurious wake-up.
func TestTracerKilled(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && b[0] != '0' && os.Geteuid() != 0 {
		t.Skip("Yama lets no sibling trace")
	}
	dice := newDice(t)
	kinds := []string{"futex", "poll", "nanosleep", "epoll_wait"}
	// Alone, the main thread is the one that is borrowed; beside readers, the
	// others stand still as well.
	beside := []int{0, 2}
	var longest time.Duration
	for n := range wardentest.Few(40, 8) {
		kind, readers := kinds[n%len(kinds)], beside[n/len(kinds)%len(beside)]
		p := startReaders(t, 64<<20, readers, 0, kind, 5, false)
		blocked := wardentest.StatusLine(t, p.pid, "SigBlk")
		cmd := asMode(0, "trace", strconv.Itoa(p.pid), p.data)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
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
		wardentest.Until(t, "it lives on", func() bool {
			return p.counter(readLoops).Load() > loops+3 && p.counter(readPages).Load() > pages+100
		})
		if now := wardentest.StatusLine(t, p.pid, "SigBlk"); now != blocked {
			t.Errorf("%s, %d readers: it blocks the signals %s, and %s before", kind, readers, now, blocked)
		}
		eintrs := p.counter(readEINTRs).Load()
		if kind == "epoll_wait" && eintrs == 1 {
			// epoll_wait reports EINTR itself at a stop; a dead tracer cannot restart it.
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

// A process that is stopped and continued by signals all the time ends in the
// state that the last of them asks for. Calls that EINTR is not in store for at
// each SIGCONT (signal(7)) do not see it.
func TestStopSignals(t *testing.T) {
	cutByStops := map[string]bool{
		"epoll_wait": true, "epoll_wait_timed": true, "epoll_pwait": true, "sigtimedwait": true, "sigwaitinfo": true,
		"recv_timed": true, "semop": true, "semtimedop": true,
	}
	dice := newDice(t)
	var all []int
	for k := range blocking {
		all = append(all, k)
	}
	for _, last := range []unix.Signal{unix.SIGCONT, unix.SIGSTOP} {
		t.Run(unix.SignalName(last), func(t *testing.T) {
			b := startBlocked(t, all...)
			tr, y := newTracer(t), tally{}
			p := b.pieces()[0]
			var signals uint64
			send := func(s unix.Signal) {
				if err := unix.Kill(b.pid, s); err != nil {
					t.Error(err)
				}
				signals++
			}
			gaps := dice.Uint64()
			enough, stormed := make(chan bool), make(chan bool)
			go func() {
				defer close(stormed)
				storm := []unix.Signal{unix.SIGSTOP, unix.SIGTSTP, unix.SIGCONT, unix.SIGCONT, unix.SIGCONT}
				for going := true; going; {
					select {
					case <-enough:
						going = false
					default:
					}
					gaps = mix(gaps)
					send(storm[gaps%uint64(len(storm))])
					time.Sleep(time.Duration(gaps>>8%3000) * time.Microsecond)
				}
				send(last)
			}()
			wanted := wardentest.Few(400, 20)
			for deadline := time.Now().Add(time.Minute); y.done() < wanted || y.answers[Stopped] < wanted; pass(dice, 2*time.Millisecond) {
				if y.do(t, tr, p); t.Failed() || time.Now().After(deadline) {
					t.Errorf("the storm and the trims did not meet: %s", &y)
					break
				}
			}
			close(enough)
			<-stormed
			if last == unix.SIGSTOP {
				letGo(t, b.pid, "T")
				if a := tr.Do(p); a.Refusal != Stopped {
					t.Errorf("a stopped process: %+v", a)
				}
				letGo(t, b.pid, "T")
				send(unix.SIGCONT)
			}
			letGo(t, b.pid, "RSD")
			y.all(t, tr, []Piece{p})
			letGo(t, b.pid, "RSD")
			t.Logf("%d signals, %s", signals, &y)
			b.undisturbed(t, func(kind int) uint64 {
				if cutByStops[blocking[kind].name] {
					return signals
				}
				return 0
			})
			if n := b.counter(blockMain).Load(); n > 0 {
				t.Errorf("the main thread's read returned %d times", n)
			}
		})
	}
}

// The one thread that there is takes the stop while it is borrowed, or before,
// or after: it is stopped in the end.
func TestStopNotLost(t *testing.T) {
	dice := newDice(t)
	b := startBlocked(t, 0)
	if !blocking[0].lends || blocking[0].timed {
		t.Fatalf("%s is no call to borrow from at leisure", blocking[0].name)
	}
	tr, y := newTracer(t), tally{}
	p := b.pieces()[0]
	for n := range wardentest.Few(3000, 150) {
		delay := time.Duration(dice.IntN(200_000))
		began, sent := time.Now(), make(chan error)
		go func() {
			for time.Since(began) < delay { // less than a timer can tell
			}
			sent <- unix.Kill(b.pid, unix.SIGSTOP)
		}()
		y.do(t, tr, p)
		must(t, <-sent)
		letGo(t, b.pid, "T")
		must(t, unix.Kill(b.pid, unix.SIGCONT))
		letGo(t, b.pid, "S")
		if t.Failed() {
			t.Fatalf("at %d: %s", n, &y)
		}
	}
	t.Log(&y)
	if y.done() == 0 {
		t.Error("nothing was trimmed")
	}
	b.undisturbed(t, never)
}

// While a thread puts other memory in the place of the mapping, none of that is
// lost: this is what all threads are stopped for.
func TestMovingMaps(t *testing.T) {
	const (
		turns = iota
		lost
		wrong
		woken
		begin = 8
	)
	dice := newDice(t)
	p := start(t, "moving", dataFile(t, 2<<20))
	pieces := p.pieces()
	p.counter(begin).Store(1)
	tr, y := newTracer(t), tally{}
	wardentest.Until(t, "it moves", func() bool { return p.counter(turns).Load() > 0 })
	n := wardentest.Few(2000, 200)
	for deadline := time.Now().Add(5 * time.Minute); y.done()+y.answers[Changed] < n || y.done() < n/20 || y.answers[Changed] < n/20; {
		y.do(t, tr, pieces[0])
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("given up after %s", &y)
		}
		pass(dice, time.Millisecond)
	}
	// What was done to the last pattern is seen when it is verified.
	before := p.counter(turns).Load()
	wardentest.Until(t, "it moves on", func() bool { return p.counter(turns).Load() > before+1 })
	t.Logf("%d turns, %s", before, &y)
	if n := p.counter(lost).Load(); n > 0 {
		t.Errorf("%d words of its own memory lost", n)
	}
	if n := p.counter(wrong).Load() + p.counter(woken).Load(); n > 0 {
		t.Errorf("%d wrong pages of the file, or returns of the sleeper", n)
	}
}
