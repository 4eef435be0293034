package trim

import (
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
