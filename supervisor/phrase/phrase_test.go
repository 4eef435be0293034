package phrase

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// TestIntroduce: the line that introduces a limit says where it comes from, what counts in it
// and who kills at it.
func TestIntroduce(t *testing.T) {
	slurmBy := func(a event.Accounting, enforcer string) event.Limit {
		return event.Limit{Name: event.LimitSlurm, Accounting: a, Enforcer: enforcer, Used: 91 * rss.MiB, Limit: 3000 * rss.MiB}
	}
	job := slurmBy(event.AccountingRSS, "slurmd, by OverMemoryKill")
	job.Scope = event.ScopeJob
	for _, c := range []struct {
		limit event.Limit
		want  string
	}{
		{event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 9 * rss.MiB, Limit: 900 * rss.MiB, LimitSource: "--limit"},
			"limit 900 MiB, 1 % used: --limit, summed RSS"},
		{event.Limit{Name: event.LimitCgroup, Accounting: event.AccountingCgroup, Used: 8 * rss.MiB, Limit: 400 * rss.MiB},
			"limit 400 MiB, 2 % used: cgroup, the kernel kills at it"},
		{slurmBy(event.AccountingRSS, "slurmstepd, by OverMemoryKill"), "limit 3000 MiB, 3 % used: slurm, Slurm kills at summed RSS"},
		{slurmBy(event.AccountingCgroup, "slurmstepd, by OverMemoryKill"),
			"limit 3000 MiB, 3 % used: slurm, Slurm kills at summed memory of the tasks' cgroups"},
		{job, "limit 3000 MiB, 3 % used: slurm, Slurm cancels the job at summed RSS, all steps of the job on this node"},
		{event.Limit{Name: event.LimitThrottle, Used: 90 * rss.GiB, Limit: 100 * rss.GiB}, "limit 100 GiB, 90 % used: memory.high, the kernel slows the job at it"},
	} {
		if got := Introduce(&c.limit); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestNear(t *testing.T) {
	memory := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 302 * rss.MiB, Limit: 360 * rss.MiB}
	pss := event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Used: 84 * rss.MiB, UsedMax: 91 * rss.MiB, Limit: 100 * rss.MiB}
	step := pss
	step.Level, step.UsedMax = "46.1", 84*rss.MiB
	for _, c := range []struct {
		limit event.Limit
		named bool
		want  string
	}{
		{memory, false, "84 % of 360 MiB"},
		{memory, true, "--limit 84 % of 360 MiB"},
		{pss, true, "slurm 84 to 91 % of 100 MiB"},
		{step, false, "slurm step 46.1 84 % of 100 MiB"},
		{event.Limit{Name: event.LimitMaps, Used: 53079, Limit: 65530, PID: 4711, Role: rss.RoleTrainer}, true, "memory mappings 81 % of 65,530 in trainer 4711"},
		{event.Limit{Name: event.LimitFDs, Used: 1024, Limit: 1024, PID: 4711, Role: rss.RoleOther}, true, "descriptors 100 % of 1,024 in process 4711"},
		{event.Limit{Name: event.LimitSHM, Used: 60 * rss.MiB, Limit: 64 * rss.MiB, Age: 61}, true, "/dev/shm 94 % of 64 MiB"},
		{event.Limit{Name: event.LimitTasks, Used: 90, Limit: 100, Scope: event.ScopeUser}, true, "tasks 90 % of 100, all your processes on the node"},
	} {
		if got := Near(&c.limit, c.named); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestOutcomeSentences(t *testing.T) {
	for _, test := range []struct {
		d     event.Decision
		o     event.Outcome
		procs int
		want  string
	}{
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{OK: true, PID: 36, Freed: 128 * rss.MiB, Paused: 0.121}, 1,
			"recycled worker 36, freed 128 MiB, paused 0.12 s"},
		{event.Decision{Action: event.ActionRecycle, Lead: 1}, event.Outcome{OK: true, PID: 17079, Freed: 190 * rss.MiB}, 1,
			"recycled worker 17079 early, freed 190 MiB"},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{OK: true, Freed: 30*rss.MiB + 100*rss.KiB}, 3, "trimmed 3 workers, freed 30 MiB"},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{OK: true, Freed: 2 * rss.GiB, Stopped: 0.002}, 1,
			"trimmed 1 process, freed 2 GiB, each stopped for 2.0 ms"},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{OK: true}, 0, "trimmed workers, freed nothing"},
		{event.Decision{Action: event.ActionStop}, event.Outcome{OK: true}, 0, "stopped the command"},
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{PID: 4711, Reason: event.ReasonTimeout}, 1, "recycle of worker 4711 failed: no answer in time"},
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{PID: 4711, Reason: event.ReasonDeferred}, 1, "recycle worker 4711: waits for the loader's next epoch"},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{Reason: event.ReasonError, Detail: "no such file"}, 1, "trim failed: no such file"},
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{PID: 45, Reason: event.ReasonDryRun}, 0, "would recycle worker 45 (dry run)"},
		{event.Decision{Action: event.ActionStop}, event.Outcome{Reason: event.ReasonDryRun}, 0, "would stop (dry run)"},
		{event.Decision{Action: event.ActionSignal, Arg: "USR2@rank0"}, event.Outcome{OK: true, PID: 12, Detail: "process 12"}, 0, "USR2 sent to process 12"},
		{event.Decision{Action: event.ActionSignal, Arg: "USR2"}, event.Outcome{Reason: event.ReasonVanished}, 0, "signal=USR2 failed: the process has ended"},
		{event.Decision{Action: event.ActionExec, Arg: "a.sh"}, event.Outcome{Reason: event.ReasonVanished, Detail: "killed by SIGTERM, what is watched had ended"}, 0,
			"exec=a.sh failed: killed by SIGTERM, what is watched had ended"},
		{event.Decision{Action: event.ActionRequeue}, event.Outcome{OK: true, Detail: "with 1250 MiB (was 1000); release 3 ms"}, 0, "requeued with 1250 MiB (was 1000)"},
		{event.Decision{Action: event.ActionGC}, event.Outcome{OK: true, Freed: rss.GiB}, 0, "collected garbage, freed 1 GiB"},
	} {
		if got := Outcome(&test.d, &test.o, test.procs); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		d    event.Diagnosis
		want string
	}{
		{event.Diagnosis{Finding: event.FindingMapped, Confidence: event.Certain, Role: rss.RoleWorker, Procs: 4, Rate: 61 * float64(rss.MiB), File: "/data/demo.lmdb"},
			"growth: mapped file demo.lmdb, +61 MiB/s in 4 workers"},
		{event.Diagnosis{Finding: event.FindingMapped, Confidence: event.Certain, Role: rss.RoleWorker, Procs: 3, Bytes: rss.GiB},
			"growth: mapped file pages in 3 workers; trims handle it"},
		{event.Diagnosis{Finding: event.FindingCopyOnWrite, Confidence: event.Likely, Role: rss.RoleWorker, Procs: 4, Bytes: 420 * rss.MiB},
			"growth: likely copy-on-write, 420 MiB in 4 workers"},
		{event.Diagnosis{Finding: event.FindingTrainerLeak, Confidence: event.Certain, Role: rss.RoleTrainer, Procs: 1, Rate: 2 * float64(rss.MiB)},
			"growth: leak in trainer, +2 MiB/s"},
	} {
		if got := Growth(&c.d); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestSkippedRule(t *testing.T) {
	rule := event.Rule{Action: event.ActionTrim}
	for _, c := range []struct{ got, want string }{
		{SkippedRule(&rule, event.LimitUser, event.ReasonNoWorker, ""), "trim skipped: no DataLoader workers found"},
		{SkippedRule(&rule, event.LimitCgroup, event.ReasonNoHelp, event.ActionTrim.Why(event.ReasonNoHelp)), "trim skipped: mapped pages do not count in this limit"},
		{SkippedRule(&event.Rule{Action: event.ActionRequeue}, event.LimitUser, event.ReasonUnsupported, "not in a Slurm job"), "requeue skipped: not in a Slurm job"},
		{SkippedRule(&rule, event.LimitFDs, event.ReasonNoHelp, ""), "trim skipped for descriptors: it does not lower this limit"},
	} {
		if c.got != c.want {
			t.Errorf("got  %q\nwant %q", c.got, c.want)
		}
	}
}

func TestForecastSentences(t *testing.T) {
	eta, low, high := 600.0, 480.0, 9000.0
	for want, d := range map[string]event.Decision{
		"":                                  {},
		", full in 10 min":                  {ETA: &eta},
		", full in 10 min (8 min to 2.5 h)": {ETA: &eta, Outlook: event.Outlook{ETALow: &low, ETAHigh: &high}},
		", full in 10 min (at least 8 min; it may flatten before)": {ETA: &eta, Outlook: event.Outlook{ETALow: &low}},
		", flattens at about 2.50 GiB, below the limit":            {Limit: event.LimitUser, Outlook: event.Outlook{Flattens: 2560 * rss.MiB}},
	} {
		if got := Forecast(&d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	for source, want := range map[string]string{
		"RLIMIT_RSS": "--mem, read from RLIMIT_RSS", "/a/b": "/a/b", "/sys/fs/cgroup/job_7/memory.max": "job_7/memory.max",
	} {
		if got := (&event.Limit{LimitSource: source}).Place(); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	const file = "/home/me/jobs/job.toml"
	if got := (&event.Limit{Name: event.LimitUser, LimitSource: file}).Place(); got != file {
		t.Errorf("a file of the user's: %q, want %q", got, file)
	}
}

func TestFirstLines(t *testing.T) {
	if got, want := Watching([]string{"python", "train.py"}, 6420), "watching python train.py (6420)"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := Watching([]string{"python", strings.Repeat("x", 100)}, 6420); text.Columns(got) != width || !strings.HasSuffix(got, "… (6420)") {
		t.Errorf("got  %q", got)
	}
	node := event.Limit{Name: event.LimitNode, Used: 3 * rss.GiB, Limit: 64 * rss.GiB}
	slurmLimit := event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Used: 30 * rss.MiB, Limit: 3 * rss.GiB}
	for _, c := range []struct {
		limits []event.Limit
		want   string
	}{
		{[]event.Limit{node, slurmLimit, {Name: event.LimitThrottle, Used: 1, Limit: 2}, {Name: event.LimitTime}}, "limit 3.0 GiB, 1 % used: slurm, Slurm kills at summed RSS"},
		{[]event.Limit{node}, "no job limit found; node 64.0 GiB, 5 % used"},
		{[]event.Limit{{Name: event.LimitTime}}, "no memory limit found"},
	} {
		if got, of := Room(c.limits); got != c.want || (of.Name == event.LimitNode) != strings.Contains(c.want, "node") {
			t.Errorf("got  %q, %+v\nwant %q", got, of, c.want)
		}
	}
}

func TestNoExecIsSaidWhereItIsKnown(t *testing.T) {
	batch := slurm.Job{ID: "7", StepID: slurm.StepBatch}
	for _, test := range []struct {
		job    slurm.Job
		ok     bool
		parent string
		want   bool
	}{
		{batch, true, "slurm_script", true},
		{batch, true, "slurmstepd", false},
		{batch, true, "", false}, // cannot be read
		{batch, false, "bash", false},
		{slurm.Job{ID: "7", StepID: "0"}, true, "bash", false},
	} {
		if got := NoExec(test.job, test.ok, test.parent) != ""; got != test.want {
			t.Errorf("%+v below %q: warned %v, want %v", test.job, test.parent, got, test.want)
		}
	}
}
