package event

// Name is the name of an event, the field "event" of every line.
type Name string

// The events, in the order in which a run meets them.
const (
	NameStart     Name = "start"     // the watcher began: command, settings, limits
	NameLimit     Name = "limit"     // a limit was found or has changed
	NameSample    Name = "sample"    // what the limits stand at, at most one an interval
	NameDecision  Name = "decision"  // a rule fired
	NameOutcome   Name = "outcome"   // what a decision brought
	NameLoader    Name = "loader"    // the loader hook said something
	NameDiagnosis Name = "diagnosis" // why something grows, and what to change
	NameCure      Name = "cure"      // something was changed before it could go wrong, by the user's wish
	NameRank      Name = "rank"      // a rank of the job on this node came or ended, or leads
	NameFault     Name = "fault"     // a part of rsswarden stopped working; the command runs on
	NameSignal    Name = "signal"    // a signal reached the holder
	NameHelp      Name = "help"      // what the ladder was told of an action, in the record alone
	NameHandover  Name = "handover"  // what the ladder took over from the leader before, in the record alone
	NameExit      Name = "exit"      // the command has ended
)

// LimitName names one way to die.
type LimitName string

// The limits. Those of the second group are counts, not bytes.
const (
	LimitCgroup   LimitName = "cgroup"   // the kernel's OOM killer, by a cgroup's memory limit
	LimitThrottle LimitName = "throttle" // memory.high below memory.max: slow, not dead
	LimitSlurm    LimitName = "slurm"    // slurmstepd, by OverMemoryKill
	LimitUser     LimitName = "user"     // our own rules, by --limit
	LimitNode     LimitName = "node"     // the node's OOM killer, where no cgroup limits
	LimitSHM      LimitName = "shm"      // SIGBUS, by a full /dev/shm

	LimitMaps    LimitName = "maps"
	LimitFDs     LimitName = "fds"
	LimitTasks   LimitName = "tasks"
	LimitAS      LimitName = "as"
	LimitMemlock LimitName = "memlock"

	LimitTime LimitName = "time" // Slurm, by the job's end
)

// Limits lists every limit in the order of the documentation.
var Limits = []LimitName{
	LimitCgroup, LimitThrottle, LimitSlurm, LimitUser, LimitNode, LimitSHM,
	LimitMaps, LimitFDs, LimitTasks, LimitAS, LimitMemlock, LimitTime,
}

// Memory says that a limit is one on the memory that processes hold together.
// The others have causes and cures of their own, and none of them is binding.
func (n LimitName) Memory() bool {
	switch n {
	case LimitCgroup, LimitThrottle, LimitSlurm, LimitUser, LimitNode:
		return true
	}
	return false
}

// Counts says that a limit is one on a number, not on bytes.
func (n LimitName) Counts() bool {
	switch n {
	case LimitMaps, LimitFDs, LimitTasks:
		return true
	}
	return false
}

// Accounting says how the memory of a population is added up.
type Accounting string

// The accountings. Auto is a setting only: the binding limit's own.
const (
	AccountingAuto     Accounting = "auto"
	AccountingRSS      Accounting = "rss"
	AccountingPSS      Accounting = "pss"
	AccountingNoShared Accounting = "noshared"
	AccountingCgroup   Accounting = "cgroup"
	AccountingVirtual  Accounting = "vsize" // Slurm's VSizeFactor
)

// Scope is whom a limit counts.
type Scope string

// The scopes.
const (
	ScopeTree    Scope = "tree"
	ScopeStep    Scope = "step"
	ScopeJob     Scope = "job"
	ScopeCgroup  Scope = "cgroup" // a cgroup that is neither a Slurm step nor a job
	ScopeNode    Scope = "node"
	ScopeProcess Scope = "process"
	ScopeUser    Scope = "user" // all processes of one user on the node
)

// Scopes lists every scope.
var Scopes = []Scope{ScopeTree, ScopeStep, ScopeJob, ScopeCgroup, ScopeNode, ScopeProcess, ScopeUser}

// Action is what a rule asks for.
type Action string

// The actions, from mild to hard.
const (
	ActionWarn Action = "warn"
	ActionTrim Action = "trim" // workers drop mapped file pages
	// ActionTrimDrop is a trim of all, after which the files leave the page cache
	// too and are read from disk again.
	ActionTrimDrop Action = "trim+drop"
	ActionRecycle  Action = "recycle" // a worker is replaced by a fresh one
	ActionGC       Action = "gc"      // trainers and workers collect garbage and give free memory back
	ActionSignal   Action = "signal"  // signal=SIG: trainers are asked to act, by writing a checkpoint for instance
	ActionExec     Action = "exec"    // exec=COMMAND: a program of the user's is told
	ActionRequeue  Action = "requeue" // requeue=MORE: the job goes back into the queue and starts again with more memory
	ActionStop     Action = "stop"
)

// Actions lists every action from mild to hard.
var Actions = []Action{
	ActionWarn, ActionTrim, ActionTrimDrop, ActionRecycle, ActionGC, ActionSignal, ActionExec, ActionRequeue, ActionStop,
}

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
	ReasonDeferred    Reason = "put off to the loader's next epoch"
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
	ReasonNotWatched  Reason = "not watched here" // a process or rank that somebody named
	ReasonError       Reason = "error"

	// Why a process was not trimmed by ptrace.
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

// Verdict is what the whole run comes to, in one word.
type Verdict string

// The verdicts.
const (
	VerdictFine      Verdict = "fine"      // no rule fired, nothing to change
	VerdictTight     Verdict = "tight"     // within a rung of the limit, nothing was done
	VerdictCarried   Verdict = "carried"   // actions kept the job inside its limit
	VerdictAsked     Verdict = "asked"     // a signal asked the trainer to act before the limit
	VerdictStopped   Verdict = "stopped"   // our own stop ended it
	VerdictRequeued  Verdict = "requeued"  // a rule put the job back into the queue, to start again with more memory
	VerdictKilled    Verdict = "killed"    // somebody else's SIGKILL ended it
	VerdictOOM       Verdict = "oom"       // the kernel's OOM killer struck
	VerdictExhausted Verdict = "exhausted" // it failed with none left of something else than memory: mappings, descriptors, /dev/shm, tasks
	VerdictNoHelp    Verdict = "helpless"  // a rung was crossed and no action could help
	VerdictLed       Verdict = "led"       // another rank's watcher on this node led, and tells of memory
	VerdictUnwatched Verdict = "unwatched" // the watcher was not there for all of it
)

// Cause is why a run ended, in one word. A report names it.
type Cause string

// The causes.
const (
	CauseEnded     Cause = "ended"         // the command exited with status 0
	CauseCrash     Cause = "crash"         // with another status, or by a signal of its own making, and no limit was near
	CauseStopped   Cause = "stopped"       // our stop
	CauseRequeued  Cause = "requeued"      // our requeue: the job starts again
	CauseKernelOOM Cause = "kernel oom"    // the kernel's OOM killer, at a cgroup's limit
	CauseNodeOOM   Cause = "node memory"   // … because the node had none left
	CauseOverKill  Cause = "overmemory"    // slurmstepd, by OverMemoryKill
	CauseTimeLimit Cause = "time limit"    // Slurm, at the job's end
	CauseCancelled Cause = "cancelled"     // scancel, or Slurm before the job's end
	CauseMaps      Cause = "maps"          // no memory mapping was left: vm.max_map_count
	CauseFDs       Cause = "descriptors"   // no descriptor was left: RLIMIT_NOFILE
	CauseSHM       Cause = "shm"           // SIGBUS with a full /dev/shm
	CauseTasks     Cause = "tasks"         // no task was left: pids.max, RLIMIT_NPROC, kernel.threads-max
	CauseAS        Cause = "address space" // no address space was left: RLIMIT_AS
	CauseKilled    Cause = "killed"        // a SIGKILL of somebody's, nobody knows whose
	CauseNodeLost  Cause = "node lost"     // the node failed or was restarted
	CauseRunning   Cause = "running"       // it has not ended
	CauseDetached  Cause = "detached"      // only the watch has ended
	CauseUnknown   Cause = "unknown"       // the record does not tell
)

// Causes lists every cause in the order of the documentation.
var Causes = []Cause{
	CauseEnded, CauseCrash, CauseStopped, CauseRequeued, CauseKernelOOM, CauseNodeOOM, CauseOverKill, CauseTimeLimit, CauseCancelled,
	CauseMaps, CauseFDs, CauseSHM, CauseTasks, CauseAS, CauseKilled, CauseNodeLost, CauseRunning, CauseDetached, CauseUnknown,
}

// Loader is what the loader hook reports, the field "what".
type Loader string

// What loaders say.
const (
	LoaderHello     Loader = "hello"     // a process with torch said it is there
	LoaderIter      Loader = "iter"      // a DataLoader iterator with workers was made
	LoaderAccepted  Loader = "accepted"  // a recycle was taken up
	LoaderStarted   Loader = "started"   // its replacement was started
	LoaderSwapped   Loader = "swapped"   // the replacement took over, the old worker hands out what it has
	LoaderRecycled  Loader = "recycled"  // a worker was replaced and has ended
	LoaderTrimmed   Loader = "trimmed"   // a process gave its mapped pages back
	LoaderCollected Loader = "collected" // a process ran gc.collect and malloc_trim
	// LoaderPickling: a DataLoader is about to send its data set to workers that
	// are not forked, and each tensor in it costs a mapping or a descriptor.
	LoaderPickling Loader = "pickling"
	LoaderRaised   Loader = "raised" // the soft RLIMIT_NOFILE was raised for it, by --nofile
	LoaderRefused  Loader = "refused"
	LoaderOff      Loader = "off" // the hook met an error and switched itself off
	LoaderEnded    Loader = "ended"
	// LoaderUnreached: a process has loaded PyTorch, and something keeps the hook out
	// of it: a container, or its environment. The watcher says so, not the hook.
	LoaderUnreached Loader = "unreached"
)

// Mode is the order in which a recycle starts and ends workers.
type Mode string

// The modes. Swap starts the new worker before the old one ends, which needs
// room for both; Drain ends the old one first.
const (
	Swap  Mode = "swap"
	Drain Mode = "drain"
)
