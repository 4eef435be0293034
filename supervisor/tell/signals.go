package tell

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// signals remembers which signals were told lately, and when.
type signals map[event.Signal]time.Duration

const (
	// signalAgain is how soon the same signal from the same sender is reported again:
	// a window that is resized sends dozens of SIGWINCH.
	signalAgain = time.Second
	// mostSignals bounds what is remembered, by signals of as many senders.
	mostSignals = 64
)

// fresh says that a signal is to be told.
func (s *signals) fresh(now time.Duration, sig event.Signal) bool {
	if last, again := (*s)[sig]; again && now-last < signalAgain {
		return false
	}
	if *s == nil || len(*s) >= mostSignals {
		*s = signals{}
	}
	(*s)[sig] = now
	return true
}

// SignalName gives "SIGTERM"; "SIG34" for one without a name.
func SignalName(signal int) string {
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", signal)
}
