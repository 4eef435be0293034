package tell

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Signals remembers which signals were told lately.
type Signals struct {
	last map[event.Signal]time.Duration
}

const (
	// signalAgain is how soon the same signal from the same sender is told again:
	// a window that is resized sends dozens of SIGWINCH.
	signalAgain = time.Second
	// mostSignals bounds what is remembered, by signals of as many senders.
	mostSignals = 64
)

// Fresh says that a signal is to be told.
func (s *Signals) Fresh(now time.Duration, sig event.Signal) bool {
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

// SignalName gives "SIGTERM"; "SIG34" for one without a name.
func SignalName(signal int) string {
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", signal)
}
