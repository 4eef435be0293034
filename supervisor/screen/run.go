// Package screen shows people what control says of the nodes of a job: limits with
// their forecasts, ranks and processes, live on a terminal or once as text.
//
// A [Model] is all that the screen knows. [Model.Update] takes what happened, a key
// or an answer of the nodes, and returns the next model and what is to be done;
// [Model.View] makes a [Frame] of it, a grid of characters. Neither reads a file or
// a clock. [Run] is the rest: the terminal's modes, the signals, and the bytes that
// turn one frame into the next.
//
// Sizes in tables are in MiB. The front of the frame is what the command status prints.
package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

// Options say what is shown, and where.
type Options struct {
	In, Out *os.File // the terminal
	Model   Model    // to begin with; its size is that of the terminal
	// Fetch asks the nodes. It is called again each Model.Interval, and once it has
	// returned.
	Fetch func(context.Context) ([]control.Status, []error)
	// Do carries out an order and passes on each line of the answer.
	Do func(ctx context.Context, o Order, each func(control.Result)) error
}

// askTime is how long one question to the nodes may take.
const askTime = 30 * time.Second

// SignalError says that a signal ended [Run], which has given the terminal back.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "ended by " + unix.SignalName(e.Signal) }

// ending are the signals that end a program on a terminal.
var ending = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT}

// stopTime is how long a signal to stop may take to do it. Where it had no effect,
// because no shell is there to say fg, the screen comes back.
const stopTime = 200 * time.Millisecond

// crash is a panic of one of the goroutines, on its way to where the terminal can
// be given back first.
type crash struct {
	value any
	stack []byte
}

// resumed says that the program was not stopped, or is no more.
type resumed struct{}

// run is a screen that is on.
type run struct {
	Options
	t      *terminal
	p      painter
	m      Model
	ctx    context.Context
	events chan any
	// changed says that the window or who is in front has changed.
	changed chan os.Signal
}

// Run shows the screen until a key, a signal or an error ends it. However it ends, the
// terminal is as it was before.
func Run(ctx context.Context, o Options) (err error) {
	t, err := openTerminal(o.In, o.Out)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{Options: o, t: t, m: o.Model, ctx: ctx, events: make(chan any), changed: make(chan os.Signal, 2)}
	r.m.Live = true

	stop, stopped, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer stop.Close()
	// In front of what sets the modes: a signal in between would leave them. Not
	// SIGTSTP, whose default the Go runtime does not give back: ^Z comes as a key.
	ends := make(chan os.Signal, 4)
	signal.Notify(r.changed, syscall.SIGWINCH, syscall.SIGCONT)
	signal.Notify(ends, ending...)
	defer signal.Stop(r.changed)
	defer signal.Stop(ends)
	r.safely(func() { r.ends(ends) })

	defer t.leave()
	if err := t.enter(); err != nil {
		return err
	}
	read := make(chan struct{})
	r.safely(func() { defer close(read); t.keys(stop, r.send) })
	defer func() {
		cancel() // the reader may be about to send a key that is not waited for any more
		stopped.Close()
		<-read
	}()
	r.safely(r.fetch)
	return r.loop()
}

// safely starts a goroutine whose panic ends the program only after the terminal
// was given back.
func (r *run) safely(f func()) {
	go func() {
		defer func() {
			if v := recover(); v != nil {
				r.send(crash{v, debug.Stack()})
			}
		}()
		f()
	}()
}

func (r *run) send(event any) {
	select {
	case r.events <- event:
	case <-r.ctx.Done():
	}
}

// fetch asks again and again.
func (r *run) fetch() {
	for r.ctx.Err() == nil {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.ctx, askTime)
		statuses, errs := r.Fetch(ctx)
		cancel()
		r.send(Answer{statuses, errs, time.Now()})
		select {
		case <-time.After(time.Until(began.Add(r.Model.Interval))):
		case <-r.ctx.Done():
		}
	}
}

// ends passes on a signal that is to end us. It does, even where the terminal
// takes nothing more and the loop waits for that.
func (r *run) ends(c <-chan os.Signal) {
	for {
		var s os.Signal
		select {
		case s = <-c:
		case <-r.ctx.Done():
			return
		}
		select {
		case r.events <- s:
		case <-r.ctx.Done():
			return
		case <-time.After(time.Second):
			if number, ok := s.(syscall.Signal); ok {
				r.t.restoreModes()
				Raise(number)
			}
		}
	}
}

// Raise ends the program by a signal, as if nothing had caught it.
func Raise(s syscall.Signal) {
	signal.Reset(s)
	_ = unix.Kill(os.Getpid(), s)
	time.Sleep(time.Second) // it is another thread's to take
	os.Exit(128 + int(s))
}

func (r *run) loop() error {
	size := r.t.size()
	r.m.now = time.Now()
	r.m, _ = r.m.Update(size)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if r.t.inside {
			if err := r.t.write(r.p.draw(r.m.View())); err != nil {
				return err
			}
		}
		// What came meanwhile is seen in one frame.
		var event any
		select {
		case event = <-r.events:
		case event = <-r.changed:
		case now := <-tick.C:
			event = Tick(now)
		}
		for more := true; more; {
			if done, err := r.handle(event); done {
				return err
			}
			select {
			case event = <-r.events:
			default:
				more = false
			}
		}
	}
}

// handle does what an event asks for, and says whether it was the last.
func (r *run) handle(event any) (done bool, err error) {
	switch e := event.(type) {
	case gone:
		return true, nil
	case crash:
		r.t.leave()
		panic(fmt.Sprintf("%v\n\n%s", e.value, e.stack))
	case resumed:
		if !r.t.inside {
			err = r.comeBack()
		}
		return err != nil, err
	case syscall.Signal:
		switch e {
		case syscall.SIGCONT:
			err = r.comeBack()
			return err != nil, err
		case syscall.SIGWINCH:
			event = r.t.size()
		default:
			return true, &SignalError{e}
		}
	}
	var effects []Effect
	r.m, effects = r.m.Update(event)
	for _, e := range effects {
		switch e {
		case Quit:
			return true, nil
		case Suspend:
			r.suspend()
		case Redraw:
			r.p.forget()
		case Do:
			r.do(r.m.Newest())
		}
	}
	return false, nil
}

// suspend gives the terminal back and stops the whole process group, as ^Z does.
func (r *run) suspend() {
	r.t.leave()
	_ = unix.Kill(0, syscall.SIGTSTP)
	r.safely(func() {
		time.Sleep(stopTime)
		r.send(resumed{})
	})
}

// comeBack takes the terminal again. Whoever had it in between may have left
// anything on it.
func (r *run) comeBack() error {
	r.p.forget()
	if err := r.t.enter(); err != nil {
		return err
	}
	r.m, _ = r.m.Update(r.t.size())
	return nil
}

// do carries out an order on the side.
func (r *run) do(o Order) {
	r.safely(func() {
		err := errors.New("nothing can be asked for here")
		if r.Do != nil {
			err = r.Do(r.ctx, o, func(res control.Result) { r.send(Said{o.ID, res}) })
		}
		r.send(Ended{o.ID, err})
	})
}

// Once asks the nodes one time and returns a frame without keys, and what kept
// nodes from answering. The frame is nil where no node did.
func Once(ctx context.Context, o Options) (*Frame, []error) {
	m, errs := once(ctx, o, o.Model)
	if m.Empty() {
		return nil, errs
	}
	return m.View(), errs
}

func once(ctx context.Context, o Options, m Model) (Model, []error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	statuses, errs := o.Fetch(ctx)
	m, _ = m.Update(Answer{statuses, errs, time.Now()})
	return m, errs
}

// Scroll is for a terminal that can only scroll: one frame below the other, until
// ctx ends or the terminal is gone.
func Scroll(ctx context.Context, o Options) error {
	if _, err := io.WriteString(o.Out, "by TERM this terminal can only scroll: keys do nothing, Ctrl-C ends top\n"); err != nil {
		return fmt.Errorf("cannot write to the terminal: %w", err)
	}
	for m := o.Model; ; {
		began := time.Now()
		size := SizeOf(o.Out)
		m.W, m.H = size.W-1, max(1, size.H-1)
		m, _ = once(ctx, o, m)
		if _, err := io.WriteString(o.Out, m.View().Text()+"\n"); err != nil {
			return fmt.Errorf("cannot write to the terminal: %w", err)
		}
		select {
		case <-time.After(time.Until(began.Add(m.Interval))):
		case <-ctx.Done():
			return nil
		}
	}
}
