package workers

import (
	"fmt"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// RaisedFiles is what the hook did for --nofile, as an event and as a line.
func RaisedFiles(s *event.LoaderSaid) (event.Cure, string) {
	c := event.Cure{
		Remedy: event.RemedyNoFile, PID: s.PID, OK: s.Reason == "",
		Before: int64(s.Sharing.Before), After: int64(s.Sharing.MaxFDs), Reason: s.Reason,
	}
	if !c.OK {
		return c, fmt.Sprintf("--nofile: the descriptors of process %d could not be raised from %s: %s", s.PID, text.Digits(uint64(c.Before)), c.Reason)
	}
	line := fmt.Sprintf("--nofile: process %d may have %s descriptors now, %s before", s.PID, text.Digits(uint64(c.After)), text.Digits(uint64(c.Before)))
	if s.Sharing.FDs > s.Sharing.MaxFDs {
		line += fmt.Sprintf("; it will need %s", text.Digits(uint64(s.Sharing.FDs)))
	}
	return c, line
}
