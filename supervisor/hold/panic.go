package hold

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type internalError struct {
	what any
	at   string
}

// caught wraps what recover returned, nil for nothing. A deferred function calls it.
func caught(what any) *internalError {
	if what == nil {
		return nil
	}
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	b := &internalError{what: what, at: "somewhere"}
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.Contains(f.File, "/supervisor/fault/") {
			b.at = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
			return b
		}
		if !more {
			return b
		}
	}
}

func (b *internalError) Error() string { return fmt.Sprintf("internal error: %v at %s", b.what, b.at) }

// sound runs f and returns its panic.
func sound(f func()) (b *internalError) {
	defer func() { b = caught(recover()) }()
	f()
	return nil
}

// signalBroke is deferred where a signal is judged: it passes this one on, and those
// that were read together with it follow.
func (h *holder) signalBroke(a *arrival) {
	if b := caught(recover()); b != nil {
		h.broke = b
		h.passOn(a)
	}
}

// passOn forwards without asking the witness. A signal to the whole group may arrive twice.
func (h *holder) passOn(a *arrival) {
	fromKernel := a.code > 0 && (fromTerminal | ownUse).has(a.signo)
	if !fromKernel && (a.pid == 0 || a.pid != h.self && a.pid != h.watcher.pid && a.pid != h.pid) {
		forward(h.pidfd, h.pid, a)
	}
}

// lastResort replaces the loop after a bug of ours: it waits for the command's end, passes
// signals on and lets the watcher flush. It shares with the rest no more than that needs,
// and kills nothing.
func (h *holder) lastResort() Status {
	h.log.say("the holder failed; the command runs on, its signals and its end are passed on", h.broke)
	if sound(h.outlast) != nil {
		for !h.ended {
			h.takeCommand()
			nap()
		}
	}
	sound(h.lastWords)
	sound(h.log.flush)
	return h.final()
}

func (h *holder) outlast() {
	deaf := false
	for {
		if h.takeCommand(); !h.ended {
			h.takeOthers()
		}
		if h.ended {
			return
		}
		// The watcher may hold the command stopped, and wait for an answer.
		deaf = deaf || sound(func() { h.trims.answer(h); h.receive() }) != nil
		if !h.trims.out {
			h.mirrorStop()
		}
		h.readSignals()
		h.readNoted()
		fds := [4]unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}, {Fd: int32(h.signals), Events: unix.POLLIN}, {Fd: int32(h.noted), Events: unix.POLLIN}, {Fd: -1}}
		if !deaf {
			fds[3] = unix.PollFd{Fd: int32(h.watcher.link), Events: unix.POLLIN}
		}
		unix.Poll(fds[:], 1000)
		h.pace()
	}
}

func (h *holder) takeCommand() {
	if code, status, ok := takeEnd(h.pid); ok {
		h.finish(code, status)
	}
}

func (h *holder) takeOthers() {
	for {
		pid, code, status, ok := takeOther(h.pid)
		switch {
		case !ok:
			return
		case pid == h.pid:
			h.finish(code, status)
			return
		case pid == h.watcher.pid:
			h.watcher.pid = 0
		}
		h.moved = true
	}
}

// lastWords gives the watcher Options.Flush to write what is left.
func (h *holder) lastWords() {
	w := &h.watcher
	if w.pid == 0 || w.link < 0 {
		return
	}
	if !w.told {
		unix.Kill(w.pid, unix.SIGCONT)
		h.send(&message{kind: kindExit, a: int32(h.status.Code), b: int32(h.status.Signal)})
	}
	for end := time.Now().Add(h.opts.Flush); time.Now().Before(end); nap() {
		if _, _, ok := takeEnd(w.pid); ok {
			return
		}
	}
	unix.Kill(w.pid, unix.SIGKILL)
}
