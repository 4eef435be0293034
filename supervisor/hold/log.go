package hold

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

const flushed = "\x00"

// logger keeps a slow or stuck stderr away from the loop.
type logger struct {
	lines chan string
	done  chan struct{}
}

func (l *logger) open(log func(string)) {
	if log == nil {
		return
	}
	l.lines, l.done = make(chan string, 16), make(chan struct{})
	go func() {
		defer close(l.done)
		for s := range l.lines {
			if s == flushed {
				return
			}
			sound(func() {
				fault.Point("holder-log")
				log(s)
			})
		}
	}()
}

// say drops what does not fit.
func (l *logger) say(what string, err error) {
	if l.lines == nil {
		return
	}
	if err != nil {
		what = fmt.Sprintf("%s: %v", what, err)
	}
	select {
	case l.lines <- what:
	default:
	}
}

// flush gives what was said a moment. The starter may still say something:
// the channel is never closed.
func (l *logger) flush() {
	if l.lines == nil {
		return
	}
	l.say(flushed, nil)
	within(200*time.Millisecond, l.done)
}
