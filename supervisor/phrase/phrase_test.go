package phrase

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// TestSentences holds the sentences of the live log, each with every part that it may have.
func TestSentences(t *testing.T) {
	var b strings.Builder
	show := func(lines ...string) {
		for _, line := range lines {
			fmt.Fprintf(&b, "%q\n", line)
		}
	}

	b.WriteString("# limits that are introduced\n")
	user := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 302 * rss.MiB, Limit: 360 * rss.MiB, LimitSource: "--limit"}
	node := event.Limit{Name: event.LimitNode, Used: 3 * rss.GiB, Limit: 64 * rss.GiB}
	throttle := event.Limit{Name: event.LimitThrottle, Used: 90 * rss.GiB, Limit: 100 * rss.GiB}
	cgroup := event.Limit{Name: event.LimitCgroup, Accounting: event.AccountingCgroup, Used: 8 * rss.MiB, Limit: 400 * rss.MiB}
	slurmRSS := event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Enforcer: "slurmstepd, by OverMemoryKill", Used: 91 * rss.MiB, Limit: 3000 * rss.MiB}
	slurmCgroup, job := slurmRSS, slurmRSS
	slurmCgroup.Accounting = event.AccountingCgroup
	job.Enforcer, job.Scope = "slurmd, by OverMemoryKill", event.ScopeJob
	for _, l := range []event.Limit{user, cgroup, slurmRSS, slurmCgroup, job, throttle} {
		show(Introduce(&l))
	}
	for _, limits := range [][]event.Limit{{node, slurmRSS, throttle, {Name: event.LimitTime}}, {node}, {{Name: event.LimitTime}}} {
		line, of := Room(limits)
		show(line, string(of.Name))
	}

	b.WriteString("# limits that are near\n")
	pss := event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Used: 84 * rss.MiB, UsedMax: 91 * rss.MiB, Limit: 100 * rss.MiB}
	step := pss
	step.Level, step.UsedMax = "46.1", 84*rss.MiB
	for _, l := range []event.Limit{
		user, pss, step,
		{Name: event.LimitMaps, Used: 53079, Limit: 65530, PID: 4711, Role: rss.RoleTrainer},
		{Name: event.LimitFDs, Used: 1024, Limit: 1024, PID: 4711, Role: rss.RoleOther},
		{Name: event.LimitSHM, Used: 60 * rss.MiB, Limit: 64 * rss.MiB, Age: 61},
		{Name: event.LimitTasks, Used: 90, Limit: 100, Scope: event.ScopeUser},
	} {
		show(Near(&l, false), Near(&l, true))
	}

	b.WriteString("# outcomes\n")
	for _, c := range []struct {
		d     event.Decision
		o     event.Outcome
		procs int
	}{
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{OK: true, PID: 36, Freed: 128 * rss.MiB, Paused: 0.121}, 1},
		{event.Decision{Action: event.ActionRecycle, Lead: 1}, event.Outcome{OK: true, PID: 17079, Freed: 190 * rss.MiB}, 1},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{OK: true, Freed: 30*rss.MiB + 100*rss.KiB}, 3},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{OK: true, Freed: 2 * rss.GiB, Stopped: 0.002}, 1},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{OK: true}, 0},
		{event.Decision{Action: event.ActionStop}, event.Outcome{OK: true}, 0},
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{PID: 4711, Reason: event.ReasonTimeout}, 1},
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{PID: 4711, Reason: event.ReasonDeferred}, 1},
		{event.Decision{Action: event.ActionTrim}, event.Outcome{Reason: event.ReasonError, Detail: "no such file"}, 1},
		{event.Decision{Action: event.ActionRecycle}, event.Outcome{PID: 45, Reason: event.ReasonDryRun}, 0},
		{event.Decision{Action: event.ActionStop}, event.Outcome{Reason: event.ReasonDryRun}, 0},
		{event.Decision{Action: event.ActionSignal, Arg: "USR2@rank0"}, event.Outcome{OK: true, PID: 12, Detail: "process 12"}, 0},
		{event.Decision{Action: event.ActionSignal, Arg: "USR2"}, event.Outcome{Reason: event.ReasonVanished}, 0},
		{event.Decision{Action: event.ActionExec, Arg: "a.sh"}, event.Outcome{Reason: event.ReasonVanished, Detail: "killed by SIGTERM, what is watched had ended"}, 0},
		{event.Decision{Action: event.ActionRequeue}, event.Outcome{OK: true, Detail: "with 1250 MiB (was 1000); release 3 ms"}, 0},
		{event.Decision{Action: event.ActionGC}, event.Outcome{OK: true, Freed: rss.GiB}, 0},
	} {
		show(Outcome(&c.d, &c.o, c.procs))
	}

	b.WriteString("# growth\n")
	for _, d := range []event.Diagnosis{
		{Finding: event.FindingMapped, Confidence: event.Certain, Role: rss.RoleWorker, Procs: 4, Rate: 61 * float64(rss.MiB), File: "/data/demo.lmdb"},
		{Finding: event.FindingMapped, Confidence: event.Certain, Role: rss.RoleWorker, Procs: 3, Bytes: rss.GiB},
		{Finding: event.FindingCopyOnWrite, Confidence: event.Likely, Role: rss.RoleWorker, Procs: 4, Bytes: 420 * rss.MiB},
		{Finding: event.FindingTrainerLeak, Confidence: event.Certain, Role: rss.RoleTrainer, Procs: 1, Rate: 2 * float64(rss.MiB)},
	} {
		show(Growth(&d))
	}

	b.WriteString("# rules that are skipped\n")
	rule := event.Rule{Action: event.ActionTrim}
	show(
		SkippedRule(&rule, event.LimitUser, event.ReasonNoWorker, ""),
		SkippedRule(&rule, event.LimitCgroup, event.ReasonNoHelp, event.ActionTrim.Why(event.ReasonNoHelp)),
		SkippedRule(&event.Rule{Action: event.ActionRequeue}, event.LimitUser, event.ReasonUnsupported, "not in a Slurm job"),
		SkippedRule(&rule, event.LimitFDs, event.ReasonNoHelp, ""),
	)

	b.WriteString("# forecasts\n")
	eta, low, high := 600.0, 480.0, 9000.0
	for _, d := range []event.Decision{
		{}, {ETA: &eta}, {ETA: &eta, Outlook: event.Outlook{ETALow: &low, ETAHigh: &high}}, {ETA: &eta, Outlook: event.Outlook{ETALow: &low}},
		{Limit: event.LimitUser, Outlook: event.Outlook{Flattens: 2560 * rss.MiB}},
	} {
		show(Forecast(&d))
	}
	for _, s := range []event.Spike{{Bytes: 1843 * rss.MiB}, {Bytes: 1843 * rss.MiB, PID: 4711, Role: rss.RoleWorker}} {
		show(Leap(&event.Decision{Outlook: event.Outlook{Spike: &s}}))
	}
	golden.Check(t, "testdata/sentences.txt", b.String())
}

func TestWatching(t *testing.T) {
	if got, want := Watching([]string{"python", "train.py"}, 6420), "watching python train.py (6420)"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := Watching([]string{"python", strings.Repeat("x", 100)}, 6420); text.Columns(got) != width || !strings.HasSuffix(got, "… (6420)") {
		t.Errorf("got  %q", got)
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
