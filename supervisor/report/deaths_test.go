package report

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

const minutes = 10 * time.Minute // the length of scenes

func kills(n uint64) []event.KernelKills {
	return []event.KernelKills{{Level: limitJob.Level + "/step_batch/task_0", Scope: event.ScopeCgroup, Kills: n, Leaf: true}}
}

// requeues is an exit after which the job is in the queue again.
func requeues(e record.Entry) record.Entry {
	exit := e.Value.(*event.Exit)
	exit.Verdict, exit.Advice = event.VerdictRequeued, mem.Scale(1.25)
	return e
}

func ofSlurm(state, code, stepState, by, stepCode string) *SlurmSays {
	s := &SlurmSays{Source: "sacct", State: state, ExitCode: code, ReqMem: "3072000K", TimeLimit: "00:10:00", Start: noon, End: noon.Add(minutes + time.Second)}
	if stepState != "" {
		s.Steps = []StepSays{{ID: "12.batch", State: stepState, By: by, ExitCode: stepCode}}
	}
	return s
}

func byRoot(s *SlurmSays) *SlurmSays { s.By = "0"; return s }

func byUser(s *SlurmSays) *SlurmSays { s.By = "1000"; return s }

// pair is what two limits stand at.
func pair(a, b func(time.Duration) []rss.Bytes) func(time.Duration) []rss.Bytes {
	return func(at time.Duration) []rss.Bytes { return append(a(at), b(at)...) }
}

// dying is a way in which a run ends, and what a report must say of it. Slurm's
// words are those that were seen of such an end (package slurm has them whole).
type dying struct {
	name      string
	scene     scene
	cause     event.Cause
	certainty Certainty
	said      *SlurmSays
	// with Slurm's word; the same as above where they are empty
	saidCause     event.Cause
	saidCertainty Certainty
}

var deaths = []dying{
	{
		name: "ended",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.7),
			events: []record.Entry{exits(minutes, "", 0)}},
		cause: event.CauseEnded, certainty: Seen,
		said: ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0"),
	},
	{
		name: "requeue=",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.96), events: []record.Entry{
			{At: minutes - 20*time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "95%:requeue=+25%", Limit: event.LimitCgroup, Action: event.ActionRequeue, Used: mem.Scale(0.95), LimitSize: mem}},
			signalled(minutes-10*time.Second, "SIGTERM"),
			{At: minutes - time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Reason: event.ReasonDone}},
			requeues(exits(minutes, "SIGTERM", 0)),
		}},
		cause: event.CauseRequeued, certainty: Seen,
		said: ofSlurm("PENDING", "0:0", "CANCELLED", "", "0:15"),
	},
	{
		name: "crash",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseCrash, certainty: Seen,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "crash by a signal, which sacct calls cancelled",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{exits(minutes, "SIGSEGV", 0)}},
		cause: event.CauseCrash, certainty: Seen,
		said: ofSlurm("FAILED", "0:11", "CANCELLED", "", "0:11"),
	},
	{
		name: "stopped",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.98), events: []record.Entry{
			{At: minutes - time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "98%:stop", Limit: event.LimitCgroup, Action: event.ActionStop, Used: mem.Scale(0.98), LimitSize: mem}},
			{At: minutes, Name: event.NameExit, Value: &event.Exit{By: "rsswarden", Code: new(int), Verdict: event.VerdictStopped}},
		}},
		cause: event.CauseStopped, certainty: Seen,
	},
	{
		name: "kernel, the command",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.997),
			events: []record.Entry{exits(minutes+400*time.Millisecond, "SIGKILL", 0, kills(1)...)}},
		cause: event.CauseKernelOOM, certainty: Seen,
		said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"),
	},
	{
		name: "kernel, a worker, seconds before the trainer gave up",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem},
			used: func(at time.Duration) []rss.Bytes {
				if at > minutes-5*time.Second {
					return []rss.Bytes{mem / 3}
				}
				return []rss.Bytes{mem.Scale(0.99)}
			},
			events: []record.Entry{exits(minutes, "", 1, kills(1)...)}},
		cause: event.CauseKernelOOM, certainty: Seen,
	},
	{
		name: "kernel, faster than samples",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.61),
			events: []record.Entry{exits(minutes+300*time.Millisecond, "SIGKILL", 0, kills(1)...)}},
		cause: event.CauseKernelOOM, certainty: Seen,
	},
	{
		name: "kernel, watcher and all: memory.oom.group",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.99),
			events: []record.Entry{}},
		cause: event.CauseKernelOOM, certainty: Inferred,
		said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"), saidCertainty: Slurm,
	},
	{
		name: "kernel, others above the job",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.5),
			events: []record.Entry{exits(minutes, "", 0, event.KernelKills{Level: "/sys/fs/cgroup/memory/slurm", Scope: event.ScopeCgroup, Kills: 3})}},
		cause: event.CauseEnded, certainty: Seen,
	},
	{
		name: "kernel, a job that ended well all the same",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.99),
			events: []record.Entry{exits(minutes, "", 0, kills(2)...)}},
		cause: event.CauseKernelOOM, certainty: Seen,
		said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"),
	},
	{
		name: "node memory",
		scene: scene{job: inJob(), limits: []event.Limit{limitNode}, length: minutes, sizes: []rss.Bytes{64 * rss.GiB}, used: rising(minutes, 64*rss.GiB, 0.2, 0.985),
			events: []record.Entry{exits(minutes, "SIGKILL", 0)}},
		cause: event.CauseNodeOOM, certainty: Inferred,
	},
	{
		name: "node memory, a kill was counted",
		scene: scene{job: inJob(), limits: []event.Limit{limitNode, limitJob}, length: minutes, sizes: []rss.Bytes{64 * rss.GiB, mem},
			used:   standing([]rss.Bytes{64 * rss.GiB, mem}, 0.99, 0.5),
			events: []record.Entry{exits(minutes, "SIGKILL", 0, kills(1)...)}},
		cause: event.CauseNodeOOM, certainty: Seen,
	},
	{
		name: "OverMemoryKill",
		scene: scene{job: inJob(), limits: []event.Limit{limitStepd}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 2.12),
			events: []record.Entry{}},
		cause: event.CauseOverKill, certainty: Inferred,
		said: ofSlurm("FAILED", "0:9", "CANCELLED", "0", "0:9"), saidCertainty: Slurm,
	},
	{
		name: "OverMemoryKill, faster than samples",
		scene: scene{job: inJob(), limits: []event.Limit{limitStepd}, length: minutes, sizes: []rss.Bytes{mem},
			used: func(at time.Duration) []rss.Bytes {
				return []rss.Bytes{mem.Scale(max(0.2, 0.8-0.4*(minutes-at).Seconds()))}
			},
			events: []record.Entry{}},
		cause: event.CauseOverKill, certainty: Inferred,
		said: &SlurmSays{Source: "scontrol show job", State: "FAILED", Reason: "JobLaunchFailure", ExitCode: "0:9", ReqMem: "3000M"}, saidCertainty: Slurm,
	},
	{
		name:  "OverMemoryKill that the record does not show",
		scene: scene{job: inJob(), limits: []event.Limit{limitStepd}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.3), events: []record.Entry{}},
		cause: event.CauseUnknown, certainty: Inferred,
		said:      &SlurmSays{Source: "sacct", State: "FAILED", ExitCode: "0:9", ReqMem: "3072000K", Steps: []StepSays{{ID: "12.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 2 * mem}}},
		saidCause: event.CauseOverKill, saidCertainty: Slurm,
	},
	{
		name: "time limit",
		scene: scene{job: endsAfter(minutes - 5*time.Second), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{signalled(minutes-4*time.Second, "SIGTERM"), exits(minutes, "SIGTERM", 0)}},
		cause: event.CauseTimeLimit, certainty: Seen,
		said: ofSlurm("TIMEOUT", "0:0", "CANCELLED", "", "0:15"),
	},
	{
		name: "time limit, KillWait over",
		scene: scene{job: endsAfter(minutes - 31*time.Second), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.97),
			events: []record.Entry{signalled(minutes-30*time.Second, "SIGTERM")}},
		cause: event.CauseTimeLimit, certainty: Inferred,
		said: ofSlurm("TIMEOUT", "0:0", "CANCELLED", "", "0:9"), saidCertainty: Slurm,
	},
	{
		name: "time limit, behind a batch script",
		scene: scene{job: endsAfter(minutes - 30*time.Second), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{}},
		cause: event.CauseTimeLimit, certainty: Inferred,
	},
	{
		name: "time limit that a limit event told",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{
				{At: 3 * time.Second, Name: event.NameLimit, Value: &event.Found{Limit: event.Limit{Name: event.LimitTime, ETA: eta(minutes - 8*time.Second)}}},
				signalled(minutes-5*time.Second, "SIGTERM"), exits(minutes, "SIGKILL", 0),
			}},
		cause: event.CauseTimeLimit, certainty: Seen,
	},
	{
		name: "cancelled",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{signalled(minutes-2*time.Second, "SIGTERM"), exits(minutes, "", 143)}},
		cause: event.CauseCancelled, certainty: Seen,
		said: ofSlurm("CANCELLED", "0:0", "CANCELLED", "", "0:15"),
	},
	{
		name: "cancelled by slurmd for the job's sum",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitStepd, limitJobSum}, length: minutes, sizes: []rss.Bytes{mem, mem},
			used: pair(rising(minutes, mem, 0.2, 0.66), rising(minutes, mem, 0.3, 1.29)), events: []record.Entry{signalled(minutes-2*time.Second, "SIGTERM"), exits(minutes, "SIGTERM", 0)}},
		cause: event.CauseOverKill, certainty: Inferred,
		said: byRoot(ofSlurm("CANCELLED", "0:15", "CANCELLED", "", "0:15")), saidCertainty: Slurm,
	},
	{
		name: "cancelled by its user, over the job's sum",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitStepd, limitJobSum}, length: minutes, sizes: []rss.Bytes{mem, mem},
			used: pair(rising(minutes, mem, 0.2, 0.66), rising(minutes, mem, 0.3, 1.29)), events: []record.Entry{signalled(minutes-2*time.Second, "SIGTERM"), exits(minutes, "SIGTERM", 0)}},
		cause: event.CauseOverKill, certainty: Inferred,
		said: byUser(ofSlurm("CANCELLED", "0:0", "CANCELLED", "1000", "0:15")), saidCause: event.CauseCancelled, saidCertainty: Seen,
	},
	{
		name: "cancelled by slurmd behind a batch script",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitStepd, limitJobSum}, length: minutes, sizes: []rss.Bytes{mem, mem},
			used: pair(rising(minutes, mem, 0.2, 0.93), rising(minutes, mem, 0.3, 1.29))},
		cause: event.CauseOverKill, certainty: Inferred,
		said: byRoot(ofSlurm("CANCELLED", "0:15", "CANCELLED", "", "0:15")), saidCertainty: Slurm,
	},
	{
		name: "slurmstepd kills a step over its own limit before",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitStepd, limitJobSum}, length: minutes, sizes: []rss.Bytes{mem, mem},
			used: pair(rising(minutes, mem, 0.2, 1.02), rising(minutes, mem, 0.3, 1.03))},
		cause: event.CauseOverKill, certainty: Inferred,
	},
	{
		name: "cancelled below the job's sum",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitStepd, limitJobSum}, length: minutes, sizes: []rss.Bytes{mem, mem},
			used: pair(rising(minutes, mem, 0.2, 0.4), rising(minutes, mem, 0.3, 0.7)), events: []record.Entry{signalled(minutes-2*time.Second, "SIGTERM"), exits(minutes, "SIGTERM", 0)}},
		cause: event.CauseCancelled, certainty: Seen,
		said: byRoot(ofSlurm("CANCELLED", "0:0", "CANCELLED", "", "0:15")),
	},
	{
		name: "SIGKILL above the job's sum is not slurmd's",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitStepd, limitJobSum}, length: minutes, sizes: []rss.Bytes{mem, mem},
			used: pair(rising(minutes, mem, 0.2, 0.4), rising(minutes, mem, 0.3, 1.2)), events: []record.Entry{exits(minutes, "SIGKILL", 0)}},
		cause: event.CauseKilled, certainty: Seen,
	},
	{
		name: "cancelled or time limit, only Slurm knows",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{signalled(minutes-2*time.Second, "SIGTERM"), exits(minutes, "SIGTERM", 0)}},
		cause: event.CauseCancelled, certainty: Inferred,
		said: ofSlurm("TIMEOUT", "0:0", "CANCELLED", "", "0:15"), saidCause: event.CauseTimeLimit, saidCertainty: Slurm,
	},
	{
		name: "asked to end outside Slurm",
		scene: scene{limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{signalled(minutes-time.Second, "SIGINT"), exits(minutes, "SIGINT", 0)}},
		cause: event.CauseCancelled, certainty: Seen,
	},
	{
		name: "maps",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			maps: func(at time.Duration) int { return int(65530 * at / minutes) }, events: []record.Entry{exits(minutes+time.Second, "", 1)}},
		cause: event.CauseMaps, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "descriptors",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitFD}, length: minutes, sizes: []rss.Bytes{mem, 1024},
			used: standing([]rss.Bytes{mem, 1024}, 0.5, 0.99), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseFDs, certainty: Inferred,
	},
	{
		name: "shm",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitSHM}, length: minutes, sizes: []rss.Bytes{mem, 64 * rss.MiB},
			used: standing([]rss.Bytes{mem, 64 * rss.MiB}, 0.5, 1), events: []record.Entry{exits(minutes, "SIGBUS", 0)}},
		cause: event.CauseSHM, certainty: Inferred,
	},
	{
		name: "maps, within seconds",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: 3 * time.Second, sizes: []rss.Bytes{mem}, used: rising(3*time.Second, mem, 0.1, 0.5),
			maps: func(at time.Duration) int { return 30000 + int(9000*at/time.Second) }, events: []record.Entry{exits(3200*time.Millisecond, "", 1)}},
		cause: event.CauseMaps, certainty: Inferred,
	},
	{
		name: "maps grow, slowly",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: 3 * time.Second, sizes: []rss.Bytes{mem}, used: rising(3*time.Second, mem, 0.1, 0.5),
			maps: func(at time.Duration) int { return 40000 + int(2000*at/time.Second) }, events: []record.Entry{exits(3200*time.Millisecond, "", 1)}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name:  "all of it killed while its memory grew",
		scene: scene{limits: []event.Limit{limitJob}, length: 10 * time.Second, sizes: []rss.Bytes{mem}, used: rising(10*time.Second, mem, 0.2, 0.88), events: []record.Entry{}},
		cause: event.CauseKernelOOM, certainty: Inferred,
	},
	{
		name: "shm, a worker",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitSHM}, length: minutes, sizes: []rss.Bytes{mem, 64 * rss.MiB},
			used: standing([]rss.Bytes{mem, 64 * rss.MiB}, 0.5, 0.995), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseSHM, certainty: Inferred,
	},
	{
		name: "killed by somebody",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{exits(minutes, "", 137)}},
		cause: event.CauseKilled, certainty: Seen,
	},
	{
		name: "kernel oom between two samples",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: standing([]rss.Bytes{mem}, 0.6),
			events: []record.Entry{{At: minutes, Name: event.NameExit, Value: missed()}}},
		cause: event.CauseKernelOOM, certainty: Seen,
	},
	{
		name: "all of it killed, the watcher a moment later",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{{At: minutes, Name: event.NameExit, Value: &event.Exit{By: "command", Verdict: event.VerdictFine}}}},
		cause: event.CauseKilled, certainty: Inferred,
		said: ofSlurm("CANCELLED", "0:15", "CANCELLED", "", "0:15"), saidCause: event.CauseCancelled, saidCertainty: Slurm,
	},
	{
		name: "the holder was killed alone, with less of the node used than of --limit",
		scene: scene{job: inJob(), limits: []event.Limit{limitNode, limitUser}, length: minutes, sizes: []rss.Bytes{64 * rss.GiB, rss.GiB},
			used:   standing([]rss.Bytes{64 * rss.GiB, rss.GiB}, 0.05, 0.08),
			events: []record.Entry{{At: minutes, Name: event.NameExit, Value: &event.Exit{By: "command", Verdict: event.VerdictUnwatched}}}},
		cause: event.CauseKilled, certainty: Inferred,
	},
	{
		name: "a crash with all of --limit used, which ends nobody",
		scene: scene{limits: []event.Limit{limitNode, limitUser}, length: minutes, sizes: []rss.Bytes{64 * rss.GiB, rss.GiB},
			used: standing([]rss.Bytes{64 * rss.GiB, rss.GiB}, 0.05, 1.08), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name:  "node lost",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{}},
		cause: event.CauseUnknown, certainty: Inferred,
		said: ofSlurm("NODE_FAIL", "0:0", "", "", ""), saidCause: event.CauseNodeLost, saidCertainty: Slurm,
	},
	{
		name:  "the record breaks off, Slurm knows a good end",
		scene: scene{job: endsAfter(time.Hour), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{}},
		cause: event.CauseUnknown, certainty: Inferred,
		said: ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0"), saidCause: event.CauseEnded, saidCertainty: Slurm,
	},
	{
		name:  "running",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), live: true},
		cause: event.CauseRunning, certainty: Seen,
	},
	{
		name: "detached",
		scene: scene{limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			events: []record.Entry{{At: minutes, Name: event.NameExit, Value: &event.Exit{By: "detached"}}}},
		cause: event.CauseDetached, certainty: Seen,
	},
	{
		name: "Slurm and the record do not agree",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.5),
			events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseCrash, certainty: Seen,
		said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"), saidCause: event.CauseKernelOOM, saidCertainty: Slurm,
	},
}
