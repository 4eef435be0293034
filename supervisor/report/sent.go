package report

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// lookSent is the warning of the loader hook that a data set of many tensors is sent to
// workers which are not forked. Descriptors run out a tenth of a second after that begins,
// before any count gets near. Sharing is never nil.
type lookSent struct {
	*event.LoaderSaid
	at time.Duration
}

// sentHolds is for how long after it a failure is laid to it: the workers import
// torch before they take what was sent.
const sentHolds = 2 * time.Minute

// warned takes in a warning: the last of one that takes too much, else the last.
func (k *look) warned(at time.Duration, s *event.LoaderSaid) {
	if s.What != event.LoaderPickling || s.Sharing == nil {
		return
	}
	n := &lookSent{s, at}
	if old := k.sent; old == nil || old.PID == s.PID || n.tooMuch() != "" || old.tooMuch() == "" {
		k.sent = n
	}
}

// tooMuch is what there would not be enough of, empty where all suffices. What
// goes in one message goes after all is open, and of two limits the lower one is
// met first.
func (s *lookSent) tooMuch() event.Cause {
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

// sentTooMuch says that a failure may be laid to a warning.
func (q *inquest) sentTooMuch() bool {
	return q.sent != nil && q.end-q.sent.at <= sentHolds && q.sent.tooMuch() != ""
}
