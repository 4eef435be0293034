package event

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Saved is what rsswarden did in a run, as a [Ledger] has it.
type Saved struct {
	Actions []ActionSum `json:"actions,omitempty"` // from mild to hard
	// WorkerTrims counts trims that workers made by themselves to keep to their budget, and
	// Dropped the pages of those. A page that was read again and dropped again counts twice:
	// the sum is no amount of memory. Trims that a rule asked for are in Actions alone.
	WorkerTrims int       `json:"worker_trims,omitempty"`
	Dropped     rss.Bytes `json:"worker_trims_dropped_bytes,omitempty"`
	// Recycled counts workers that were replaced, by rules, by hand, or between two epochs.
	Recycled int `json:"recycled,omitempty"`
	// Revived counts workers that had died and were replaced, without those that were
	// restarted together with one.
	Revived int `json:"revived,omitempty"`
	// Helped counts actions that freed memory the job needed.
	Helped int `json:"helped,omitempty"`
}

// Ledger sums up what is done in a run: the same while it runs and afterwards, fed by the
// same events. The zero value is ready.
type Ledger struct {
	Saved
	open map[uint64]openDecision // decisions without an outcome, by ID
}

// openDecision is what counting its outcome needs of a decision.
type openDecision struct {
	action   Action
	limit    LimitName
	unneeded bool // nothing was short
}

// ActionSum is what the actions of one kind came to.
type ActionSum struct {
	Action Action `json:"action"` // the kind
	Fired  int    `json:"fired"`  // decisions
	Worked int    `json:"worked"` // outcomes that are ok
	// Skipped counts rules that were crossed when the action could not help.
	Skipped  int            `json:"skipped,omitempty"`
	Freed    rss.Bytes      `json:"freed_bytes"`       // by the accounting of the limit
	Paused   float64        `json:"paused_s"`          // how long trainers stood still
	Reasons  map[Reason]int `json:"reasons,omitempty"` // of what did not work or was skipped
	FirstAt  time.Time      `json:"first"`             // when the first was decided on
	LastAt   time.Time      `json:"last"`              // when the last was
	PeakUsed rss.Bytes      `json:"peak_used_bytes"`   // the highest use at which one fired
}

// Sum is what was done of one kind; the zero value where nothing was.
func (s *Saved) Sum(a Action) ActionSum {
	if i := s.index(a); i >= 0 {
		return s.Actions[i]
	}
	return ActionSum{Action: a}
}

func (s *Saved) index(a Action) int {
	return slices.IndexFunc(s.Actions, func(o ActionSum) bool { return o.Action == a })
}

// of is the sum of one kind, made where it was not there, in its place.
func (s *Saved) of(a Action, at time.Time) *ActionSum {
	i := s.index(a)
	if i < 0 {
		i = len(s.Actions)
		for i > 0 && s.Actions[i-1].Action.Severity() > a.Severity() {
			i--
		}
		s.Actions = slices.Insert(s.Actions, i, ActionSum{Action: a, FirstAt: at})
	}
	return &s.Actions[i]
}

// Decided takes in a decision.
func (s *Ledger) Decided(at time.Time, d *Decision) {
	a := s.of(d.Action, at)
	a.Fired++
	a.LastAt = at
	a.PeakUsed = max(a.PeakUsed, d.Used)
	if s.open == nil {
		s.open = map[uint64]openDecision{}
	}
	s.open[d.ID] = openDecision{d.Action, d.Limit, d.Unneeded()}
}

// Finished takes in an outcome: of a decision that it knows, or of a rule that was crossed
// when its action could not help.
func (s *Ledger) Finished(at time.Time, o *Outcome) {
	if o.Decision == 0 && o.Action != "" {
		a := s.of(o.Action, at)
		a.Skipped++
		a.LastAt = at
		a.because(o.Reason)
		return
	}
	d, ok := s.open[o.Decision]
	if !ok {
		return
	}
	delete(s.open, o.Decision)
	a := s.of(d.action, at)
	a.Paused += o.Paused
	if !o.OK {
		a.because(o.Reason)
		return
	}
	a.Worked++
	if d.action == ActionRecycle {
		s.Recycled++
	}
	if d.limit.Counts() {
		return
	}
	a.Freed += o.Freed
	if o.Freed > 0 && !d.unneeded {
		s.Helped++
	}
}

func (a *ActionSum) because(r Reason) {
	if a.Reasons == nil {
		a.Reasons = map[Reason]int{}
	}
	a.Reasons[r]++
}

// TrimRequested is the reason of a trim report that answers a request: the outcome of that
// counts it.
const TrimRequested = "request"

// Said takes in what a loader reported.
func (s *Ledger) Said(l *LoaderSaid) {
	switch {
	case l.What == LoaderTrimmed && l.Count > 0 && l.Reason != TrimRequested:
		s.WorkerTrims += l.Count
		s.Dropped += l.Freed
	case l.What == LoaderRevived && Reason(l.Reason) != ReasonRestarted:
		s.Revived++
	case l.What == LoaderRecycled && Reason(l.Reason).PutOff():
		s.Recycled++ // no action waited for it
		s.of(ActionRecycle, l.Time).Paused += l.Paused
	}
}

// Add takes in another ledger: of another rank's record, or of the job's earlier run.
func (s *Saved) Add(o *Saved) {
	for i := range o.Actions {
		b := &o.Actions[i]
		a := s.of(b.Action, b.FirstAt)
		a.Fired, a.Worked, a.Skipped = a.Fired+b.Fired, a.Worked+b.Worked, a.Skipped+b.Skipped
		a.Freed, a.Paused, a.PeakUsed = a.Freed+b.Freed, a.Paused+b.Paused, max(a.PeakUsed, b.PeakUsed)
		if b.FirstAt.Before(a.FirstAt) {
			a.FirstAt = b.FirstAt
		}
		if b.LastAt.After(a.LastAt) {
			a.LastAt = b.LastAt
		}
		for why, n := range b.Reasons {
			if a.Reasons == nil {
				a.Reasons = map[Reason]int{}
			}
			a.Reasons[why] += n
		}
	}
	s.WorkerTrims, s.Dropped = s.WorkerTrims+o.WorkerTrims, s.Dropped+o.Dropped
	s.Recycled, s.Revived, s.Helped = s.Recycled+o.Recycled, s.Revived+o.Revived, s.Helped+o.Helped
}

// Paused is how long trainers stood still for all of it, in seconds.
func (s *Saved) Paused() (sum float64) {
	for i := range s.Actions {
		sum += s.Actions[i].Paused
	}
	return sum
}

// Skipped counts rules that were crossed when the action could not help.
func (s *Saved) Skipped() (n int) {
	for i := range s.Actions {
		n += s.Actions[i].Skipped
	}
	return n
}

// Outcome is whether all of it helped the run.
func (s *Saved) Outcome() Helped {
	dry, refused := false, s.Skipped() > 0
	for i := range s.Actions {
		dry = dry || s.Actions[i].Reasons[ReasonDryRun] > 0
	}
	switch {
	case s.Helped > 0 || s.WorkerTrims > 0 && s.Dropped > 0:
		return HelpedYes
	case dry:
		return HelpedDryRun
	case refused:
		return HelpedRefused
	}
	return HelpedNo
}
