package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestVerdicts: what ended one rank ends the others, and the report names that one; Slurm's
// word is on the step, on all nodes, and of a job that was requeued on the last time that it
// ran. A trim that a user asked for while there was room kept nothing under a limit.
func TestVerdicts(t *testing.T) {
	ranks := scenetest.Ranks()
	slices.Reverse(ranks)
	died, ended := ofSlurm("FAILED", "1:0", "", "", ""), ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0")
	died.Steps = []analysis.StepSays{{ID: "12.0", State: "OUT_OF_MEMORY", ExitCode: "0:125"}}
	ended.Start = scenetest.Noon.Add(time.Hour)
	first, again := find(t, "kernel, watcher and all: memory.oom.group").scene.Run(), find(t, "ended").scene
	first.Meta.ID = "first"
	again.Job = scenetest.InJob()
	again.Job.Restarts = 1
	second := again.Run()
	second.Meta.ID, second.Meta.Start = "second", ended.Start
	trimmed := func(share float64) []*record.Run {
		exit := scenetest.Exits(scenetest.Minutes, "", 0)
		return []*record.Run{scenetest.Using(share, share,
			record.Entry{At: time.Minute, Name: event.NameDecision, Value: &event.Decision{
				ID: 1, Rule: event.AskedFor, By: 9, Action: event.ActionTrim, Limit: event.LimitCgroup, Used: scenetest.Mem.Scale(share), LimitSize: scenetest.Mem,
			}},
			record.Entry{At: time.Minute + time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Freed: rss.GiB}},
			exit).Run()}
	}
	var b strings.Builder
	for _, c := range []struct {
		name string
		runs []*record.Run
		said *analysis.SlurmSays
	}{
		{"ranks, a journal of one beside its record", append(slices.Clone(ranks), nil, scenetest.AsJournal(t, ranks[0])), nil},
		{"ranks, and Slurm", ranks, died},
		{"one rank alone, and Slurm", ranks[1:2], died},
		{"requeued", []*record.Run{first, second}, ended},
		{"trimmed by request, with room", trimmed(0.5), nil},
		{"trimmed by request, where memory was short", trimmed(0.9), nil},
	} {
		rep := told(c.runs, c.said, scenetest.Noon)
		fmt.Fprintf(&b, "== %s\n%s, %s, %s: %s\n", c.name, rep.Outcome, rep.Cause, rep.Certainty, rep.Verdict)
		for _, r := range rep.Runs {
			fmt.Fprintf(&b, "    %s on %s, task %d: %s, journal alone %v\n", r.ID, r.Node, r.Task, r.Cause, r.JournalOnly)
		}
		fmt.Fprintf(&b, "    cgroup peak of %s\n", rep.Peaks.Cgroup.Run)
	}
	golden.Check(t, "testdata/verdicts.txt", b.String())
}

func ofSlurm(state, code, stepState, by, stepCode string) *analysis.SlurmSays {
	s := &analysis.SlurmSays{Source: "sacct", State: state, ExitCode: code, ReqMem: "3072000K", TimeLimit: "00:10:00", Start: scenetest.Noon, End: scenetest.Noon.Add(scenetest.Minutes + time.Second)}
	if stepState != "" {
		s.Steps = []analysis.StepSays{{ID: "12.batch", State: stepState, By: by, ExitCode: stepCode}}
	}
	return s
}

func byRoot(s *analysis.SlurmSays) *analysis.SlurmSays { s.By = "0"; return s }

func byUser(s *analysis.SlurmSays) *analysis.SlurmSays { s.By = "1000"; return s }

// dying is a way in which a run ends, and what a report must say of it. Slurm's
// words are those that were seen of such an end (package slurm has them whole).
type dying struct {
	name  string
	scene scenetest.Scene
	cause event.Cause
	said  *analysis.SlurmSays
}

var deaths = []dying{
	{name: "ended", cause: event.CauseEnded, said: ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0"),
		scene: scenetest.Using(0.2, 0.7, scenetest.Exits(scenetest.Minutes, "", 0))},
	{name: "requeue=", cause: event.CauseRequeued, said: ofSlurm("PENDING", "0:0", "CANCELLED", "", "0:15"),
		scene: scenetest.Using(0.2, 0.96,
			record.Entry{At: scenetest.Minutes - 20*time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "95%:requeue=+25%", Limit: event.LimitCgroup, Action: event.ActionRequeue, Used: scenetest.Mem.Scale(0.95), LimitSize: scenetest.Mem}},
			scenetest.Signalled(scenetest.Minutes-10*time.Second, "SIGTERM"),
			record.Entry{At: scenetest.Minutes - time.Second, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Reason: event.ReasonDone}},
			scenetest.Requeues(scenetest.Exits(scenetest.Minutes, "SIGTERM", 0)),
		)},
	{name: "crash", cause: event.CauseCrash, said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
		scene: scenetest.Using(0.2, 0.6, scenetest.Exits(scenetest.Minutes, "", 1))},
	{name: "crash at 89 %, and 90 % between two samples", cause: event.CauseCrash,
		scene: scenetest.Using(0.2, 0.89, func() record.Entry {
			e, most := scenetest.Exits(scenetest.Minutes, "", 3), scenetest.LimitJob
			most.Used, most.Limit = scenetest.Mem.Scale(0.9), scenetest.Mem
			e.Value.(*event.Exit).Binding = &most
			return e
		}())},
	{name: "crash by a signal, which sacct calls cancelled", cause: event.CauseCrash, said: ofSlurm("FAILED", "0:11", "CANCELLED", "", "0:11"),
		scene: scenetest.Using(0.2, 0.6, scenetest.Exits(scenetest.Minutes, "SIGSEGV", 0))},
	{name: "stopped", cause: event.CauseStopped,
		scene: scenetest.Using(0.2, 0.98,
			record.Entry{At: scenetest.Minutes - time.Second, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "98%:stop", Limit: event.LimitCgroup, Action: event.ActionStop, Used: scenetest.Mem.Scale(0.98), LimitSize: scenetest.Mem}},
			record.Entry{At: scenetest.Minutes, Name: event.NameExit, Value: &event.Exit{By: "rsswarden", Code: new(int), Brief: event.Brief{Outcome: event.RunStopped, Watched: event.WatchedAll}}},
		)},
	{name: "kernel, the command", cause: event.CauseKernelOOM, said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"),
		scene: scenetest.Using(0.2, 0.997, scenetest.Exits(scenetest.Minutes+400*time.Millisecond, "SIGKILL", 0, scenetest.Kills(1)...))},
	{name: "kernel, a worker, seconds before the trainer gave up", cause: event.CauseKernelOOM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem},
			Used: func(at time.Duration) []rss.Bytes {
				if at > scenetest.Minutes-5*time.Second {
					return []rss.Bytes{scenetest.Mem / 3}
				}
				return []rss.Bytes{scenetest.Mem.Scale(0.99)}
			},
			Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1, scenetest.Kills(1)...)}}},
	{name: "kernel, faster than samples", cause: event.CauseKernelOOM,
		scene: scenetest.Using(0.2, 0.61, scenetest.Exits(scenetest.Minutes+300*time.Millisecond, "SIGKILL", 0, scenetest.Kills(1)...))},
	{name: "kernel, watcher and all: memory.oom.group", cause: event.CauseKernelOOM, said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"),
		scene: scenetest.Using(0.2, 0.99)},
	{name: "kernel, others above the job", cause: event.CauseEnded,
		scene: scenetest.Using(0.2, 0.5, scenetest.Exits(scenetest.Minutes, "", 0, event.KernelKills{Level: "/sys/fs/cgroup/memory/slurm", Scope: event.ScopeCgroup, Kills: 3}))},
	{name: "kernel, a job that ended well all the same", cause: event.CauseKernelOOM, said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"),
		scene: scenetest.Using(0.2, 0.99, scenetest.Exits(scenetest.Minutes, "", 0, scenetest.Kills(2)...))},
	{name: "node memory", cause: event.CauseNodeOOM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitNode}, Length: scenetest.Minutes, Sizes: []rss.Bytes{64 * rss.GiB}, Used: scenetest.Rising(scenetest.Minutes, 64*rss.GiB, 0.2, 0.985),
			Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "SIGKILL", 0)}}},
	{name: "node memory, a kill was counted", cause: event.CauseNodeOOM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitNode, scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{64 * rss.GiB, scenetest.Mem},
			Used:   scenetest.Standing([]rss.Bytes{64 * rss.GiB, scenetest.Mem}, 0.99, 0.5),
			Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "SIGKILL", 0, scenetest.Kills(1)...)}}},
	{name: "OverMemoryKill", cause: event.CauseOverKill, said: ofSlurm("FAILED", "0:9", "CANCELLED", "0", "0:9"),
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitStepd}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 2.12),
			Events: []record.Entry{}}},
	{name: "OverMemoryKill, faster than samples", cause: event.CauseOverKill, said: &analysis.SlurmSays{Source: "scontrol show job", State: "FAILED", Reason: "JobLaunchFailure", ExitCode: "0:9", ReqMem: "3000M"},
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitStepd}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem},
			Used: func(at time.Duration) []rss.Bytes {
				return []rss.Bytes{scenetest.Mem.Scale(max(0.2, 0.8-0.4*(scenetest.Minutes-at).Seconds()))}
			},
			Events: []record.Entry{}}},
	{name: "OverMemoryKill that the record does not show", cause: event.CauseUnknown, said: &analysis.SlurmSays{Source: "sacct", State: "FAILED", ExitCode: "0:9", ReqMem: "3072000K", Steps: []analysis.StepSays{{ID: "12.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: uint64(2 * scenetest.Mem)}}},
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitStepd}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.3), Events: []record.Entry{}}},
	{name: "time limit", cause: event.CauseTimeLimit, said: ofSlurm("TIMEOUT", "0:0", "CANCELLED", "", "0:15"),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(scenetest.Minutes - 5*time.Second), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-4*time.Second, "SIGTERM"), scenetest.Exits(scenetest.Minutes, "SIGTERM", 0)}}},
	{name: "time limit, KillWait over", cause: event.CauseTimeLimit, said: ofSlurm("TIMEOUT", "0:0", "CANCELLED", "", "0:9"),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(scenetest.Minutes - 31*time.Second), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.97),
			Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-30*time.Second, "SIGTERM")}}},
	{name: "time limit, behind a batch script", cause: event.CauseTimeLimit,
		scene: scenetest.Scene{Job: scenetest.EndsAfter(scenetest.Minutes - 30*time.Second), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Events: []record.Entry{}}},
	{name: "time limit from a limit event", cause: event.CauseTimeLimit,
		scene: scenetest.Using(0.2, 0.6,
			record.Entry{At: 3 * time.Second, Name: event.NameLimit, Value: &event.Found{Limit: event.Limit{Name: event.LimitTime, ETA: scenetest.Eta(scenetest.Minutes - 8*time.Second)}}},
			scenetest.Signalled(scenetest.Minutes-5*time.Second, "SIGTERM"),
			scenetest.Exits(scenetest.Minutes, "SIGKILL", 0),
		)},
	{name: "cancelled", cause: event.CauseCancelled, said: ofSlurm("CANCELLED", "0:0", "CANCELLED", "", "0:15"),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-2*time.Second, "SIGTERM"), scenetest.Exits(scenetest.Minutes, "", 143)}}},
	{name: "cancelled by slurmd for the job's sum", cause: event.CauseOverKill, said: byRoot(ofSlurm("CANCELLED", "0:15", "CANCELLED", "", "0:15")),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitStepd, scenetest.LimitJobSum}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, scenetest.Mem},
			Used: scenetest.Pair(scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.66), scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.3, 1.29)), Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-2*time.Second, "SIGTERM"), scenetest.Exits(scenetest.Minutes, "SIGTERM", 0)}}},
	{name: "cancelled by its user, over the job's sum", cause: event.CauseOverKill, said: byUser(ofSlurm("CANCELLED", "0:0", "CANCELLED", "1000", "0:15")),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitStepd, scenetest.LimitJobSum}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, scenetest.Mem},
			Used: scenetest.Pair(scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.66), scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.3, 1.29)), Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-2*time.Second, "SIGTERM"), scenetest.Exits(scenetest.Minutes, "SIGTERM", 0)}}},
	{name: "cancelled by slurmd behind a batch script", cause: event.CauseOverKill, said: byRoot(ofSlurm("CANCELLED", "0:15", "CANCELLED", "", "0:15")),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitStepd, scenetest.LimitJobSum}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, scenetest.Mem},
			Used: scenetest.Pair(scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.93), scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.3, 1.29))}},
	{name: "slurmstepd kills a step over its own limit before", cause: event.CauseOverKill,
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitStepd, scenetest.LimitJobSum}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, scenetest.Mem},
			Used: scenetest.Pair(scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 1.02), scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.3, 1.03))}},
	{name: "cancelled below the job's sum", cause: event.CauseCancelled, said: byRoot(ofSlurm("CANCELLED", "0:0", "CANCELLED", "", "0:15")),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitStepd, scenetest.LimitJobSum}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, scenetest.Mem},
			Used: scenetest.Pair(scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.4), scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.3, 0.7)), Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-2*time.Second, "SIGTERM"), scenetest.Exits(scenetest.Minutes, "SIGTERM", 0)}}},
	{name: "SIGKILL above the job's sum is not slurmd's", cause: event.CauseKilled,
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitStepd, scenetest.LimitJobSum}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, scenetest.Mem},
			Used: scenetest.Pair(scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.4), scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.3, 1.2)), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "SIGKILL", 0)}}},
	{name: "cancelled or time limit, only Slurm knows", cause: event.CauseCancelled, said: ofSlurm("TIMEOUT", "0:0", "CANCELLED", "", "0:15"),
		scene: scenetest.Using(0.2, 0.6, scenetest.Signalled(scenetest.Minutes-2*time.Second, "SIGTERM"), scenetest.Exits(scenetest.Minutes, "SIGTERM", 0))},
	{name: "asked to end outside Slurm", cause: event.CauseCancelled,
		scene: scenetest.Scene{Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Events: []record.Entry{scenetest.Signalled(scenetest.Minutes-time.Second, "SIGINT"), scenetest.Exits(scenetest.Minutes, "SIGINT", 0)}}},
	{name: "maps", cause: event.CauseMaps, said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Maps: func(at time.Duration) int { return int(65530 * at / scenetest.Minutes) }, Events: []record.Entry{scenetest.Exits(scenetest.Minutes+time.Second, "", 1)}}},
	{name: "descriptors", cause: event.CauseFDs,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitFD}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 1024},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 1024}, 0.5, 0.99), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "shm", cause: event.CauseSHM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitSHM}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 64 * rss.MiB},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 64 * rss.MiB}, 0.5, 1), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "SIGBUS", 0)}}},
	{name: "maps, within seconds", cause: event.CauseMaps,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: 3 * time.Second, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(3*time.Second, scenetest.Mem, 0.1, 0.5),
			Maps: func(at time.Duration) int { return 30000 + int(9000*at/time.Second) }, Events: []record.Entry{scenetest.Exits(3200*time.Millisecond, "", 1)}}},
	{name: "maps grow, slowly", cause: event.CauseCrash,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: 3 * time.Second, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(3*time.Second, scenetest.Mem, 0.1, 0.5),
			Maps: func(at time.Duration) int { return 40000 + int(2000*at/time.Second) }, Events: []record.Entry{scenetest.Exits(3200*time.Millisecond, "", 1)}}},
	{name: "all of it killed while its memory grew", cause: event.CauseKernelOOM,
		scene: scenetest.Scene{Limits: []event.Limit{scenetest.LimitJob}, Length: 10 * time.Second, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(10*time.Second, scenetest.Mem, 0.2, 0.88), Events: []record.Entry{}}},
	{name: "shm, a worker", cause: event.CauseSHM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitSHM}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 64 * rss.MiB},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 64 * rss.MiB}, 0.5, 0.995), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "killed from outside", cause: event.CauseKilled,
		scene: scenetest.Using(0.2, 0.6, scenetest.Exits(scenetest.Minutes, "", 137))},
	{name: "kernel oom between two samples", cause: event.CauseKernelOOM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Standing([]rss.Bytes{scenetest.Mem}, 0.6),
			Events: []record.Entry{{At: scenetest.Minutes, Name: event.NameExit, Value: scenetest.Missed()}}}},
	{name: "all of it killed, the watcher a moment later", cause: event.CauseKilled, said: ofSlurm("CANCELLED", "0:15", "CANCELLED", "", "0:15"),
		scene: scenetest.Using(0.2, 0.6, record.Entry{At: scenetest.Minutes, Name: event.NameExit, Value: &event.Exit{By: "command", Brief: event.Brief{Outcome: event.RunOK, Watched: event.WatchedAll}}})},
	{name: "the holder was killed alone, with less of the node used than of --limit", cause: event.CauseKilled,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitNode, scenetest.LimitUser}, Length: scenetest.Minutes, Sizes: []rss.Bytes{64 * rss.GiB, rss.GiB},
			Used:   scenetest.Standing([]rss.Bytes{64 * rss.GiB, rss.GiB}, 0.05, 0.08),
			Events: []record.Entry{{At: scenetest.Minutes, Name: event.NameExit, Value: &event.Exit{By: "command"}}}}},
	{name: "a crash with all of --limit used, which kills nothing", cause: event.CauseCrash,
		scene: scenetest.Scene{Limits: []event.Limit{scenetest.LimitNode, scenetest.LimitUser}, Length: scenetest.Minutes, Sizes: []rss.Bytes{64 * rss.GiB, rss.GiB},
			Used: scenetest.Standing([]rss.Bytes{64 * rss.GiB, rss.GiB}, 0.05, 1.08), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "a crash with more of the node used than of --limit, which the summary names", cause: event.CauseCrash,
		scene: scenetest.Scene{Limits: []event.Limit{scenetest.LimitNode, scenetest.LimitUser}, Length: scenetest.Minutes, Sizes: []rss.Bytes{64 * rss.GiB, rss.GiB},
			Used: scenetest.Standing([]rss.Bytes{64 * rss.GiB, rss.GiB}, 0.18, 0.01), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "node lost", cause: event.CauseUnknown, said: ofSlurm("NODE_FAIL", "0:0", "", "", ""),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6), Events: []record.Entry{}}},
	{name: "the record ends, Slurm knows a good end", cause: event.CauseUnknown, said: ofSlurm("COMPLETED", "0:0", "COMPLETED", "", "0:0"),
		scene: scenetest.Scene{Job: scenetest.EndsAfter(time.Hour), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6), Events: []record.Entry{}}},
	{name: "running", cause: event.CauseRunning,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6), Live: true}},
	{name: "detached", cause: event.CauseDetached,
		scene: scenetest.Scene{Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Events: []record.Entry{{At: scenetest.Minutes, Name: event.NameExit, Value: &event.Exit{By: "detached"}}}}},
	{name: "Slurm and the record do not agree", cause: event.CauseCrash, said: ofSlurm("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "", "0:125"),
		scene: scenetest.Using(0.2, 0.5, scenetest.Exits(scenetest.Minutes, "", 1))},
}

// TestEnds: the text on each end, and its evidence, of the record and of the
// journal alone, without Slurm's word and with it.
func TestEnds(t *testing.T) {
	var b strings.Builder
	seen := map[event.Cause]bool{}
	for _, d := range slices.Concat(deaths, sideDeaths) {
		r := d.scene.Run()
		fmt.Fprintf(&b, "== %s\n", d.name)
		for _, kind := range []string{"record", "journal"} {
			if kind == "journal" {
				r = scenetest.AsJournal(t, r)
			}
			for _, said := range []*analysis.SlurmSays{nil, d.said}[:1+b2i(d.said != nil)] {
				rep := told([]*record.Run{r}, said, scenetest.Noon.Add(time.Hour))
				seen[rep.Cause] = true
				fmt.Fprintf(&b, "%s%s: %s, %s: %s\n", kind, strings.Repeat(" and Slurm", b2i(said != nil)), rep.Cause, rep.Certainty, rep.Verdict)
				for _, e := range rep.Evidence {
					fmt.Fprintf(&b, "    %s\n", e)
				}
				if said == nil && rep.Cause != d.cause || strings.Contains(rep.Verdict, "\n") || strings.HasSuffix(rep.Verdict, ".") || len(rep.Evidence) == 0 {
					t.Errorf("%s, %s: %s, want %s: %q, %q", d.name, kind, rep.Cause, d.cause, rep.Verdict, rep.Evidence)
				}
			}
		}
	}
	for _, c := range event.Causes {
		if !seen[c] {
			t.Errorf("no test dies of %q", c)
		}
	}
	golden.Check(t, "testdata/ends.txt", b.String())
}

// sideDeaths are those by what is no memory that processes hold together.
var sideDeaths = []dying{
	{name: "tasks", cause: event.CauseTasks, said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitTask}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 512},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 512}, 0.5, 1), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "tasks, by a signal of its own", cause: event.CauseTasks,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitTask}, Length: 3 * time.Second, Sizes: []rss.Bytes{512},
			Used: scenetest.Rising(3*time.Second, 512, 0.1, 0.85), Events: []record.Entry{scenetest.Exits(3200*time.Millisecond, "SIGABRT", 0)}}},
	{name: "all tasks used, and it ended well", cause: event.CauseEnded,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitTask}, Length: scenetest.Minutes, Sizes: []rss.Bytes{512},
			Used: scenetest.Standing([]rss.Bytes{512}, 1), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 0)}}},
	{name: "address space", cause: event.CauseAS, said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitAddr}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 16 * rss.GiB},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 16 * rss.GiB}, 0.5, 0.97), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "locked memory ends nothing", cause: event.CauseCrash,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitLock}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 8 * rss.MiB},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 8 * rss.MiB}, 0.6, 1), Events: []record.Entry{scenetest.Exits(scenetest.Minutes, "", 1)}}},
	{name: "descriptors, faster than any count", cause: event.CauseFDs, said: ofSlurm("FAILED", "1:0", "FAILED", "", "1:0"),
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitFD}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 1024},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 1024}, 0.5, 0.05), Events: []record.Entry{
				scenetest.Sends(scenetest.Minutes-2*time.Second, event.Sharing{Method: "spawn", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 1024, HardFDs: 1048576}),
				scenetest.Spawned(scenetest.Minutes - time.Second), scenetest.Exits(scenetest.Minutes, "", 1),
			}}},
	{name: "maps, from the hook alone", cause: event.CauseMaps,
		scene: scenetest.Using(0.2, 0.6, scenetest.Sends(scenetest.Minutes-20*time.Second, event.Sharing{Method: "spawn", Maps: 90100, MaxMaps: 65530, FDs: 90024, MaxFDs: 1048576, More: true}), scenetest.Exits(scenetest.Minutes, "", 1))},
	{name: "descriptors in one message to the fork server", cause: event.CauseFDs,
		scene: scenetest.Using(0.2, 0.6, scenetest.Sends(scenetest.Minutes-time.Second, event.Sharing{Method: "forkserver", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 1048576, Sent: 9008, MaxSent: 253}), scenetest.Exits(scenetest.Minutes, "", 1))},
	{name: "a data set was sent long before", cause: event.CauseCrash,
		scene: scenetest.Using(0.2, 0.6, scenetest.Sends(time.Minute, event.Sharing{Method: "spawn", FDs: 9024, MaxFDs: 1024}), scenetest.Exits(scenetest.Minutes, "", 1))},
	{name: "a data set was sent, and all suffices", cause: event.CauseCrash,
		scene: scenetest.Using(0.2, 0.6, scenetest.Sends(scenetest.Minutes-time.Second, event.Sharing{Method: "spawn", Maps: 9100, MaxMaps: 65530, FDs: 9024, MaxFDs: 10240}), scenetest.Exits(scenetest.Minutes, "", 1))},
	{name: "maps, and the finding that tells why", cause: event.CauseMaps,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.6),
			Maps: func(at time.Duration) int { return int(65530 * at / scenetest.Minutes) }, Events: []record.Entry{scenetest.Spawned(9 * time.Minute), scenetest.Exits(scenetest.Minutes+time.Second, "", 1)}}},
	{name: "shm, and who holds it", cause: event.CauseSHM,
		scene: scenetest.Scene{Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob, scenetest.LimitSHM}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem, 64 * rss.MiB},
			Used: scenetest.Standing([]rss.Bytes{scenetest.Mem, 64 * rss.MiB}, 0.5, 1), Events: []record.Entry{
				scenetest.Found(9*time.Minute, event.FindingPrefetch, event.Certain, rss.RoleWorker, 60*rss.MiB), scenetest.Exits(scenetest.Minutes, "SIGBUS", 0)}}},
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

func TestSays(t *testing.T) {
	got := slurm.EndedJob{Source: "sacct", ID: "10", State: "FAILED", ExitCode: "0:9", ReqMem: "102400K",
		Steps: []slurm.EndedStep{{ID: "10.batch", State: "CANCELLED", By: "0", ExitCode: "0:9", MaxRSS: 931340 << 10}}}
	if analysis.Requested(&got) != 100*rss.MiB || askedFor(&got) != "100M" || !got.KilledBySlurmstepd(got.Step("10", "batch")) {
		t.Errorf("%+v: %v", got, analysis.Requested(&got))
	}
	for text, want := range map[string]rss.Bytes{"400M": 400 * rss.MiB, "4G": 4 * rss.GiB, "400Mn": 400 * rss.MiB, "100Mc": 0, "": 0, "x": 0} {
		if b := analysis.Requested(&slurm.EndedJob{ReqMem: text}); b != want {
			t.Errorf("ReqMem %q is %v, want %v", text, b, want)
		}
	}
}
