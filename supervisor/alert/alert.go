// Package alert sends alerts about crossed rungs to Alertmanager and to webhooks.
//
// A [Store] holds the alerts: one per limit and rung, firing until the rung is left, and
// resolved ones for a while after that. A receiver decides what to send next and when, with
// back-off. Both are pure. A [Sender] runs them on a goroutine of its own: each message is
// carried by a process of another program, one at a time and for [SendTime] at most, so that
// the watcher links nothing of the network. Where a receiver does not answer, the newest
// state wins: only the present state of an alert waits, and what was lost is counted.
package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

type Alert struct {
	// Job is empty outside Slurm. Run is the short name of the sender: two that watch the
	// same limit, with different options or one from outside, differ in it, so that the
	// end of one resolves nothing of the other's. Step is that of the limit,
	// empty where it is not of one step.
	Job, Run, Step, Node string
	Limit                event.LimitName
	Scope                event.Scope
	Rung                 string // "80%": the condition of the rule, without what it does
	ETA                  bool   // … is on a forecast
	Action               event.Action
	Since                time.Time
	Test                 bool // nothing is wrong: see [Try]

	// Used, Size and Left (seconds to the limit, nil without a forecast) are as read
	// last; Size is 0 where the limit was not read.
	Used, Size rss.Bytes
	Left       *float64
	Summary    string // a sentence
	Text       string // what the numbers mean, and what is done
}

// Name is the alertname: alerts on memory as one have two, as it can be forecast.
func (a *Alert) Name() string {
	if a.Test {
		return "RsswardenTest"
	}
	if name := a.Limit.Row().Alert; name != "" {
		return name
	}
	if a.ETA {
		return "RsswardenMemoryFullSoon"
	}
	return "RsswardenMemoryNearLimit"
}

const (
	SeverityWarning  = "warning"
	SeverityCritical = "critical" // the job is about to be ended, by us
)

func (a *Alert) Severity() string {
	if a.Action.Row().Ends {
		return SeverityCritical
	}
	return SeverityWarning
}

// Labels tell one alert from all others, as name and value in the order of the
// names. All are from closed lists, or as few as jobs, runs, nodes and rules are; a
// process, a command, a user or a path is in none.
func (a *Alert) Labels() [][2]string {
	all := [][2]string{
		{"action", string(a.Action)}, {"alertname", a.Name()}, {"jobid", a.Job}, {"limit", string(a.Limit)}, {"node", a.Node},
		{"run", a.Run}, {"rung", a.Rung}, {"scope", string(a.Scope)}, {"severity", a.Severity()}, {"step", a.Step},
	}
	return slices.DeleteFunc(all, func(l [2]string) bool { return l[1] == "" })
}

// ID is short for the labels.
func (a *Alert) ID() string {
	text := ""
	for _, l := range a.Labels() {
		text += l[0] + "\x00" + l[1] + "\x00"
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
