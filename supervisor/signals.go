package supervisor

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// signals remembers which signals were told lately.
type signals struct{ last map[hold.Signal]time.Duration }

const (
	// signalAgain is how soon the same signal from the same sender is told again:
	// a window that is resized sends dozens of SIGWINCH.
	signalAgain = time.Second
	// mostSignals bounds what is remembered, by signals of as many senders.
	mostSignals = 64
)

// fresh says that a signal is to be told.
func (s *signals) fresh(now time.Duration, sig hold.Signal) bool {
	last, again := s.last[sig]
	if again && now-last < signalAgain {
		return false
	}
	if s.last == nil || len(s.last) >= mostSignals {
		s.last = map[hold.Signal]time.Duration{}
	}
	s.last[sig] = now
	return true
}

// tellSignal tells of a signal that reached the holder.
func (w *watcher) tellSignal(sig hold.Signal) {
	w.sum.requeue.heardEnd(sig)
	if !w.signals.fresh(w.now(), sig) {
		return
	}
	e := event.Signal{Signal: signalName(sig.Signal), Sender: sig.Sender, Forwarded: sig.Forwarded}
	if sig.Sender > 0 {
		e.Comm = commOf(w.Proc, sig.Sender)
	}
	if sig.Signal == int(unix.SIGTERM) && strings.HasPrefix(e.Comm, "slurmstepd") {
		w.sum.term(w.now(), w.readings, func(l *event.Limit) float64 { return w.rate(l).PerSecond(w.now()) })
	}
	w.tell.Put(event.NameSignal, func(h event.Head) any { e.Head = h; return e })
}

// tellSignals tells of those that wait to be told: of what ended the command,
// nothing may be left out because its end was told of first.
func (w *watcher) tellSignals() {
	for {
		select {
		case m := <-w.Link.Messages():
			if sig, ok := m.(hold.Signal); ok {
				w.tellSignal(sig)
			}
		default:
			return
		}
	}
}

// commOf is the name of a process, by /proc/PID/comm, which nothing makes wait
// (proc_pid_comm(5)); empty where it is gone or hidden.
func commOf(proc string, pid int) string {
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "comm"), procfile.Small)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// signalName gives "SIGTERM"; "SIG34" for one without a name.
func signalName(signal int) string {
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", signal)
}
