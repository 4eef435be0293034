package supervisor

import (
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

// tellSignal tells of a signal that reached the holder.
func (w *watcher) tellSignal(sig hold.Signal) {
	w.requeue.heardEnd(sig)
	e := event.Signal{Signal: tell.SignalName(sig.Signal), Sender: sig.Sender, Forwarded: sig.Forwarded}
	if !w.tell.Signals.Fresh(w.now(), e) {
		return
	}
	if sig.Sender > 0 {
		e.Comm = commOf(w.Proc, sig.Sender)
	}
	if sig.Signal == int(unix.SIGTERM) && strings.HasPrefix(e.Comm, "slurmstepd") {
		w.sum.Term(w.now(), w.readings, func(l *event.Limit) float64 { return w.rate(l).PerSecond(w.now()) })
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
