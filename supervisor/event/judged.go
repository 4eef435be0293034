package event

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Judged is one judgement that has changed what the ladder remembers, with all that it was
// given for it: a replay of these decides the same, to the byte. Sizes are in bytes, or counts.
type Judged struct {
	Head
	N      uint64        `json:"n"`                 // counts from 1 in each watcher: one that is missing was lost
	Now    time.Duration `json:"now_ns"`            // the moment on the watcher's clock
	Given  []Given       `json:"given,omitempty"`   // what the ladder learned since the one before
	Limits []JudgedLimit `json:"limits"`            // what the limits stood at
	Left   time.Duration `json:"left_ns,omitempty"` // the time left of the job; 0 where it has no end
	Asking bool          `json:"asking,omitempty"`  // Slurm is being asked for that
	// Leads are by how much a limit grows until the action of a rule takes effect, and
	// Feasible what actions could do.
	Leads    []JudgedLead     `json:"leads,omitempty"`
	Feasible []JudgedFeasible `json:"feasible,omitempty"`
}

// Given is one thing that the ladder learned between two judgements.
type Given struct {
	Passed  time.Duration `json:"passed_ns,omitempty"` // time went by until then
	Begun   uint64        `json:"begun,omitempty"`     // the decision whose action goes on without the watcher
	Outcome *GivenOutcome `json:"outcome,omitempty"`   // an action has ended
}

// GivenOutcome is what of an outcome the ladder looks at.
type GivenOutcome struct {
	Decision uint64    `json:"decision"`         // the id of the decision
	OK       bool      `json:"ok,omitempty"`     // as in the outcome
	Reason   Reason    `json:"reason,omitempty"` // as in the outcome
	After    rss.Bytes `json:"after"`            // what the limit stood at
	Freed    rss.Bytes `json:"freed,omitempty"`  // what was given back
}

// JudgedLimit is what of a reading the ladder looks at.
type JudgedLimit struct {
	LimitID
	PID  int       `json:"pid,omitempty"`   // the process that is nearest to it
	Used rss.Bytes `json:"used"`            // what it stood at
	Size rss.Bytes `json:"size"`            // what it allows
	ETA  *float64  `json:"eta_s,omitempty"` // the forecast
	Outlook
	Binding bool `json:"binding,omitempty"` // it ends the job first
}

// JudgedLead is by how much a rule fires ahead.
type JudgedLead struct {
	Rule  string    `json:"rule"`        // the rule, as written
	Limit int       `json:"limit_index"` // the index of the limit
	Lead  rss.Bytes `json:"lead"`        // what that grows by until the action takes effect
}

// JudgedFeasible is what the action of a rule could do.
type JudgedFeasible struct {
	Rule  string `json:"rule"`        // the rule, as written
	Limit int    `json:"limit_index"` // the index of the limit, -1 for the job's end
	Feasibility
}

// On is the limit of that index, that of the job's end for -1.
func (j *Judged) On(index int) LimitID {
	if index < 0 || index >= len(j.Limits) {
		return LimitID{Name: LimitTime, Scope: ScopeJob}
	}
	return j.Limits[index].LimitID
}
