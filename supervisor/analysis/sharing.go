package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// SharingSeen is the warning of the loader hook that a data set of many tensors is sent to
// workers which are not forked. Descriptors run out a tenth of a second after that begins,
// before any count gets near. Sharing is never nil.
type SharingSeen struct {
	*event.LoaderSaid
	At time.Duration
}

// TooMuch is what there would not be enough of, empty where all suffices. What
// goes in one message goes after all is open, and of two limits the lower one is
// met first.
func (s *SharingSeen) TooMuch() event.Cause {
	n := s.Sharing
	maps, fds := n.MaxMaps > 0 && n.Maps > n.MaxMaps, n.MaxFDs > 0 && n.FDs > n.MaxFDs
	switch {
	case maps && (!fds || n.MaxMaps < n.MaxFDs):
		return event.CauseMaps
	case fds, n.MaxSent > 0 && n.Sent > n.MaxSent:
		return event.CauseFDs
	}
	return ""
}

// SentHolds is for how long after it a failure is laid to it: the workers import
// torch before they take what was sent.
const SentHolds = 2 * time.Minute

// warned takes in a warning, and returns the one that counts: the last of one that takes too much, else the last.
func warned(old *SharingSeen, at time.Duration, s *event.LoaderSaid) *SharingSeen {
	if s.What != event.LoaderPickling || s.Sharing == nil {
		return old
	}
	n := &SharingSeen{s, at}
	if old == nil || old.PID == s.PID || n.TooMuch() != "" || old.TooMuch() == "" {
		return n
	}
	return old
}
