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
	// signalAgain is how soon the same signal from the same sender is reported again:
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
