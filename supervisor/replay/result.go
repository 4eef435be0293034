package replay

import (
	"encoding/json"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Version is the value of "v" in the JSON of a result. Fields are only added.
const Version = 1

// Options say what is to be different. The zero value replays what was.
type Options struct {
	// Limit replaces the size of one limit; 0 leaves it as recorded.
	Limit rss.Bytes
	// Accounting is how the limit that is meant adds memory up; empty for the one that was
	// binding at its fullest among cgroup, slurm and user. Where the record has no such limit,
	// or none at all, it is one on the tree, as --limit of a run is, added up from the
	// processes (RSS unless Accounting says otherwise).
	Accounting event.Accounting
	// Rules replace the ladder; nil leaves it as recorded, and one without rules
	// does nothing at all.
	Rules []event.Rule
}

type Fate string

// The fates.
const (
	Lives   Fate = "lives"
	Dies    Fate = "dies"
	Unknown Fate = "unknown"
)

// Result is what a replay comes to: what `replay --json` prints.
type Result struct {
	V       int       `json:"v"`
	Run     string    `json:"run"`     // record.Meta.ID
	Command []string  `json:"command"` // of the run
	Start   time.Time `json:"start"`   // the wall clock where at_s is 0
	End     float64   `json:"end_s"`   // the last sample, in seconds since Start

	// Estimate says that the limit or the rules are not those of the record, so
	// that Decisions, Rungs, Fate and Death rest on the model of this package.
	Estimate bool `json:"estimate"`
	// Limit is the limit that is meant, nil where the record has nothing that
	// could be limited.
	Limit *Limit   `json:"limit"`
	Rules []string `json:"rules"` // the ladder, from mild to hard

	Decisions []Decision `json:"decisions"`
	Rungs     []Rung     `json:"rungs"` // one for each of Rules, in their order

	Fate Fate `json:"fate"`
	// Why is one sentence with the reason for Fate.
	Why string `json:"why"`
	// Death says how and when, nil unless Fate is [Dies].
	Death *Death `json:"death"`

	// Same says, of a replay with nothing changed, that the decisions are those
	// of the record. It is nil where Estimate is set, and where the record does not have
	// all that the ladder was given: then the decisions were not made again.
	Same *bool   `json:"same"`
	Tick float64 `json:"tick_s"` // the time between two samples, at most
	// Missed are recorded decisions that were not made here.
	Missed []Recorded `json:"missed"`

	// Least is the least size of Limit with which the job would have lived, by
	// each way of asking; the last is left out where no rule of the ladder acts.
	Least []Least `json:"least"`
	// Notes say what is missing or doubtful.
	Notes []string `json:"notes"`
}

// Limit is the limit that a replay is about.
type Limit struct {
	Name       event.LimitName  `json:"limit"`
	Scope      event.Scope      `json:"scope"`
	Accounting event.Accounting `json:"accounting,omitempty"`
	Level      string           `json:"level,omitempty"`
	// Recorded is its size in the record, when it was fullest; 0 where the
	// record has no such limit.
	Recorded rss.Bytes `json:"recorded_bytes"`
	Size     rss.Bytes `json:"limit_bytes"` // its size in this replay, 0 where it has none
	// Peak is the most that the record says was used of it, at At seconds.
	Peak rss.Bytes `json:"peak_bytes"`
	At   float64   `json:"peak_s"`
}

// Decision is one firing of a rule in the replay.
type Decision struct {
	At     float64         `json:"at_s"` // seconds since the start of the record
	Rule   string          `json:"rule"`
	Limit  event.LimitName `json:"limit"`
	Action event.Action    `json:"action"`
	Arg    string          `json:"arg,omitempty"`
	// Used and Size are the limit's, Used as the model has it where Estimate is set.
	Used rss.Bytes `json:"used_bytes"`
	Size rss.Bytes `json:"limit_bytes"`
	ETA  *float64  `json:"eta_s"`
	// Freed is what the model says that the action gave back of the limit, an
	// estimate; 0 where the action is one of the record, or frees nothing.
	Freed rss.Bytes `json:"freed_estimate_bytes,omitempty"`
	// Recorded is the decision of the record that this one is, nil for none.
	Recorded *Recorded `json:"recorded"`
}

type Recorded struct {
	ID   uint64    `json:"id"`
	At   float64   `json:"at_s"`
	Rule string    `json:"rule"`
	Used rss.Bytes `json:"used_bytes"`
	// Freed is what its outcome says, measured.
	Freed rss.Bytes `json:"freed_bytes"`
}

type Rung struct {
	Rule  string   `json:"rule"`
	Count int      `json:"count"`
	First *float64 `json:"first_s"` // seconds since the start, nil where it never did
	// Met is when it was first crossed and its action not asked for, Reason and Detail
	// why; nil and empty where that never was.
	Met    *float64     `json:"met_s,omitempty"`
	Reason event.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"`
}

// Death is the end of the job in a replay.
type Death struct {
	At float64 `json:"at_s"`
	// Limit is the limit that ended it, empty where a stop rule or something unknown did.
	Limit event.LimitName `json:"limit,omitempty"`
	By    string          `json:"by"` // the limit's enforcer, the rule, or what the record says
	Used  rss.Bytes       `json:"used_bytes,omitempty"`
	Size  rss.Bytes       `json:"limit_bytes,omitempty"`
}

// Way is a way of asking for the least size.
type Way string

// The ways.
const (
	// AsRecorded: what actions freed then is freed again. It rests on what was
	// read alone, once a second.
	AsRecorded Way = "as recorded"
	// WithoutActions: what actions freed is added back. An estimate.
	WithoutActions Way = "without actions"
	// WithLadder: the ladder acts, by the model, as it would with that size. An
	// estimate, found by halving, to 1 %; a smaller one may do by chance.
	WithLadder Way = "with the ladder"
)

// Least is the least size of the limit with which the job would have lived.
type Least struct {
	Way      Way  `json:"way"`
	Estimate bool `json:"estimate"`
	// Mem is that size, rounded up to 1 MiB; 0 where none was found. Most is above
	// it where the truth is only known to lie between the two, 0 where it is not
	// known how far above, else the same.
	Mem  rss.Bytes `json:"mem_bytes"`
	Most rss.Bytes `json:"mem_most_bytes"`
	// AtLeast says that more may be needed: the record ends with the job's death.
	AtLeast bool `json:"at_least,omitempty"`
}

type plainDecision Decision

// MarshalJSON writes a limit on a number as package event does: "used" and
// "limit_count" in the place of "used_bytes" and "limit_bytes".
func (d Decision) MarshalJSON() ([]byte, error) {
	if !d.Limit.Counts() {
		return json.Marshal((*plainDecision)(&d))
	}
	type none *struct{}
	recorded := any(d.Recorded)
	if r := d.Recorded; r != nil {
		recorded = struct {
			ID   uint64    `json:"id"`
			At   float64   `json:"at_s"`
			Rule string    `json:"rule"`
			Used rss.Bytes `json:"used"`
		}{r.ID, r.At, r.Rule, r.Used}
	}
	return event.Beside(struct {
		*plainDecision
		Used     none `json:"used_bytes,omitempty"`
		Size     none `json:"limit_bytes,omitempty"`
		Recorded none `json:"recorded,omitempty"`
	}{plainDecision: (*plainDecision)(&d)}, struct {
		Used     rss.Bytes `json:"used"`
		Size     rss.Bytes `json:"limit_count"`
		Recorded any       `json:"recorded"`
	}{d.Used, d.Size, recorded})
}
