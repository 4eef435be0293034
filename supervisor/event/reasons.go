package event

import "cmp"

// Reason says why an action was refused or failed, in a fixed word.
type Reason string

// The reasons.
const (
	ReasonNone        Reason = ""
	ReasonDone        Reason = "done"
	ReasonNoHelp      Reason = "cannot help this limit" // e.g. trim where only unreclaimable memory counts
	ReasonNoWorker    Reason = "no worker"              // nothing said hello, nothing matches --worker-match
	ReasonNothing     Reason = "nothing to give back"   // a worker is as small as a fresh one would be
	ReasonTooLittle   Reason = "too little freed"
	ReasonTimeout     Reason = "no answer in time"
	ReasonRecent      Reason = "worker recycled less than 30 s ago"
	ReasonRecovered   Reason = "use fell before the action" // the re-read said so
	ReasonUnsupported Reason = "not supported here"
	ReasonPause       Reason = "would pause the trainer for long and nothing grows"
	ReasonResend      Reason = "would hold the trainer to send the data set again"
	ReasonDeferred    Reason = "put off to the loader's next epoch"
	ReasonTask        Reason = "put off to the end of the worker's task"
	ReasonRestarted   Reason = "restarted with another" // a worker that lived, with one that died and may hold a lock of theirs
	ReasonForkRefused Reason = "fork refused"
	ReasonNotCaught   Reason = "the process does not catch this signal"
	ReasonNoTrainer   Reason = "no trainer" // an agent of ranks alone is there, which no signal may meet
	ReasonNoRank0     Reason = "no process here is known to be rank 0"
	ReasonBusy        Reason = "another command of exec= is running and one waits"
	ReasonStatus      Reason = "the command of exec= failed"
	ReasonVanished    Reason = "process has ended"
	ReasonNoRequeue   Reason = "the job cannot be requeued"
	ReasonRequeues    Reason = "the job was requeued often enough"
	ReasonDryRun      Reason = "dry run"
	ReasonOccupied    Reason = "another action is being carried out"
	ReasonNotWatched  Reason = "not watched here" // a process or rank that was named
	ReasonError       Reason = "error"

	// Why a process was not trimmed by ptrace:

	ReasonOtherUser  Reason = "another user's process"
	ReasonStranger   Reason = "not a descendant, and Yama allows no other (ptrace_scope 1)"
	ReasonYama       Reason = "Yama forbids ptrace (ptrace_scope 2 or 3)"
	ReasonUndumpable Reason = "not dumpable"
	ReasonTraced     Reason = "traced already"
	ReasonStopped    Reason = "stopped"
	ReasonWaiting    Reason = "in uninterruptible sleep"
	ReasonSeccomp    Reason = "under seccomp filters that rsswarden is not under"
	ReasonNot64Bit   Reason = "not a 64-bit process"
	ReasonDevice     Reason = "has a GPU or InfiniBand device open"
	ReasonIsTrainer  Reason = "the trainer, which only --trim ptrace names"
	ReasonOurs       Reason = "a process of rsswarden's"
	ReasonNoSleeper  Reason = "no thread sleeps where it could be borrowed"
	ReasonCrowded    Reason = "too many threads or mappings"
	ReasonChanged    Reason = "the mapping has changed"
	ReasonSignalled  Reason = "a signal came first"
	ReasonSlow       Reason = "its threads did not stop in time"
	ReasonGivenUp    Reason = "given up: processes could not be stopped"
)

// reasonRow is how people read a reason: "trim skipped: no DataLoader or pool workers found".
type reasonRow struct {
	says string
	// detail says that the detail of an outcome stands in the place of says.
	detail bool
	brief  string // where there is room for two words, else says
}

// reasonRows has the reasons whose word reads badly behind "skipped: " and "failed: ", or
// whose detail says all.
var reasonRows = map[Reason]reasonRow{
	ReasonNoHelp:      {says: "it does not lower this limit", detail: true, brief: "no help for this limit"},
	ReasonNoWorker:    {says: "no DataLoader or pool workers found", brief: "no workers"},
	ReasonNothing:     {says: "workers have nothing to give back"},
	ReasonTooLittle:   {says: "too little to give back"},
	ReasonRecent:      {says: "each worker was recycled in the last 30 s"},
	ReasonRecovered:   {says: "memory fell before it began"},
	ReasonUnsupported: {says: "not supported here", detail: true},
	ReasonPause:       {says: "the trainer would pause for long, nothing grows"},
	ReasonResend:      {says: "the data set would be sent again"},
	ReasonDeferred:    {says: "waits for the loader's next epoch"},
	ReasonTask:        {says: "waits for the end of its task"},
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

// PutOff says that a recycle goes on after the action that asked for it.
func (r Reason) PutOff() bool { return r == ReasonDeferred || r == ReasonTask }

// Says is the reason for people, in a few words.
func (r Reason) Says() string {
	if row, ok := reasonRows[r]; ok {
		return row.says
	}
	return string(r)
}

// Brief is the reason where there is little room.
func (r Reason) Brief() string { return cmp.Or(reasonRows[r].brief, r.Says()) }

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
