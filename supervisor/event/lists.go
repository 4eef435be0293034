package event

import (
	"math"
	"path"
	"strings"

	"github.com/rsswarden/rsswarden/slurm"
)

// Accounting says how the memory of a population is added up.
type Accounting string

// The accountings.
const (
	AccountingAuto     Accounting = "auto"     // a setting only: as the binding limit
	AccountingRSS      Accounting = "rss"      // summed RSS: a page counts for each process that has it
	AccountingPSS      Accounting = "pss"      // sum of PSS: a page is divided by the processes that have it
	AccountingNoShared Accounting = "noshared" // summed RSS without shared pages
	AccountingCgroup   Accounting = "cgroup"   // what the kernel charges and cannot take back
	AccountingVirtual  Accounting = "vsize"    // sum of virtual sizes, by Slurm's VSizeFactor
)

// Sum is what an accounting adds up, for people.
func (a Accounting) Sum() string { return sums[a] }

var sums = map[Accounting]string{
	AccountingRSS:      "summed RSS",
	AccountingPSS:      "summed PSS",
	AccountingNoShared: "summed RSS less shared pages",
	AccountingCgroup:   "unreclaimable memory",
	AccountingVirtual:  "summed virtual size",
}

// Scope is what a limit counts.
type Scope string

// The scopes.
const (
	ScopeTree    Scope = "tree"    // the command and its descendants
	ScopeStep    Scope = "step"    // a step of a Slurm job, on this node
	ScopeJob     Scope = "job"     // a Slurm job, on this node
	ScopeCgroup  Scope = "cgroup"  // a cgroup that is neither a Slurm step nor a job
	ScopeNode    Scope = "node"    // all that runs on the node
	ScopeProcess Scope = "process" // each process by itself; the nearest is shown
	ScopeUser    Scope = "user"    // all processes of one user on the node
)

// ScopeOfCgroup is the scope of a cgroup by the name of its directory: a Slurm step or job
// is called step_N, job_N or by its SLUID.
func ScopeOfCgroup(name string) Scope {
	base := path.Base(name)
	if base == "user" {
		base = path.Base(path.Dir(name))
	}
	switch {
	case strings.HasPrefix(base, "step_"):
		return ScopeStep
	case strings.HasPrefix(base, "job_"), slurm.IsSLUID(base):
		return ScopeJob
	}
	return ScopeCgroup
}

// Scopes lists every scope.
var Scopes = []Scope{ScopeTree, ScopeStep, ScopeJob, ScopeCgroup, ScopeNode, ScopeProcess, ScopeUser}

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
	CauseOverKill  Cause = "overmemory"    // slurmstepd, or slurmd for the whole job, by OverMemoryKill
	CauseTimeLimit Cause = "time limit"    // Slurm, at the job's end
	CauseCancelled Cause = "cancelled"     // scancel, or Slurm before the job's end
	CauseMaps      Cause = "maps"          // no memory mapping was left: vm.max_map_count
	CauseFDs       Cause = "descriptors"   // no descriptor was left: RLIMIT_NOFILE
	CauseSHM       Cause = "shm"           // SIGBUS with a full /dev/shm
	CauseTasks     Cause = "tasks"         // no task was left: pids.max, RLIMIT_NPROC, kernel.threads-max
	CauseAS        Cause = "address space" // no address space was left: RLIMIT_AS
	CauseKilled    Cause = "killed"        // a SIGKILL from outside, its sender unknown
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
	LoaderIter      Loader = "iter"      // a DataLoader iterator with workers was made, or a pool
	LoaderAccepted  Loader = "accepted"  // a recycle was taken up
	LoaderStarted   Loader = "started"   // its replacement was started
	LoaderSwapped   Loader = "swapped"   // the replacement took over, the old worker hands out what it has
	LoaderRecycled  Loader = "recycled"  // a worker was replaced and has ended
	LoaderRevives   Loader = "revives"   // workers of an iterator are replaced where they die from now on, as the trial of the process's PyTorch went well
	LoaderRevived   Loader = "revived"   // a worker had died, another was started in its place and does its unfinished batches again; the reason says how it ended
	LoaderTrimmed   Loader = "trimmed"   // a process gave its mapped pages back
	LoaderCollected Loader = "collected" // a process ran gc.collect and malloc_trim
	LoaderPickling  Loader = "pickling"  // a data set is about to be sent to workers that are not forked; each tensor in it costs a mapping or a descriptor
	LoaderRaised    Loader = "raised"    // the soft RLIMIT_NOFILE was raised for it, by --nofile
	LoaderTried     Loader = "tried"     // a trial of recycling with the process's PyTorch has ended, or one of an earlier run was found; the watcher says so, not the hook
	LoaderRefused   Loader = "refused"   // it did not do what it was asked; the reason says why
	LoaderOff       Loader = "off"       // the hook met an error and switched itself off
	LoaderEnded     Loader = "ended"     // the process has ended
	LoaderUnreached Loader = "unreached" // a process has loaded PyTorch, and something keeps the hook out of it: a container, or its environment; the watcher says so, not the hook
)

// Trial says whether recycling was tried with the PyTorch and the Python of a process.
type Trial string

// What is known of it.
const (
	TrialKnown   Trial = "known"   // the parts of its text that recycling rests on are those of a version that the tests run
	TrialTried   Trial = "tried"   // they are not, and a trial on this machine went well
	TrialWaiting Trial = "waiting" // they are not, and there was no trial yet: nothing is recycled until there was one
	TrialRefused Trial = "refused" // they are not understood, or a trial failed: nothing is recycled
)

// Mode is the order in which a recycle starts and ends workers.
type Mode string

// The modes. Swap starts the new worker before the old one ends, which needs
// room for both; Drain ends the old one first.
const (
	Swap  Mode = "swap"
	Drain Mode = "drain"
)

// Revive says whose work is done again where it dies, among the workers of loaders over
// map-style data sets.
type Revive string

// The choices.
const (
	ReviveOff Revive = "off"
	ReviveOOM Revive = "oom" // of those that die by SIGKILL while the kernel counts an OOM kill on the node
	ReviveAny Revive = "any"
)

// Elements counts what arrays have in a JSON text, and the objects: that is what decoding
// makes room for. An element of an array of limits takes 250 bytes of memory and two of
// text, so count before decoding what another user wrote.
func Elements(text []byte) int {
	n, depth := 0, 0
	var inArray uint64 // a bit for each level
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			n++
			if depth++; depth == 64 {
				return math.MaxInt // nothing of ours is so deep
			}
			inArray &^= 1 << depth
			if c == '[' {
				inArray |= 1 << depth
			}
		case '}', ']':
			if depth--; depth < 0 {
				return n // no JSON
			}
		case ',':
			n += int(inArray >> depth & 1)
		}
	}
	return n
}
