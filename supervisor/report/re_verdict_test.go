package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// TestBuildOfRanks: what ended one ends the others, and it is the one that is told.
func TestBuildOfRanks(t *testing.T) {
	runs := ranks()
	slices.Reverse(runs)
	rep := told(append(runs, nil, asJournal(t, runs[0])), nil, noon)
	if len(rep.Runs) != 4 || rep.Runs[0].Node != "n1" || rep.Runs[3].Task != 3 {
		t.Errorf("runs %+v", rep.Runs)
	}
	if rep.Cause != event.CauseKernelOOM || !strings.HasPrefix(rep.Verdict, "n2, step 0, task 3: killed by the kernel") {
		t.Errorf("%s: %s", rep.Cause, rep.Verdict)
	}
	if rep.Peaks.Cgroup.Run != "run3" {
		t.Errorf("cgroup peak of %s", rep.Peaks.Cgroup.Run)
	}
	if rep.Runs[3].JournalOnly {
		t.Error("the journal was preferred to the record")
	}
	// Slurm's word is on the step, on all nodes.
	said := ofSlurm("FAILED", "1:0", "", "", "")
	said.Steps = []StepSays{{ID: "12.0", State: "OUT_OF_MEMORY", ExitCode: "0:125"}}
	rep = told(runs, said, noon)
	if rep.Certainty != Seen || rep.Runs[0].Cause != event.CauseCancelled || !strings.HasPrefix(rep.Verdict, "n2, step 0, task 3: killed by the kernel") {
		t.Errorf("%s %s: %s", rep.Certainty, rep.Runs[0].Cause, rep.Verdict)
	}
	rep = told(runs[1:2], said, noon)
	if rep.Cause != event.CauseKernelOOM || rep.Certainty != Slurm {
		t.Errorf("of one task alone: %s, %s: %s", rep.Cause, rep.Certainty, rep.Verdict)
	}
}

// TestCarriedByHand: what somebody asked for while there was room kept nothing inside a
// limit.
func TestCarriedByHand(t *testing.T) {
	for share, want := range map[float64]event.Verdict{0.5: event.VerdictFine, 0.9: event.VerdictCarried} {
		code := 0
		run := scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: standing([]rss.Bytes{mem}, share), events: []record.Entry{
			{At: time.Minute, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: event.AskedFor, By: 9, Action: event.ActionTrim, Limit: event.LimitCgroup, Used: mem.Scale(share), LimitSize: mem}},
			{At: time.Minute + time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.GiB}},
			{At: minutes, Name: event.NameExit, Value: &event.Exit{By: "command", Code: &code, Verdict: event.VerdictCarried}},
		}}.run()
		rep := told([]*record.Run{run}, nil, noon)
		if rep.Outcome != want || strings.Contains(rep.Verdict, "kept inside its limit") != (want == event.VerdictCarried) {
			t.Errorf("%v: %s: %s", share, rep.Outcome, rep.Verdict)
		}
	}
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

func TestDiagnose(t *testing.T) {
	now := noon.Add(time.Hour)
	for _, test := range slices.Concat(deaths, sideDeaths) {
		for _, kind := range []string{"record", "journal"} {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				r := test.scene.run()
				if kind == "journal" {
					r = asJournal(t, r)
				}
				rep := told([]*record.Run{r}, nil, now)
				check(t, rep, test.cause, test.certainty)
				if test.said == nil {
					return
				}
				cause, certainty := test.saidCause, test.saidCertainty
				if cause == "" {
					cause = test.cause
				}
				if certainty == "" {
					certainty = test.certainty
				}
				rep = told([]*record.Run{r}, test.said, now)
				check(t, rep, cause, certainty)
				if !slices.ContainsFunc(rep.Evidence, func(s string) bool { return strings.HasPrefix(s, "Slurm (") }) {
					t.Errorf("Slurm's word is not in the evidence: %q", rep.Evidence)
				}
			})
		}
	}
	for _, c := range event.Causes {
		if !slices.ContainsFunc(slices.Concat(deaths, sideDeaths), func(d dying) bool {
			return d.cause == c || d.saidCause == c
		}) {
			t.Errorf("no test dies of %q", c)
		}
	}
}

func check(t *testing.T, rep *Report, cause event.Cause, certainty Certainty) {
	t.Helper()
	if rep.Cause != cause || rep.Certainty != certainty {
		t.Errorf("cause %q (%s), want %q (%s): %s", rep.Cause, rep.Certainty, cause, certainty, rep.Verdict)
	}
	if strings.Contains(rep.Verdict, "\n") || strings.HasSuffix(rep.Verdict, ".") || len(rep.Evidence) == 0 {
		t.Errorf("verdict %q, evidence %q", rep.Verdict, rep.Evidence)
	}
}

// TestEnds: what is said of each end, and what it follows from, of the record and of the
// journal alone, without Slurm's word and with it.
func TestEnds(t *testing.T) {
	var b strings.Builder
	for _, d := range slices.Concat(deaths, sideDeaths) {
		r := d.scene.run()
		fmt.Fprintf(&b, "== %s\n", d.name)
		for _, kind := range []string{"record", "journal"} {
			if kind == "journal" {
				r = asJournal(t, r)
			}
			for _, said := range []*SlurmSays{nil, d.said}[:1+b2i(d.said != nil)] {
				rep := told([]*record.Run{r}, said, noon.Add(time.Hour))
				fmt.Fprintf(&b, "%s%s: %s, %s: %s\n", kind, strings.Repeat(" and Slurm", b2i(said != nil)), rep.Cause, rep.Certainty, rep.Verdict)
				for _, e := range rep.Evidence {
					fmt.Fprintf(&b, "    %s\n", e)
				}
			}
		}
	}
	golden(t, "ends.txt", []byte(b.String()))
}

// TestLostLeaders: what is said of a record that breaks off where another goes on.
func TestLostLeaders(t *testing.T) {
	lost := func(share float64, ended ...recordtest.RankEnd) []*record.Run {
		a, b := onNode(2), onNode(2)
		a.To, a.Exit, a.Ends, a.Share = 5*time.Minute, nil, nil, recordtest.Rising(5*time.Minute, 0.3, share)
		b.From, b.Leader, b.Ends = 5*time.Minute+time.Second, 3, ended
		b.Share = func(time.Duration) float64 { return 0.2 }
		return built(a, b)
	}
	for _, test := range []struct {
		name    string
		runs    []*record.Run
		cause   event.Cause
		verdict string
	}{
		{"its rank went on", lost(0.5, recordtest.RankEnd{Task: 2, At: minutes}), event.CauseEnded, "both ranks on 1 node with a record ended with exit status 0; n2 came nearest to its limit, cgroup, with 2.00 GiB of 4.00 GiB (50 %)"},
		{"its rank failed later", lost(0.5, recordtest.RankEnd{Task: 2, At: minutes - time.Minute, Code: 3}), event.CauseCrash, "n2, step 0, task 2: the command failed by itself: exit status 3"},
		{"killed with its rank, memory full", lost(0.97, recordtest.RankEnd{Task: 2, At: 5*time.Minute + time.Second, Signal: "SIGKILL"}), event.CauseKernelOOM, "n2, step 0, task 2: most likely killed by the kernel: cgroup"},
		{"killed with its rank, room left", lost(0.5, recordtest.RankEnd{Task: 2, At: 5*time.Minute + time.Second, Signal: "SIGKILL"}), event.CauseKilled, "n2, step 0, task 2: "},
		{"nobody knows of its rank", lost(0.5), event.CauseEnded, "1 of 2 ranks on 1 node with a record ended with exit status 0, how the other ended is not in the records"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, runs := range [][]*record.Run{test.runs, {test.runs[1], test.runs[0]}} {
				rep := told(runs, nil, noon)
				if rep.Cause != test.cause || !strings.HasPrefix(rep.Verdict, test.verdict) {
					t.Errorf("%s: %s", rep.Cause, rep.Verdict)
				}
				if len(rep.Leads) != 1 || !rep.Leads[0].Lost || rep.Leads[0].From != 2 || rep.Leads[0].To != 3 || rep.Leads[0].Gap != 1 {
					t.Errorf("leads %+v", rep.Leads)
				}
			}
		})
	}
}

// TestFailedRank: the rank that failed is told, with what the limits stood at then,
// however long the others went on, and in a job that still runs.
func TestFailedRank(t *testing.T) {
	for _, live := range []bool{false, true} {
		d := onNode(2)
		d.Share = func(at time.Duration) float64 {
			if at <= 2*time.Minute {
				return recordtest.Rising(2*time.Minute, 0.3, 0.99)(at)
			}
			return 0.3
		}
		d.Ends = []recordtest.RankEnd{{Task: 3, At: 2 * time.Minute, Signal: "SIGKILL"}}
		if live {
			d.Exit = nil
		}
		runs := built(onNode(1), d)
		runs[1].Live = live
		rep := told(runs, nil, noon)
		if rep.Cause != event.CauseKernelOOM || !strings.HasPrefix(rep.Verdict, "n2, step 0, task 3: most likely killed by the kernel: cgroup") || !strings.Contains(rep.Verdict, "12:01:59") {
			t.Errorf("live %v: %s: %s", live, rep.Cause, rep.Verdict)
		}
		if b := rep.Binding; b == nil || b.Node != "n2" || !b.Decided || b.Task != 3 || b.RankRSS == 0 {
			t.Errorf("binding %+v", b)
		}
		if !slices.ContainsFunc(rep.Evidence, func(s string) bool {
			return strings.Contains(s, "step 0, task 3 (python, process 10302) ended with SIGKILL")
		}) {
			t.Errorf("evidence %q", rep.Evidence)
		}
	}
}

// sideDeaths are those by what is no memory that processes hold together.
var sideDeaths = []dying{
	{
		name: "tasks",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitTask}, length: minutes, sizes: []rss.Bytes{mem, 512},
			used: standing([]rss.Bytes{mem, 512}, 0.5, 1), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseTasks, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "tasks, by a signal of its own",
		scene: scene{job: inJob(), limits: []event.Limit{limitTask}, length: 3 * time.Second, sizes: []rss.Bytes{512},
			used: rising(3*time.Second, 512, 0.1, 0.85), events: []record.Entry{exits(3200*time.Millisecond, "SIGABRT", 0)}},
		cause: event.CauseTasks, certainty: Inferred,
	},
	{
		name: "all tasks used, and it ended well",
		scene: scene{job: inJob(), limits: []event.Limit{limitTask}, length: minutes, sizes: []rss.Bytes{512},
			used: standing([]rss.Bytes{512}, 1), events: []record.Entry{exits(minutes, "", 0)}},
		cause: event.CauseEnded, certainty: Seen,
	},
	{
		name: "address space",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitAddr}, length: minutes, sizes: []rss.Bytes{mem, 16 * rss.GiB},
			used: standing([]rss.Bytes{mem, 16 * rss.GiB}, 0.5, 0.97), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseAS, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "locked memory ends nothing",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitLock}, length: minutes, sizes: []rss.Bytes{mem, 8 * rss.MiB},
			used: standing([]rss.Bytes{mem, 8 * rss.MiB}, 0.6, 1), events: []record.Entry{exits(minutes, "", 1)}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name: "descriptors, faster than any count",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitFD}, length: minutes, sizes: []rss.Bytes{mem, 1024},
			used: standing([]rss.Bytes{mem, 1024}, 0.5, 0.05), events: []record.Entry{
				sends(minutes-2*time.Second, event.Sharing{Method: "spawn", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 1024, HardFDs: 1048576}),
				spawned(minutes - time.Second), exits(minutes, "", 1),
			}},
		cause: event.CauseFDs, certainty: Inferred,
		said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
	},
	{
		name: "maps, told by the hook alone",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(minutes-20*time.Second, event.Sharing{Method: "spawn", Maps: 90100, MaxMaps: 65530, FDs: 90024, MaxFDs: 1048576, More: true}), exits(minutes, "", 1),
		}},
		cause: event.CauseMaps, certainty: Inferred,
	},
	{
		name: "descriptors in one message to the fork server",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(minutes-time.Second, event.Sharing{Method: "forkserver", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 1048576, Sent: 9008, MaxSent: 253}), exits(minutes, "", 1),
		}},
		cause: event.CauseFDs, certainty: Inferred,
	},
	{
		name: "a data set was sent long before",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(time.Minute, event.Sharing{Method: "spawn", FDs: 9024, MaxFDs: 1024}), exits(minutes, "", 1),
		}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name: "a data set was sent, and all suffices",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6), events: []record.Entry{
			sends(minutes-time.Second, event.Sharing{Method: "spawn", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 10240}), exits(minutes, "", 1),
		}},
		cause: event.CauseCrash, certainty: Seen,
	},
	{
		name: "maps, and the finding that tells why",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.6),
			maps: func(at time.Duration) int { return int(65530 * at / minutes) }, events: []record.Entry{spawned(9 * time.Minute), exits(minutes+time.Second, "", 1)}},
		cause: event.CauseMaps, certainty: Inferred,
	},
	{
		name: "shm, and who holds it",
		scene: scene{job: inJob(), limits: []event.Limit{limitJob, limitSHM}, length: minutes, sizes: []rss.Bytes{mem, 64 * rss.MiB},
			used: standing([]rss.Bytes{mem, 64 * rss.MiB}, 0.5, 1), events: []record.Entry{
				found(9*time.Minute, event.FindingPrefetch, event.Certain, rss.RoleWorker, 60*rss.MiB), exits(minutes, "SIGBUS", 0)}},
		cause: event.CauseSHM, certainty: Inferred,
	},
}

// TestHolderKilled: where a leader's holder was killed its rank is not said to have
// ended, nor how: the command may run on.
func TestHolderKilled(t *testing.T) {
	runs := inTurn(2)
	e := runs[0].Exit()
	e.Code, e.Verdict = nil, event.VerdictUnwatched
	rep := told(runs, nil, noon)
	if len(rep.Leads) != 1 || !rep.Leads[0].Lost || !strings.Contains(leadSentence(&rep.Leads[0]), "task 0, whose watcher was gone, to step 0, task 1") {
		t.Errorf("leads %+v", rep.Leads)
	}
	if want := "n1, step 0, task 0: most likely somebody's SIGKILL ended rsswarden's holder at 12:01:00"; !strings.HasPrefix(rep.Verdict, want) {
		t.Errorf("%s", rep.Verdict)
	}
	if text := strings.Join(rep.Evidence, "\n"); !strings.Contains(text, "12:01:00.0: rsswarden's holder was gone; how the command ended, or whether it did, nobody saw") {
		t.Errorf("%s", text)
	}
	if rep.Ranks[0].Code != nil || !rep.Ranks[0].End.IsZero() {
		t.Errorf("%+v", rep.Ranks[0])
	}
	if l := Advise(runs)[0]; l.Line != noMem || !strings.Contains(l.Why, "the watcher was not there for all of the run") {
		t.Errorf("%+v", l)
	}
}

func find(t *testing.T, name string) dying {
	t.Helper()
	for _, d := range slices.Concat(deaths, sideDeaths) {
		if d.name == name {
			return d
		}
	}
	t.Fatalf("no death %q", name)
	return dying{}
}

// TestBuildOfRequeued: Slurm speaks of the last time that a job ran.
func TestBuildOfRequeued(t *testing.T) {
	first := find(t, "kernel, watcher and all: memory.oom.group").scene.run()
	first.Meta.ID = "first"
	s := find(t, "ended").scene
	s.job = inJob()
	s.job.Restarts = 1
	second := s.run()
	second.Meta.ID, second.Meta.Start = "second", noon.Add(time.Hour)
	said := ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0")
	said.Start = noon.Add(time.Hour)
	rep := told([]*record.Run{first, second}, said, noon)
	if rep.Cause != event.CauseEnded || rep.Runs[0].Cause != event.CauseKernelOOM {
		t.Errorf("%s, the first time %s: %s", rep.Cause, rep.Runs[0].Cause, rep.Verdict)
	}
}
