package tell

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// signals remembers which signals were told lately.
type signals struct {
	last map[event.Signal]time.Duration
}

const (
	// signalAgain is how soon the same signal from the same sender is told again:
	// a window that is resized sends dozens of SIGWINCH.
	signalAgain = time.Second
	// mostSignals bounds what is remembered, by signals of as many senders.
	mostSignals = 64
)

// fresh says that a signal is to be told.
func (s *signals) fresh(now time.Duration, sig event.Signal) bool {
	last, again := s.last[sig]
	if again && now-last < signalAgain {
		return false
	}
	if s.last == nil || len(s.last) >= mostSignals {
		s.last = map[event.Signal]time.Duration{}
	}
	s.last[sig] = now
	return true
}

// Signal tells of a signal that reached the holder. perSecond is by how much a limit is
// approached.
func (f *Fan) Signal(now time.Duration, e event.Signal, limits []event.Limit, perSecond func(*event.Limit) float64) {
	if !f.signals.fresh(now, e) {
		return
	}
	if e.Sender > 0 {
		e.Comm = commOf(f.Run.Proc, e.Sender)
	}
	if e.Signal == "SIGTERM" && strings.HasPrefix(e.Comm, "slurmstepd") {
		f.Sum.Term(now, limits, perSecond)
	}
	f.Put(event.NameSignal, func(h event.Head) any { e.Head = h; return e })
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

// SignalName gives "SIGTERM"; "SIG34" for one without a name.
func SignalName(signal int) string {
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", signal)
}
