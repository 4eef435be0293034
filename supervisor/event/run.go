package event

// RunOutcome is how a run ended, in one word: the same in the summary, reports, events,
// metrics and the list of runs.
type RunOutcome string

// The outcomes, in the order in which they are looked for: the first that holds is told.
// What each means, [RunOutcome.Says] tells.
const (
	RunRunning   RunOutcome = "running"
	RunRequeued  RunOutcome = "requeued"
	RunOOM       RunOutcome = "oom"
	RunSlurmKill RunOutcome = "slurm-kill"
	RunTimeout   RunOutcome = "timeout"
	RunStopped   RunOutcome = "stopped"
	RunCancelled RunOutcome = "cancelled"
	RunUnknown   RunOutcome = "unknown"
	RunExhausted RunOutcome = "exhausted"
	RunKilled    RunOutcome = "killed"
	RunFailed    RunOutcome = "failed"
	RunOver      RunOutcome = "over"
	RunKept      RunOutcome = "kept"
	RunTight     RunOutcome = "tight"
	RunOK        RunOutcome = "ok"
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
	says  string
}

var runRows = []runRow{
	{RunRunning, GradeOpen, "It has not ended."},
	{RunRequeued, GradeWarning, "A requeue rule put the job back into the queue."},
	{RunOOM, GradeBad, "The kernel's OOM killer ended a process of the job, or Slurm says OUT_OF_MEMORY, whatever the exit status."},
	{RunSlurmKill, GradeBad, "Slurm's OverMemoryKill ended the job."},
	{RunTimeout, GradeBad, "The job reached its Slurm time limit."},
	{RunStopped, GradeWarning, "A stop rule ended the command."},
	{RunCancelled, GradeWarning, "SIGTERM, SIGINT or SIGHUP came from outside, or Slurm says CANCELLED."},
	{RunUnknown, GradeOpen, "The record has no end, and nothing in it explains why."},
	{RunExhausted, GradeBad, "The command failed with none left of mappings, descriptors, /dev/shm, tasks or address space."},
	{RunKilled, GradeBad, "SIGKILL from outside ended the command or, with exit status 137, a process inside it."},
	{RunFailed, GradeBad, "The command failed: another exit status than 0, or a signal of its own making."},
	{RunOver, GradeWarning, "Exit status 0, and the peak was above a limit that kills nothing."},
	{RunKept, GradeGood, "Exit status 0, and rsswarden's actions kept the job under its limit."},
	{RunTight, GradeWarning, "Exit status 0, and the peak was 80 % of the limit or more."},
	{RunOK, GradeGood, "Exit status 0, with memory to spare."},
}

// RunOutcomes lists every outcome in its order.
var RunOutcomes = func() (all []RunOutcome) {
	for _, r := range runRows {
		all = append(all, r.name)
	}
	return all
}()

func (o RunOutcome) row() runRow {
	for _, r := range runRows {
		if r.name == o {
			return r
		}
	}
	return runRow{name: o, grade: GradeOpen}
}

// Grade is how good it is.
func (o RunOutcome) Grade() Grade { return o.row().grade }

// Says is a sentence for manual and reference.
func (o RunOutcome) Says() string { return o.row().says }

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
	HelpedYes     Helped = "yes"
	HelpedNo      Helped = "no"      // nothing was due, or it freed nothing
	HelpedRefused Helped = "refused" // a rule was crossed and its action could not help
	HelpedDryRun  Helped = "dry run"
)

// Watched says how much of a run its numbers are of.
type Watched string

// The values of Watched.
const (
	WatchedAll   Watched = "all"
	WatchedParts Watched = "parts" // the watcher was not there all the time, or could not read every process
	WatchedRank  Watched = "rank"  // one rank of several: the leader's record has the memory
)
