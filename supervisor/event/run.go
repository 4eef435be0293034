package event

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
)

// RunOutcome is how a run ended, in one word: the same in the summary, reports, events,
// metrics and the list of runs.
type RunOutcome string

// The outcomes, in the order of their rules: the first that holds is the outcome.
const (
	// RunRunning: it has not ended.
	RunRunning RunOutcome = "running"
	// RunRequeued: a requeue rule put the job back into the queue.
	RunRequeued RunOutcome = "requeued"
	// RunOOM: the kernel's OOM killer ended a process of the job, or Slurm says OUT_OF_MEMORY, whatever the exit status.
	RunOOM RunOutcome = "oom"
	// RunSlurmKill: Slurm's OverMemoryKill ended the job.
	RunSlurmKill RunOutcome = "slurm-kill"
	// RunTimeout: the job reached its Slurm time limit.
	RunTimeout RunOutcome = "timeout"
	// RunStopped: a stop rule ended the command.
	RunStopped RunOutcome = "stopped"
	// RunCancelled: SIGTERM, SIGINT or SIGHUP came from outside, or Slurm says CANCELLED.
	RunCancelled RunOutcome = "cancelled"
	// RunUnknown: the end was not seen, and nothing that was recorded explains it.
	RunUnknown RunOutcome = "unknown"
	// RunExhausted: the command failed with none left of mappings, descriptors, /dev/shm, tasks or address space.
	RunExhausted RunOutcome = "exhausted"
	// RunKilled: SIGKILL from outside ended the command or, with exit status 137, a process inside it.
	RunKilled RunOutcome = "killed"
	// RunFailed: the command failed: another exit status than 0, or a signal of its own making.
	RunFailed RunOutcome = "failed"
	// RunOver: exit status 0, and the peak was above a limit: --limit, which kills nothing, or Slurm's between two of its polls.
	RunOver RunOutcome = "over"
	// RunKept: exit status 0, and rsswarden's actions kept the job under its limit.
	RunKept RunOutcome = "kept"
	// RunTight: exit status 0, and the peak was 80 % of the limit or more.
	RunTight RunOutcome = "tight"
	// RunOK: exit status 0, with memory to spare.
	RunOK RunOutcome = "ok"
)

// Grade is how good an outcome is. It decides colour and glyph, nothing else.
type Grade string

// The grades.
const (
	GradeGood    Grade = "good"
	GradeWarning Grade = "warning"
	GradeBad     Grade = "bad"
	GradeOpen    Grade = "open" // still running, or not known
)

type runRow struct {
	name  RunOutcome
	grade Grade
}

var runRows = []runRow{
	{RunRunning, GradeOpen},
	{RunRequeued, GradeWarning},
	{RunOOM, GradeBad},
	{RunSlurmKill, GradeBad},
	{RunTimeout, GradeBad},
	{RunStopped, GradeWarning},
	{RunCancelled, GradeWarning},
	{RunUnknown, GradeOpen},
	{RunExhausted, GradeBad},
	{RunKilled, GradeBad},
	{RunFailed, GradeBad},
	{RunOver, GradeWarning},
	{RunKept, GradeGood},
	{RunTight, GradeWarning},
	{RunOK, GradeGood},
}

// RunOutcomes lists every outcome in its order.
var RunOutcomes = listed(runRows, func(r *runRow) RunOutcome { return r.name })

// Grade is how good it is.
func (o RunOutcome) Grade() Grade {
	if i := slices.Index(RunOutcomes, o); i >= 0 {
		return runRows[i].grade
	}
	return GradeOpen
}

// MemoryState is how near a run came to the limit nearest to it. It stands beside an outcome.
type MemoryState string

// The states.
const (
	MemoryFine    MemoryState = "fine"  // less than 80 % of it
	MemoryTight   MemoryState = "tight" // 80 to 100 %
	MemoryOver    MemoryState = "over"  // more than 100 %
	MemoryUnknown MemoryState = ""      // no limit, or no use of it, was seen
)

// Shares of a limit at which a [MemoryState] begins.
const (
	TightShare = 0.8
	overShare  = 1
	// SteadyShare is the share of a limit by which use must grow in a minute to be growth.
	SteadyShare = 0.01
)

// MemoryAt is the state of a run with this peak, nil where none was seen.
func MemoryAt(peak *Limit) MemoryState {
	switch {
	case peak == nil || peak.Limit == 0 || peak.Used == 0:
		return MemoryUnknown
	case peak.Ratio() > overShare:
		return MemoryOver
	case peak.Ratio() >= TightShare:
		return MemoryTight
	}
	return MemoryFine
}

// Helped says whether rsswarden's actions freed memory that the job needed.
type Helped string

// The values of Helped.
const (
	HelpedYes     Helped = "yes"     // they did
	HelpedNo      Helped = "no"      // nothing was due, or it freed nothing
	HelpedRefused Helped = "refused" // a rule was crossed and its action could not help
	HelpedDryRun  Helped = "dry run" // what was due was not done, with --dry-run
)

// Watched says how much of a run its numbers are of.
type Watched string

// The values of Watched.
const (
	WatchedAll   Watched = "all"   // of the whole run
	WatchedParts Watched = "parts" // the watcher was not there all the time, or could not read every process
	WatchedRank  Watched = "rank"  // one rank of several: the leader's record has the memory
)

// Brief is what every surface says of a run that has ended. The exit event has it.
type Brief struct {
	Outcome RunOutcome  `json:"outcome"`           // how it ended
	Memory  MemoryState `json:"memory,omitempty"`  // how near it came to its nearest limit
	Helped  Helped      `json:"helped,omitempty"`  // whether actions freed what it needed
	Watched Watched     `json:"watched,omitempty"` // of how much of it the numbers are
	Took    float64     `json:"took_s,omitempty"`  // from the start of the command to its end
	// Rule is the rule that stopped or requeued it.
	Rule string `json:"rule,omitempty"`
	// Lacked is what there was none left of where the outcome is exhausted, and Cancelled
	// the signal where it is cancelled.
	Lacked    LimitName `json:"lacked,omitempty"`
	Cancelled string    `json:"cancelled_by,omitempty"`
	Saved     Saved     `json:"saved"` // what was done
	Next      Next      `json:"next"`  // what to ask for next
}

// Next is what to ask for next. The zero value is no advice.
type Next struct {
	Kind NextKind `json:"kind,omitempty"` // what it rests on
	// Option is "--mem" of sbatch, or "--limit" where no limit of the job's own was found.
	Option string    `json:"option,omitempty"`
	Size   rss.Bytes `json:"size_bytes,omitempty"` // how much to ask for
	// Without is an upper bound of what the run would have needed without rsswarden, an
	// estimate; 0 where nothing was freed, or it is not known.
	Without rss.Bytes `json:"without_bytes,omitempty"`
	// Growing is by how many bytes a second its use grew at the end, 0 where it did not.
	Growing rss.Bytes `json:"growing_bytes_per_s,omitempty"`
}

// NextKind is what advice rests on.
type NextKind string

// The kinds.
const (
	NextNone     NextKind = ""         // no advice
	NextEnough   NextKind = "peak"     // the peak and 10 % on top are enough
	NextKeep     NextKind = "keep"     // the size that it had
	NextGuess    NextKind = "guess"    // 1.5 times the peak: what it needs is not known
	NextRequeued NextKind = "requeued" // the job starts again with that
)
