// Package tell hands on what a run has to say: lines for people, events for the stream,
// the record and the clients of the control socket. A sink owns its state and takes
// values; it never waits, and what it loses it counts.
package tell

import (
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// Fan hands what a run has to say to all sinks that take it.
type Fan struct {
	*events
	Readers  Readers
	Record   Record
	Textfile Textfile
	Alerts   Alerts
	Status   Status
	Helps    Helps
	Findings Findings
	Limits   Limits
	Sum      Summary
	signals  signals
	samples  samples
}

// New returns a Fan that writes lines, of each node of a job with its name, and events where
// the settings say so.
func New(lines Lines, set *settings.Settings, run Run) *Fan {
	out := newEvents(lines, set, run)
	return &Fan{
		events: out, Record: Record{out: out}, Textfile: Textfile{out: out}, Alerts: Alerts{out: out, Comment: Comment{out: out}},
		Status: Status{out: out}, Helps: Helps{out: out}, Findings: Findings{out: out}, Limits: Limits{out: out}, samples: samples{out: out},
	}
}

// early is by how much what is told at intervals may come early, with a look that is due.
const early = counts.Tolerance
