package event

// reasonRow is how people read a reason: "trim skipped: no DataLoader workers found".
type reasonRow struct {
	says string
	// detail says that the detail of an outcome stands in the place of says.
	detail bool
}

// reasonRows has the reasons whose word reads badly behind "skipped: " and "failed: ", or
// whose detail says all.
var reasonRows = map[Reason]reasonRow{
	ReasonNoHelp:      {says: "it does not lower this limit", detail: true},
	ReasonNoWorker:    {says: "no DataLoader workers found"},
	ReasonNothing:     {says: "workers have nothing to give back"},
	ReasonTooLittle:   {says: "too little to give back"},
	ReasonRecent:      {says: "each worker was recycled in the last 30 s"},
	ReasonRecovered:   {says: "memory fell before it began"},
	ReasonUnsupported: {says: "not supported here", detail: true},
	ReasonPause:       {says: "the trainer would pause for long, nothing grows"},
	ReasonResend:      {says: "the data set would be sent again"},
	ReasonDeferred:    {says: "waits for the loader's next epoch"},
	ReasonNotCaught:   {says: "the process has no handler for this signal"},
	ReasonNoTrainer:   {says: "no trainer found", detail: true},
	ReasonNoRank0:     {says: "rank 0 not found here"},
	ReasonBusy:        {says: "two exec= commands are running or waiting"},
	ReasonStatus:      {says: "the command failed", detail: true},
	ReasonVanished:    {says: "the process has ended"},
	ReasonNoRequeue:   {says: "the job cannot be requeued", detail: true},
	ReasonRequeues:    {says: "requeued often enough", detail: true},
	ReasonOccupied:    {says: "another action is running"},
	ReasonNotWatched:  {says: "not watched here", detail: true},
	ReasonError:       {says: "error", detail: true},
	ReasonIsTrainer:   {says: "only the trainer, which needs --trim ptrace"},
}

// Says is the reason for people, in a few words.
func (r Reason) Says() string {
	if row, ok := reasonRows[r]; ok {
		return row.says
	}
	return string(r)
}

// With is the reason for people, with the detail of an outcome.
func (r Reason) With(detail string) string {
	switch {
	case detail == "":
		return r.Says()
	case r == ReasonNone, reasonRows[r].detail:
		return detail
	}
	return r.Says() + " (" + detail + ")"
}

// Why is why the action was skipped or failed, for people: what its memory is, too, where it
// cannot lower the limit.
func (a Action) Why(r Reason) string {
	if words := a.row().noHelp; words != "" && r == ReasonNoHelp {
		return words
	}
	return r.Says()
}
